"""The values and protocols that pass between rooms: frozen, validated, free of arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, runtime_checkable

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
Message = Mapping[str, str]
"""One chat message: {"role": "system" | "user" | "assistant", "content": text}."""

_CHAIN_PARENTS = tuple(tuple(range(-1, n - 1)) for n in range(65))


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens a drafter proposes, as a tree; a chain is the tree with parents -1, 0, 1, ...

    `parents[i]` is the index of the node that token i follows, -1 for the last committed token;
    parents come before their children. `confidence`, where a drafter has one, is its estimate per
    token that the target agrees, given that it agreed with the parent. `origins` names who drafted
    each token, or what text it is copied from, where that is more than `source` says.

    Raises ContractError for parents out of order, siblings with equal tokens, or lengths that
    differ.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    source: str = ""
    match_length: int = 0
    confidence: tuple[float, ...] = ()
    origins: tuple[str, ...] = ()

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
    ) -> Self:
        """Make the draft in which each token follows the one before it."""
        tokens = tuple(tokens)
        size = len(tokens)
        known = size < len(_CHAIN_PARENTS)
        parents = _CHAIN_PARENTS[size] if known else tuple(range(-1, size - 1))
        return cls(tokens, parents, source, match_length, confidence, origins)

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
class GenerationResult:
    """A finished reply.

    `token_ids` are the generated ids, an end-of-generation id included where one was generated;
    `text` holds neither it nor a stop text. Of control tokens it holds those around reasoning
    (`akunu_py.engine.reasoning_marks`), as the model wrote them; `Tokenizer.decode` of the ids
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


@runtime_checkable
class Drafter(Protocol):
    """Guesses the next tokens of one reply. Made anew for each reply."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order: first the prompt, then each step's output."""

    def propose(self, limit: int) -> Draft:
        """Guess at most `limit` tokens to follow what was observed; an empty draft is fine."""


@runtime_checkable
class ReplyDrafter(Protocol):
    """A drafter that draws its tokens as the reply is sampled."""

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draft for a reply with these transforms and this seed; called before the prompt comes.

        `check`, to be called between passes of the drafter's own over the prompt, may raise.
        """


@runtime_checkable
class CandidateObserver(Protocol):
    """A drafter that learns from the target's own runners-up.

    Optional: the loop asks with `isinstance`, and has the target look for them only then.
    """

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Take in the rows of a pass, before `observe` gets its output.

        A row is (token fed, the target's most likely next ids, best first). Rows of rejected draft
        tokens count: what the target would say after them is known all the same. Rows of the
        prompt are not among them.
        """


class Target(Protocol):
    """The model that decides, over a cache that holds every committed token but the last."""

    def max_draft_tokens(self) -> int:
        """Return how many draft tokens the next pass can take and still roll back; 0 is fine."""

    def choose(self, last: int, draft: Draft) -> Sequence[int]:
        """Return the target's own next token after `last` and after each node of the draft.

        Entry 0 follows `last`, entry i + 1 follows node i: len(draft) + 1 ids. Entries that the
        walk of `verify_match` cannot reach may hold -1.
        """

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep `last` and the accepted nodes of the last `choose` in the cache, drop the others.

        Raises RollbackError where the cache cannot.
        """


@runtime_checkable
class CandidateTarget(Protocol):
    """A target that can say what it found likely, for drafters that are a `CandidateObserver`."""

    def track_candidates(self, count: int) -> None:
        """Look for the `count` likeliest ids after every row evaluated from now on."""

    def candidates(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Return those of the last `choose`: (token fed, ids by their raw logits, best first)."""


@runtime_checkable
class TreeTarget(Protocol):
    """A target that cannot take trees always; one without this protocol can."""

    def takes_tree(self, draft: Draft) -> bool:
        """Return whether `choose` can be called with this tree now.

        If not, it is called with one of its paths.
        """


class Detokenizer(Protocol):
    """Token ids to text, step by step; never emits half a character."""

    def feed(self, token_ids: Iterable[int]) -> str:
        """Return the text these tokens complete."""

    def finish(self) -> str:
        """Return what is left; an incomplete character becomes U+FFFD."""


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
        """Return the ids of a text, begin-of-text included where the model wants it.

        Control tokens written out in the text are taken as such only with `parse_special`.
        """

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, up to where the reply begins.

        Raises ConfigError for a missing template, ModelFormatError for one that fails.
        """

    def decode(self, token_ids: Iterable[int], *, with_control: bool = False) -> str:
        """Return the text of ids, control tokens left out.

        With `with_control` they are written out, but for the begin token that `encode` puts in
        front.
        """

    def token_texts(self) -> Sequence[str]:
        """Return the text of each id, as the vocabulary writes it."""

    def detokenizer(self, *, continues: bool = False) -> Detokenizer:
        """Return a fresh incremental detokenizer.

        Some vocabularies put a space before every text; it is left out, unless the text
        `continues` another, where it stands between two words.
        """
