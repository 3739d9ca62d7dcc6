"""Constrained replies: their matchers, and drafts of what must come next."""

from collections.abc import Sequence

from akunu_py.constraints import (
    ConstrainedDrafter,
    Matcher,
    MatcherVocabulary,
    PendingMatcher,
    pending_matcher,
)
from akunu_py.engine.drafter_factory import DrafterChoice
from akunu_py.engine.reasoning import end_of_prompt, opening_of
from akunu_py.protocols import Drafter, Tokenizer
from akunu_py.values.types import GenerationConfig

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
    ) -> PendingMatcher | None:
        """Return the matcher of a reply, None for a reply in any form.

        A constraint holds from the answer on: reasoning that comes before it is free. A reply that
        `continues` a text begins with the answer. `said` is reasoning at the end of the prompt that
        it goes on with.

        Raises ConstraintError for an expression that is malformed.
        """
        if config.constraint is None:
            return None
        if self._vocabulary is None:
            self._vocabulary = MatcherVocabulary(self._tokenizer, self._size)
        opening = None
        if not continues:
            before = end_of_prompt(prompt, self._tokenizer, said)
            opening = opening_of(before, self._tokenizer, space=self._vocabulary.drops_space)
        return pending_matcher(config.constraint, self._vocabulary, opening)


def constrained_drafter(
    drafter: Drafter, choice: DrafterChoice, matcher: Matcher | None
) -> tuple[Drafter, int]:
    """Return the drafter of a reply, and the upper limit of its drafts in tokens.

    A drafter whose tokens are accepted by probability is left as it is: such a rule must see every
    token that was drawn.
    """
    most = choice.num_draft_tokens
    if matcher is None or not most or choice.config.verifier != "match":
        return drafter, most
    limit = _MOST_FORCED if choice.config.num_draft_tokens is None else most
    return ConstrainedDrafter(drafter, matcher, most), limit
