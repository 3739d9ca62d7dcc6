"""The drafters of one engine: which one a reply uses, and how it and its constraint are made."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from akunu_py.drafting import AutoState, default_num_draft_tokens
from akunu_py.drafting.prediction_head import PredictionHeadDrafter, default_length
from akunu_py.drafting.registry import DrafterSetup, drafter_name, make
from akunu_py.engine.reasoning import end_of_prompt, opening_of
from akunu_py.models.load import LoadedModel
from akunu_py.protocols import Drafter, Tokenizer
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

if TYPE_CHECKING:
    from akunu_py.constraints import Matcher, MatcherVocabulary, PendingMatcher
    from akunu_py.models.heads import Head, HeadModel
    from akunu_py.models.token_model import CachedTokenModel

_NUM_OWN_TOKENS = 8
"""Most tokens of a draft of the caller's own drafter, where the caller gives no limit."""


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """The drafter of a reply."""

    name: str
    config: GenerationConfig
    """Configuration of the reply, with that name filled in."""

    num_draft_tokens: int
    """Upper limit of a draft, in tokens."""

    own: Any = None
    """The caller's own drafter, or a function that makes one; None for one by name."""


@dataclass(frozen=True, slots=True)
class DraftingModels:
    """What draws drafts for the replies of one session, with caches of its own."""

    draft_model: "CachedTokenModel | None" = None
    head: "HeadModel | None" = None

    def close(self) -> None:
        for model in (self.draft_model, self.head):
            if model is not None:
                model.close()


class DrafterFactory:
    """Makes the drafters of one engine.

    `vocabulary_size` is the number of the model's logits; `context` its length in tokens; `most`
    limits drafts, whatever a configuration says.

    Raises ConfigError for a draft model of another vocabulary.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        vocabulary_size: int,
        *,
        context: int,
        most: int | None = None,
        draft_model: LoadedModel | None = None,
        head: "Head | None" = None,
    ) -> None:
        self._loaded = loaded
        self._vocabulary_size = vocabulary_size
        self._most = most
        self.draft_model = draft_model
        self._head = head
        self._context = context
        # State that drafters keep from reply to reply, by their names.
        self._kept: defaultdict[str, dict[str, object]] = defaultdict(dict)
        self.models = self.other_models()

    def other_models(self) -> DraftingModels:
        """Return draft model and head once more, with caches of their own."""
        token_model: CachedTokenModel | None = None
        head_model: HeadModel | None = None
        if self.draft_model is not None:
            from akunu_py.models.token_model import make_token_model  # for those with a draft model

            token_model = make_token_model(self.draft_model, self._loaded, self._vocabulary_size)
        if self._head is not None:
            from akunu_py.models.heads import make_head_model  # for those with a head

            head_model = make_head_model(
                self._head, context=self._context, vocabulary_size=self._vocabulary_size
            )
        return DraftingModels(token_model, head_model)

    def choose(self, config: GenerationConfig) -> DrafterChoice:
        """Return the drafter that a configuration names, or the default one."""
        own = None if isinstance(config.drafter, str | None) else config.drafter
        if own is not None:
            if names := ", ".join(config.drafter_options):
                raise ConfigError(f"{names} are options of drafters by name; leave them out")
            # Its name is for results.
            config = replace(config, drafter=getattr(own, "__name__", type(own).__name__))
        name = drafter_name(config, self.models.draft_model, self.models.head)
        most = config.num_draft_tokens
        if most is None and own is not None:
            most = _NUM_OWN_TOKENS
        if most is None:
            most = default_num_draft_tokens(name)
            if name == PredictionHeadDrafter.name and self.models.head is not None:
                most = default_length(self.models.head)
        if self._most is not None:
            most = min(most, self._most)
        return DrafterChoice(name, replace(config, drafter=name), most, own)

    def make(
        self,
        choice: DrafterChoice,
        auto_state: AutoState,
        models: DraftingModels | None = None,
    ) -> Drafter:
        """Make the chosen drafter for one reply; `models` replace the engine's own.

        Raises as `akunu_py.drafting.registry.make` does.
        """
        if choice.own is not None:
            return _own_drafter(choice.own)
        models = models or self.models
        setup = DrafterSetup(
            choice.num_draft_tokens,
            choice.config,
            vocabulary_size=self._vocabulary_size,
            token_texts=self._loaded.tokenizer.token_texts,
            token_model=models.draft_model,
            head_model=models.head,
            kept=self._kept[choice.name],
            auto_state=auto_state,
        )
        return make(choice.name, setup)

    def close(self) -> None:
        """Release draft model and head, and the state that drafters kept."""
        self._kept.clear()
        self.draft_model = self._head = None
        self.models.close()
        self.models = DraftingModels()


def _own_drafter(given: Any) -> Drafter:
    """Return the caller's drafter for one reply; a class or a function is called for it."""
    makes = isinstance(given, type) or not hasattr(given, "propose")
    return Drafter.of(given() if makes else given, "drafter")


_MOST_FORCED = 64
"""Tokens that a constraint drafts at once, where the caller gives no limit."""


class Matchers:
    """Makes the matchers of one engine; its vocabulary is handed over at the first of them."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._size = vocabulary_size
        self._vocabulary: MatcherVocabulary | None = None

    def make(
        self, config: GenerationConfig, prompt: Sequence[int], *, continues: bool, said: str = ""
    ) -> "PendingMatcher | None":
        """Return the matcher of a reply, None for a reply in any form.

        A constraint holds from the answer on: reasoning that comes before it is free. A reply that
        `continues` a text begins with the answer. `said` is reasoning at the end of the prompt that
        it goes on with.

        Raises ConstraintError for an expression that is malformed.
        """
        if config.constraint is None:
            return None
        from akunu_py.constraints import MatcherVocabulary, pending_matcher

        if self._vocabulary is None:
            self._vocabulary = MatcherVocabulary(self._tokenizer, self._size)
        opening = None
        if not continues:
            before = end_of_prompt(prompt, self._tokenizer, said)
            opening = opening_of(before, self._tokenizer, space=self._vocabulary.drops_space)
        return pending_matcher(config.constraint, self._vocabulary, opening)


def constrained_drafter(
    drafter: Drafter, choice: DrafterChoice, matcher: "Matcher | None"
) -> tuple[Drafter, int]:
    """Return the drafter of a reply, and the upper limit of its drafts in tokens.

    A drafter whose tokens are accepted by probability is left as it is: such a rule must see every
    token that was drawn.
    """
    most = choice.num_draft_tokens
    if matcher is None or not most or choice.config.exactness != "stream":
        return drafter, most
    from akunu_py.constraints import ConstrainedDrafter

    limit = _MOST_FORCED if choice.config.num_draft_tokens is None else most
    return ConstrainedDrafter(drafter, matcher, most), limit
