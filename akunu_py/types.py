"""The values that pass between rooms: frozen, validated, free of arrays."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from akunu_py.decode_stats import DecodeStats as DecodeStats  # noqa: PLC0414 - offered here too
from akunu_py.decode_stats import StepStats as StepStats  # noqa: PLC0414
from akunu_py.decode_stats import VerificationKind as VerificationKind  # noqa: PLC0414
from akunu_py.errors import ContractError
from akunu_py.generation_config import DraftBudget as DraftBudget  # noqa: PLC0414
from akunu_py.generation_config import DraftLength as DraftLength  # noqa: PLC0414
from akunu_py.generation_config import DraftSampling as DraftSampling  # noqa: PLC0414
from akunu_py.generation_config import Exactness as Exactness  # noqa: PLC0414
from akunu_py.generation_config import GenerationConfig as GenerationConfig  # noqa: PLC0414
from akunu_py.generation_config import RowBits as RowBits  # noqa: PLC0414

FinishReason = Literal["stop", "length", "loop", "cancelled"]

_CHAIN_PARENTS = tuple(tuple(range(-1, n - 1)) for n in range(65))


@dataclass(frozen=True, slots=True)
class LengthTrace:
    """Where an entropy-adaptive length comes from, for a trace.

    `entropy` is H, normalised to 0 ... 1; `smoothed` is h after it; `num_draft_tokens` is gamma.
    """

    entropy: float
    smoothed: float
    num_draft_tokens: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens a drafter proposes, as a tree; a chain is the tree with parents -1, 0, 1, ...

    `parents[i]` is the index of the node that token i follows, -1 for the last committed token;
    parents come before their children. `confidence`, where a drafter has one, is its estimate per
    token that the target agrees, given that it agreed with the parent. `origins` names who drafted
    each token, or what text it is copied from, where that is more than `source` says. `length`
    says where the draft's length comes from, if a rule of the drafter's decided it.

    Raises ContractError for parents out of order, siblings with equal tokens, or lengths that
    differ.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    source: str = ""
    match_length: int = 0
    confidence: tuple[float, ...] = ()
    origins: tuple[str, ...] = ()
    length: LengthTrace | None = None

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if len(self.parents) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.parents)} parents")
        if self.confidence and len(self.confidence) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.confidence)} confidences")
        if self.origins and len(self.origins) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.origins)} origins")
        if size < len(_CHAIN_PARENTS) and self.parents == _CHAIN_PARENTS[size]:
            return
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not -1 <= parent < node:
                raise ContractError(f"node {node} of a draft has the parent {parent}")
            if (parent, token) in seen:
                raise ContractError(f"node {node} of a draft repeats its sibling's token {token}")
            seen.add((parent, token))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every token follows the one before it."""
        size = len(self.parents)
        if size < len(_CHAIN_PARENTS) and self.parents == _CHAIN_PARENTS[size]:
            return True
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @classmethod
    def chain(
        cls,
        tokens: Iterable[int],
        source: str = "",
        match_length: int = 0,
        confidence: tuple[float, ...] = (),
        origins: tuple[str, ...] = (),
        *,
        length: LengthTrace | None = None,
    ) -> Self:
        """Make the draft in which each token follows the one before it."""
        tokens = tuple(tokens)
        size = len(tokens)
        known = size < len(_CHAIN_PARENTS)
        parents = _CHAIN_PARENTS[size] if known else tuple(range(-1, size - 1))
        return cls(tokens, parents, source, match_length, confidence, origins, length)

    @classmethod
    def empty(cls, source: str = "") -> Self:
        """Make the draft without tokens: the target then takes a plain step."""
        return cls((), (), source)

    def first(self, size: int) -> "Draft":
        """Return the draft of the first `size` tokens, itself where it has no more."""
        if size >= len(self.tokens):
            return self
        # Parents come before their children, so what is left of a tree is a tree.
        return Draft(
            self.tokens[:size],
            self.parents[:size],
            self.source,
            self.match_length,
            self.confidence[:size],
            self.origins[:size],
            self.length,
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target accepted of a draft, and its own next token.

    `accepted` is the path of accepted nodes, from the root. `kind` is "bonus" when the path ended
    at a leaf of the draft (a plain step counts as such: nothing was rejected) and "recovered" when
    the target chose something else than every child drafted there.
    """

    accepted: tuple[int, ...]
    next_token: int
    kind: VerificationKind

    def output(self, draft: Draft) -> tuple[int, ...]:
        """Return the tokens this step commits, at least one."""
        if not self.accepted:
            return (self.next_token,)
        return (*(draft.tokens[node] for node in self.accepted), self.next_token)


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a target's last pass was, as far as its time depends on it.

    `was_in_flight` says whether the step after the last committed token was in flight before: then
    the first token of a draft was compared with its result. `rows` are those fed before the choices
    could be read, or, after such a comparison, those of the pass that followed it, 0 where none
    did. `in_flight` says whether the next step is in flight now.
    """

    rows: int
    was_in_flight: bool = False
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A finished reply.

    `token_ids` are the generated ids, an end-of-generation id included where one was generated;
    `text` holds neither it nor a stop text. Of control tokens it holds those around reasoning
    (`akunu_py.engine.reasoning`), as the model wrote them; `Tokenizer.decode` of the ids
    leaves those out, too. `decode_s` and `prefill_s` are seconds; `seed` is the one used, so that
    the reply can be made again. `time_to_first_token_s` is counted from before the prefill to the
    end of the first step; None where there was none.

    Two things decide whether drafting changed the reply. `exactness` is the rule drafts were
    accepted by, which leaves alone: "stream", the tokens themselves; "distribution", the law they
    are drawn by; "none", neither. `row_bits` says whether the rule met equal numbers, that is
    whether a pass over several rows gives each row the bits of a pass over one with this model on
    this machine: "equal", or nothing was drafted; "different": between two tokens that are almost
    equally likely the other one may have been chosen; "unknown": not measured.

    `time_saved` is an estimate of what drafting saved of the time that plain decoding would have
    taken: a range of shares, (low, high), below 0 where drafting cost time; None where nothing was
    drafted, `draft_budget` is "always", or too few drafts were timed so far
    (`akunu_py.decoding.time_saved`).
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    num_prompt_tokens: int
    num_cached_tokens: int
    prefill_s: float
    decode_s: float
    peak_memory_bytes: int
    stats: DecodeStats
    exactness: Exactness = "stream"
    row_bits: RowBits = "unknown"
    time_to_first_token_s: float | None = None
    time_saved: tuple[float, float] | None = None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Generated tokens a second of decoding; None where no time passed."""
        return len(self.token_ids) / self.decode_s if self.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of tokens of one origin: `source` is what their drafts named, "" the target's own.

    A draft names each token's origin (`Draft.origins`) or one source for all of them.
    A character whose bytes come from several tokens belongs to the one that completes it.
    """

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What one step added to a reply; the last event also carries the result.

    The texts of `pieces`, none of them empty, are `text`; in an event that tells no origins there
    are none.
    """

    text: str
    token_ids: tuple[int, ...]
    step: StepStats | None = None
    result: GenerationResult | None = None
    pieces: tuple[TextPiece, ...] = ()
