"""The values and protocols that pass between rooms: frozen, validated, free of arrays."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, get_args, runtime_checkable

from akunu_py.decode_stats import DecodeStats as DecodeStats  # noqa: PLC0414 - offered here too
from akunu_py.decode_stats import StepStats as StepStats  # noqa: PLC0414
from akunu_py.decode_stats import VerificationKind as VerificationKind  # noqa: PLC0414
from akunu_py.errors import ConfigError, ContractError

FinishReason = Literal["stop", "length", "cancelled"]
DraftBudget = Literal["auto", "always"]
DraftSampling = Literal["coupled", "rejection"]
Exactness = Literal["stream", "distribution"]
Message = Mapping[str, str]
"""One chat message: {"role": "system" | "user" | "assistant", "content": text}."""

_CHAIN_PARENTS = tuple(tuple(range(-1, n - 1)) for n in range(65))


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens a drafter proposes, as a tree; a chain is the tree with parents -1, 0, 1, ...

    `parents[i]` is the index of the node that token i follows, -1 for the last committed token;
    parents come before their children. `confidence`, where a drafter has one, is its estimate per
    token that the target agrees, given that it agreed with the parent.

    Raises ContractError for parents out of order, siblings with equal tokens, or lengths that
    differ.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    source: str = ""
    match_length: int = 0
    confidence: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if len(self.parents) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.parents)} parents")
        if self.confidence and len(self.confidence) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.confidence)} confidences")
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
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @classmethod
    def chain(
        cls,
        tokens: Iterable[int],
        source: str = "",
        match_length: int = 0,
        confidence: tuple[float, ...] = (),
    ) -> Self:
        """Make the draft in which each token follows the one before it."""
        tokens = tuple(tokens)
        size = len(tokens)
        known = size < len(_CHAIN_PARENTS)
        parents = _CHAIN_PARENTS[size] if known else tuple(range(-1, size - 1))
        return cls(tokens, parents, source, match_length, confidence)

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
        return (*(draft.tokens[node] for node in self.accepted), self.next_token)


def _check_number(name: str, value: float, low: float, high: float, hint: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; {hint}")


def _check_temperature(name: str, value: float) -> None:
    _check_number(name, value, 0, 100, "give a number from 0 to 100")
    if 0 < value < 1e-3:
        raise ConfigError(f"{name} is {value!r}; give 0 for the likeliest token, or 0.001 and more")


def _check_count(name: str, value: int, low: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name} is {value!r}; {hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """How a reply is sampled, drafted and ended.

    Attributes:
        max_tokens: most tokens to generate; None: until the context is full.
        temperature: 0 takes the most likely token, above it tokens are drawn.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set with this probability mass; 1 keeps all.
        min_p: keep tokens at least this share as likely as the likeliest; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of the tokens among
            the last `penalty_window`; 1 is none (Keskar et al. 2019, arXiv:1909.05858, 4.1).
        presence_penalty: subtracted once from tokens in the window.
        frequency_penalty: subtracted for each occurrence in the window.
        penalty_window: how many last tokens, prompt included, the penalties look at.
        logit_bias: token id -> added to its logit.
        seed: of the noise, 0 to 2**64 - 1; None draws one, reported in the result.
        stop: texts that end the reply; they are not part of it.
        drafter: a drafter's name (see `akunu_py.drafting`), or "none"; None: "draft-model" where
            the engine has a draft model, else "auto".
        num_draft_tokens: most tokens drafted for one pass; None: as many as the drafter's own
            default says.
        draft_budget: "auto" drafts as many tokens as pay on this machine, none included; "always"
            as many as the drafter has.
        draft_sampling: "coupled" compares drafts with the model's own choices: the text is that of
            plain decoding. "rejection" accepts them by probability (Leviathan et al. 2023,
            arXiv:2211.17192): the text follows the same law and is another one.
        draft_temperature: of a draft model; None: `temperature`.

    Raises ConfigError naming the field and its range.

    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 20
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    drafter: str | None = None
    num_draft_tokens: int | None = None
    draft_budget: DraftBudget = "auto"
    draft_sampling: DraftSampling = "coupled"
    draft_temperature: float | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_count("max_tokens", self.max_tokens, 1, "give 1 or more, or None for no limit")
        _check_temperature("temperature", self.temperature)
        if self.draft_temperature is not None:
            _check_temperature("draft_temperature", self.draft_temperature)
        _check_count("top_k", self.top_k, 0, "give a whole number, 0 for all tokens")
        _check_number("top_p", self.top_p, 0, 1, "give a number above 0, at most 1")
        if self.top_p == 0:
            raise ConfigError("top_p is 0; give a number above 0, at most 1 (1 keeps all tokens)")
        _check_number("min_p", self.min_p, 0, 1, "give a number from 0 to 1")
        _check_number(
            "repetition_penalty", self.repetition_penalty, 1e-3, 1e3,
            "give a positive number such as 1.1 (1 is none)",
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            _check_number(name, getattr(self, name), -1e3, 1e3, "give a number (0 is none)")
        _check_count("penalty_window", self.penalty_window, 1, "give 1 or more")
        if not isinstance(self.logit_bias, Mapping):
            raise ConfigError(f"logit_bias is {self.logit_bias!r}; give a dict of id and bias")
        for token, bias in self.logit_bias.items():
            _check_count("a token id in logit_bias", token, 0, "give ids of the vocabulary")
            _check_number(f"the bias of token {token}", bias, -1e9, 1e9, "give a finite number")
        if self.seed is not None:
            _check_count("seed", self.seed, 0, "give a whole number from 0 to 2**64 - 1")
            if self.seed >= 2**64:
                raise ConfigError(f"seed is {self.seed}; give a number below 2**64")
        if not isinstance(self.stop, tuple | list) or not all(
            isinstance(s, str) and s for s in self.stop
        ):
            raise ConfigError(f"stop is {self.stop!r}; give a tuple of texts, none of them empty")
        if self.drafter is not None and not isinstance(self.drafter, str):
            raise ConfigError(f"drafter is {self.drafter!r}; give a drafter's name, or 'none'")
        if self.num_draft_tokens is not None:
            _check_count("num_draft_tokens", self.num_draft_tokens, 0, "give 0 (no drafts) or more")
            if self.num_draft_tokens > 64:
                raise ConfigError(f"num_draft_tokens is {self.num_draft_tokens}; give at most 64")
        for name, kinds in (("draft_budget", DraftBudget), ("draft_sampling", DraftSampling)):
            if getattr(self, name) not in get_args(kinds):
                known = " or ".join(map(repr, get_args(kinds)))
                raise ConfigError(f"{name} is {getattr(self, name)!r}; give {known}")


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A finished reply.

    `token_ids` are the generated ids, an end-of-generation id included where one was generated;
    `text` holds neither it nor a stop text. `decode_s` and `prefill_s` are seconds; `seed` is the
    one used, so that the reply can be made again. `exactness` says what drafting left alone:
    "stream", the tokens themselves, or "distribution", the law they are drawn by.
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

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Generated tokens a second of decoding; None where no time passed."""
        return len(self.token_ids) / self.decode_s if self.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What one step added to a reply; the last event also carries the result."""

    text: str
    token_ids: tuple[int, ...]
    step: StepStats | None = None
    result: GenerationResult | None = None


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
