"""The contracts between the rooms: what drafters, targets and tokenizers can do.

A drafter is any object with `observe` and `propose`, a target one with `max_draft_tokens`, `choose`
and `commit`; `Drafter` and `Target` have what else they may do, with defaults. `Tokenizer` is
required as it stands.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.system.errors import ContractError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.messages import GivenMessage, GivenTool
from akunu_py.values.types import Draft, GenerationConfig, PassReport

NO_CHOICE = -2
"""What a target says of a drafted token behind which none can be chosen; see `Target.choose`."""

Hidden = Literal["normed", "raw"] | tuple[int, ...]
"""Hidden states of a target: after its last norm, or before; or, side by side, those that go into
the layers of these numbers, in ascending order; () for a drafter that reads positions alone."""


class KeptRows(Protocol):
    """The keys and values of a target's rows, as its caches hold them."""

    def read(self, cache: int, end: int, most: int | None = None) -> tuple[object, object] | None:
        """Return keys and values of the rows before row `end` of the text, from one of the caches.

        They are arrays of the target's own kind, [1, heads, rows, width], of the last rows before
        `end`: at most `most` of them, and no more than the cache holds. None where row `end - 1`
        is not held. To be read between two passes of the target, and not kept longer: an array that
        somebody else holds cannot be written into.
        """


class RatedToken(Protocol):
    """A token of an unfinished draft, as a rule of length sees it."""

    @property
    def probability(self) -> float:
        """Return the drafter's confidence in it, -1 if it has none."""


class DrawingRule(Protocol):
    """Decides what a model draws, whose every token takes time."""

    def pays(
        self,
        before: Draft,
        drawn: Sequence[RatedToken],
        *,
        room: int,
        passes: int = 1,
        further: int = 1,
    ) -> bool:
        """Return whether to draw another token after `drawn`, which follow `before`.

        The model may draw `room` further tokens; the next one takes it `passes` passes, and each
        one after that `further` passes.
        """

    def draws_instead(self, copied: Draft, *, room: int, further: int = 1) -> bool:
        """Return whether to draw up to `room` tokens rather than verify a copied draft."""


_TOLD_BY = {
    "reads_candidates": "observe_candidates",
    "uses_curve": "use_curve",
    "draws": "draft_probabilities",
}
"""Flag of a drafter -> the method that says it."""


class Drafter:
    """Guesses the next tokens of one reply; each reply gets a new drafter.

    It must have `observe` and `propose`. The other methods do nothing unless a class has its own.
    An object of any other class with these two, and with any of the others, serves as well:
    `Drafter.of` gives it what it lacks.
    """

    hidden: Hidden | None = None
    """The target's hidden states that it reads, as a prediction head does; None for none. The
    target keeps them only for such a drafter."""

    reads_candidates = False
    """Whether the drafter learns from the target's runners-up, computed only then. This and
    the next two follow from the methods that a class has of its own."""

    uses_curve = False
    """Whether the drafter uses the costs of passes itself."""

    draws = False
    """Whether the drafter draws tokens and knows their distributions (`akunu_lab.verifying`)."""

    @staticmethod
    def of(given: object, name: str = "it") -> "Drafter":
        """Return a drafter; an object of another class gets the methods that it lacks.

        Raises ContractError, with `name`, for an object without `observe` or `propose`.
        """
        if isinstance(given, Drafter):
            return given
        if not all(callable(getattr(given, method, None)) for method in ("observe", "propose")):
            raise ContractError(
                f"{name} is a {type(given).__name__}; a drafter has the methods observe and propose"
            )
        return _Completed(given)

    def __init_subclass__(cls) -> None:
        for flag, method in _TOLD_BY.items():
            if method in vars(cls):
                setattr(cls, flag, True)

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order: first the prompt, then each step's output."""
        raise NotImplementedError

    def propose(self, limit: int) -> Draft:
        """Guess at most `limit` tokens to follow the observed ones; the draft may be empty."""
        raise NotImplementedError

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft a chain of at most `limit` tokens to follow the observed ones and `before`."""
        return _EMPTY if before.tokens else self.propose(limit)

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draft for a reply with these transforms and this seed; called before the prompt.

        `check`, to be called between the drafter's own passes over the prompt, may raise.
        """

    def reading(self, prompt: Sequence[int]) -> Iterator[None]:
        """Take in the prompt, yielding between passes of its own, so that others have a turn."""
        self.observe(prompt)
        yield from ()

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Take in the positions of a pass, before `observe` gets its output, if `reads_candidates`.

        A row is (token fed, the target's most likely next ids, best first). Rows of rejected draft
        tokens are included, since the target's candidates after them are known as well. Rows of the
        prompt are not.
        """

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        """Begin a reply to a prompt, if `hidden`; called before its prefill.

        The target holds the first `held` rows from earlier replies and does not compute them again.
        The states of row `held` come first.
        """

    def observe_states(self, states: object, start: int, end: int) -> None:
        """Take in the states of the next rows: those from `start` to before `end` of `states`.

        They are arrays of the target's own kind, which stay on its device: [1, rows, width]. Each
        row of the text comes once, in order: rows of the prompt, after each of its passes, and
        later rows of committed tokens, before `observe` gets a step's output.
        """

    def use_rows(self, rows: KeptRows) -> None:
        """Read keys and values of the target's rows here, if `hidden`; before `begin_states`."""

    def num_sure(self) -> int:
        """Return how many tokens are sure to follow the observed ones: `Draft.sure`, unlimited.

        They are drafted whatever that costs.
        """
        return 0

    def use_rule(self, rule: DrawingRule) -> None:
        """Draft a further token only if it pays by the rule, if every token takes time."""

    def use_curve(self, curve: CostCurve) -> None:
        """Use these costs, if `uses_curve`; called again as they become better known."""

    def draft_probabilities(self) -> NDArray[np.floating] | None:
        """Return the distributions the last draft was drawn from, [draws, vocab], if it `draws`.

        There is one per node, in order. None means that every token was certain (q was 1), as for
        a greedy drafter or the k likeliest tokens.
        """
        return None


_EMPTY = Draft.empty()


class DrafterAround(Drafter):
    """A drafter around another one, which is told everything and makes the drafts."""

    def __init__(self, inner: Drafter) -> None:
        self._inner = inner = Drafter.of(inner)
        self.hidden = inner.hidden
        self.reads_candidates = inner.reads_candidates
        self.uses_curve = inner.uses_curve

    def observe(self, tokens: Sequence[int]) -> None:
        self._inner.observe(tokens)

    def propose(self, limit: int) -> Draft:
        return self._inner.propose(limit)

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        self._inner.begin_reply(config, seed, check)

    def reading(self, prompt: Sequence[int]) -> Iterator[None]:
        return self._inner.reading(prompt)

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._inner.observe_candidates(rows)

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        self._inner.begin_states(prompt, held)

    def observe_states(self, states: object, start: int, end: int) -> None:
        self._inner.observe_states(states, start, end)

    def use_rows(self, rows: KeptRows) -> None:
        self._inner.use_rows(rows)

    def use_rule(self, rule: DrawingRule) -> None:
        self._inner.use_rule(rule)

    def use_curve(self, curve: CostCurve) -> None:
        self._inner.use_curve(curve)


class _Completed(Drafter):
    """A drafter of a class of its own, with the methods that it lacks."""

    def __init__(self, given: object) -> None:
        self._given = given
        for flag, method in _TOLD_BY.items():
            setattr(self, flag, hasattr(given, method))
        for name in vars(Drafter):
            own = None if name.startswith("_") else getattr(given, name, None)
            if own is not None:
                setattr(self, name, own)

    def __getattr__(self, name: str) -> Any:
        # What a verifier of a plug-in asks drafters besides.
        return getattr(vars(self)["_given"], name)


class Target:
    """The model that decides, over a cache that holds every committed token but the last.

    It must have `max_draft_tokens`, `choose` and `commit`. An object of any other class with these
    serves as well: `as_target` gives it what it lacks.

    While nothing is drafted a target may keep a step in flight: the pass over the token being
    chosen is queued before that token is read. It tells a budget so, since the kind of a pass
    decides its cost.
    """

    has_distributions = False
    """Whether the target has `distributions`; follows from the methods of its class."""

    look_ahead = True
    """Whether to queue the next step where nothing is drafted. A budget clears it where it expects
    a model to draw the next draft: a draw would wait for that step."""

    last_pass: PassReport | None = None
    """What the last `choose` or `distributions` did; None if it fed the last token and the draft.
    """

    def __init_subclass__(cls) -> None:
        if "distributions" in vars(cls):
            cls.has_distributions = True

    def max_draft_tokens(self) -> int:
        """Return how many draft tokens the next pass can take and still roll back; may be 0."""
        raise NotImplementedError

    def choose(self, last: int, draft: Draft) -> Sequence[int]:
        """Return the target's own next token after `last` and after each node of the draft.

        Entry 0 follows `last`, entry i + 1 follows node i: len(draft) + 1 ids. Entries that the
        walk of `verify_match` cannot reach may hold -1. Those of nodes after which nothing can be
        chosen hold `NO_CHOICE`: the walk ends before them.
        """
        raise NotImplementedError

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep `last` and the accepted nodes of the last `choose` in the cache, drop the others.

        Raises RollbackError if the cache cannot.
        """
        raise NotImplementedError

    def takes_tree(self, draft: Draft) -> bool:  # noqa: ARG002 - for targets that look at it
        """Return whether `choose` can be called with this tree now.

        If not, it is called with one of its paths.
        """
        return True

    def track_candidates(self, count: int) -> None:
        """Look for the `count` likeliest ids after every row evaluated from now on."""

    def candidates(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Return candidates of the last `choose`: (token fed, ids by raw logits, best first)."""
        return ()

    @property
    def pipelined(self) -> bool:
        """Return whether the target keeps a step in flight in this reply."""
        return False

    @property
    def in_flight(self) -> bool:
        """Return whether a step is in flight now."""
        return False

    def wait_in_flight(self) -> float:
        """Wait for the step in flight, if one is; return the seconds that took."""
        return 0.0

    def distributions(self, last: int, draft: Draft) -> NDArray[np.floating]:
        """Return the target's distributions after `last` and after each node, [len + 1, vocab].

        It would draw from these, after penalties, filters and temperature. Row 0 follows `last`,
        row i + 1 follows node i. `commit` keeps positions of this pass as after `choose`.
        """
        raise NotImplementedError


def as_target(given: object) -> Target:
    """Return a target; an object of another class gets what it lacks."""
    return given if isinstance(given, Target) else _CompletedTarget(given)


class _CompletedTarget(Target):
    """A target of a class of its own, with what it lacks; it is read and written through."""

    def __init__(self, given: object) -> None:
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "has_distributions", hasattr(given, "distributions"))

    def __getattribute__(self, name: str) -> Any:
        given = object.__getattribute__(self, "_given")
        return getattr(given, name) if hasattr(given, name) else super().__getattribute__(name)

    def __setattr__(self, name: str, value: object) -> None:
        given = object.__getattribute__(self, "_given")
        if hasattr(given, name):
            setattr(given, name, value)


class ReplyMasks(Protocol):
    """The tokens that may follow a reply in a given form (`akunu_py.constraints`)."""

    @property
    def num_tokens(self) -> int:
        """Return the number of the reply's tokens so far."""

    def mask(self, path: Sequence[int]) -> NDArray[np.uint32]:
        """Return the tokens allowed after the reply so far and a path, uint32 [ceil(vocab / 32)].

        Id i is bit i % 32 of word i // 32. Raises ConstraintError if there is none.
        """

    def optional(self, path: Sequence[int]) -> NDArray[np.uint32] | None:
        """Return the tokens allowed after a path that the model has to choose by itself.

        Such tokens are allowed only if the model chooses one of them without a mask. None if there
        are no such tokens, or no others.
        """


class Detokenizer(Protocol):
    """Token ids to text, step by step; never emits half a character."""

    def feed(self, token_ids: Iterable[int]) -> str:
        """Return the text that these tokens complete."""

    def finish(self) -> str:
        """Return the rest; an incomplete character becomes U+FFFD."""


TemplateVariable = Any
"""Value of a variable of a chat template, as JSON has them."""


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def vocabulary_size(self) -> int:
        """Return the number of ids."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Return the ids that end a reply."""

    @property
    def has_chat_template(self) -> bool:
        """Return whether `encode_chat` can be used."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a text, including begin-of-text if the model uses it.

        Control tokens written out in the text are recognised only with `parse_special`.
        """

    def encode_chat(
        self,
        messages: Sequence[GivenMessage],
        *,
        tools: Sequence[GivenTool] | None = None,
        variables: Mapping[str, TemplateVariable] | None = None,
        continued: bool = False,
    ) -> list[int]:
        """Return the ids of a conversation, up to where the reply begins.

        Control tokens written out in what is given are text, never control tokens. `tools` are the
        tools that the model may call; `variables` are further names for the template, which do not
        hide names of its own. With `continued` the ids end with the text of the assistant's last
        message, or its thoughts if it has no text. Raises ConfigError for malformed messages or
        tools, a missing template or one that leaves tools out, or a last message that cannot be
        continued, ModelFormatError for a template that fails.
        """

    def chat_text(
        self, messages: Sequence[GivenMessage], *, tools: Sequence[GivenTool] | None = None
    ) -> str:
        """Return a conversation as the template writes it, without the beginning of a reply.

        Control tokens are written out. Raises as `encode_chat` does.
        """

    def decode(self, token_ids: Iterable[int], *, with_control: bool = False) -> str:
        """Return the text of ids, without control tokens.

        `with_control` writes them out, except the begin token that `encode` puts in front.
        """

    def token_texts(self) -> Sequence[str]:
        """Return the text of each id, as the vocabulary writes it."""

    def token_bytes(self) -> Sequence[bytes]:
        """Return the bytes that each id adds to a text: none for control tokens and gaps."""

    def control_tokens(self) -> Mapping[int, str]:
        """Return the text of each id that is not part of a reply's text, such as <|im_end|>."""

    def detokenizer(self, *, continues: bool = False) -> Detokenizer:
        """Return a fresh incremental detokenizer.

        Some vocabularies put a space before every text. It is dropped unless the text `continues`
        another, where the space separates two words.
        """
