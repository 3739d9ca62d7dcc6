"""Values that pass between rooms: frozen, validated, without arrays."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from akunu_py.system.errors import ContractError
from akunu_py.values.decode_stats import DecodeStats, StepDetail, StepStats, VerificationKind
from akunu_py.values.generation_config import (
    DraftBudget,
    Exactness,
    GenerationConfig,
    RowBits,
)
from akunu_py.values.messages import Message
from akunu_py.values.reply_deltas import ReplyDelta, UnfinishedCall

__all__ = [
    "DecodeStats",
    "Draft",
    "DraftBudget",
    "Exactness",
    "FinishReason",
    "GenerationConfig",
    "GenerationResult",
    "LengthTrace",
    "PassReport",
    "RowBits",
    "StepStats",
    "StreamEvent",
    "TextPiece",
    "TokenLogprob",
    "Verification",
    "VerificationKind",
]

FinishReason = Literal["stop", "length", "loop", "cancelled", "tool_calls"]

_CHAIN_PARENTS = tuple(tuple(range(-1, n - 1)) for n in range(65))


@dataclass(frozen=True, slots=True)
class LengthTrace:
    """The origin of an entropy-adaptive length, for a trace.

    `entropy` is H, normalised to 0 ... 1; `smoothed` is h after it; `num_draft_tokens` is gamma.
    """

    entropy: float
    smoothed: float
    num_draft_tokens: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that a drafter proposes, as a tree; a chain is the tree with parents -1, 0, 1, ...

    `parents[i]` is the index of the node that token i follows, -1 for the last committed token;
    parents come before their children. `confidence`, if the drafter has any, is its estimate per
    token that the target agrees, given that it agreed with the parent. `origins` names the drafter
    of each token, or the text it is copied from, if that adds to `source`. `places` has the index
    of the prompt's token that each token copies, or -1. `length` is the origin of the draft's
    length, if a rule of the drafter decided it. The first `sure` tokens, a chain, are known to be
    right and are never cut. A model drew the last `drawn` tokens.

    Raises ContractError for parents out of order, siblings with equal tokens, or different lengths.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    source: str = ""
    match_length: int = 0
    confidence: tuple[float, ...] = ()
    origins: tuple[str, ...] = ()
    length: LengthTrace | None = None
    places: tuple[int, ...] = ()
    sure: int = 0
    drawn: int = 0

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if len(self.parents) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.parents)} parents")
        if self.confidence and len(self.confidence) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.confidence)} confidences")
        if self.origins and len(self.origins) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.origins)} origins")
        if self.places and len(self.places) != size:
            raise ContractError(f"a draft of {size} tokens has {len(self.places)} places")
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
        places: tuple[int, ...] = (),
        sure: int = 0,
        drawn: int = 0,
    ) -> Self:
        """Make the draft in which each token follows the one before it."""
        tokens = tuple(tokens)
        size = len(tokens)
        known = size < len(_CHAIN_PARENTS)
        parents = _CHAIN_PARENTS[size] if known else tuple(range(-1, size - 1))
        return cls(
            tokens, parents, source, match_length, confidence, origins, length, places, sure, drawn
        )  # fmt: skip

    @classmethod
    def empty(cls, source: str = "") -> Self:
        """Make the draft without tokens: the target then takes a plain step."""
        return cls((), (), source)

    def first(self, size: int) -> Self:
        """Return the draft of the first `size` tokens, or itself if it has no more."""
        if size >= len(self.tokens):
            return self
        # Parents come before their children, so the rest of a tree is a tree.
        return type(self)(
            self.tokens[:size],
            self.parents[:size],
            self.source,
            self.match_length,
            self.confidence[:size],
            self.origins[:size],
            self.length,
            self.places[:size],
            min(self.sure, size),
            max(0, self.drawn - (len(self.tokens) - size)),
        )

    def depths(self) -> list[int]:
        """Return the number of ancestors of each node."""
        found: list[int] = []
        for parent in self.parents:
            found.append(0 if parent < 0 else found[parent] + 1)
        return found

    def walk(self, chosen: Iterable[int]) -> Iterator[tuple[Sequence[int], int | None]]:
        """Follow tokens: yield the nodes drafted for each token, and the one that matches.

        The match is None for a token that was not drafted there. Nothing is yielded after it, nor
        after a leaf.
        """
        if self.is_chain:
            for node, (token, choice) in enumerate(zip(self.tokens, chosen, strict=False)):
                yield (node,), node if token == choice else None
                if token != choice:
                    return
            return
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        here: int | None = -1
        for choice in chosen:
            if here is None or (siblings := children.get(here)) is None:
                return
            here = next((node for node in siblings if self.tokens[node] == choice), None)
            yield siblings, here

    def part(self, nodes: Collection[int]) -> Self:
        """Return the tree of these nodes, in order; nodes whose parent is missing become roots."""
        kept = sorted(nodes)
        if len(kept) == len(self):
            return self
        places = {node: place for place, node in enumerate(kept)}
        return type(self)(
            tuple(self.tokens[node] for node in kept),
            tuple(places.get(self.parents[node], -1) for node in kept),
            self.source,
            self.match_length,
            tuple(self.confidence[node] for node in kept) if self.confidence else (),
            tuple(self.origins[node] for node in kept) if self.origins else (),
            places=tuple(self.places[node] for node in kept) if self.places else (),
            drawn=sum(node >= len(self) - self.drawn for node in kept),
        )

    def best_chain(self) -> Self:
        """Return the root-to-leaf path with the most expected tokens by the draft's confidence.

        Without confidence that is the longest path. Among equals the one whose leaf comes first
        wins.
        """
        if self.is_chain:
            return self
        # Of each path: its expected tokens, the probability of all of it, and its nodes.
        paths: list[tuple[float, float, list[int]]] = []
        for node, parent in enumerate(self.parents):
            tokens, reach, above = (0.0, 1.0, []) if parent < 0 else paths[parent]
            reach *= self.confidence[node] if self.confidence else 1.0
            paths.append((tokens + reach, reach, [*above, node]))
        return self.part(max(paths, key=lambda path: path[0])[2])

    def cut_tree(self, prices: "TreePrices") -> tuple[Self, float]:  # noqa: ARG002 - for classes of trees
        """Return the part of a tree with the largest gain over a plain step, and that gain.

        Gains are in tokens. The rule comes with a drafter of trees, as a class of its drafts. This
        one finds no part, and a budget then cuts the tree's best chain.
        """
        return self.first(0), 0.0


@dataclass(frozen=True, slots=True)
class TreePrices:
    """What a rule that cuts a tree is told of the next pass; see `Draft.cut_tree`."""

    probabilities: Sequence[float]
    """Of each node, if its parent is right, by the record of earlier drafts."""

    price: Callable[[int], float]
    """Price, in tokens, of a number of drafted rows in the pass."""

    checking: float | None
    """Price of a comparison with the step in flight; None if none is.

    The result of that step is compared with the children of the root. The pass has the row of the
    right one, at no price, and the rows kept below it.
    """


@dataclass(frozen=True, slots=True)
class Verification:
    """The accepted part of a draft, and the target's own next token.

    `accepted` is the path of accepted nodes, from the root. `kind` is "bonus" if the path ended at
    a leaf of the draft (also for a plain step: nothing was rejected) and "recovered" if the target
    chose another token than the children drafted there.
    """

    accepted: tuple[int, ...]
    next_token: int
    kind: VerificationKind

    def output(self, draft: Draft) -> tuple[int, ...]:
        """Return the tokens that this step commits, at least one."""
        if not self.accepted:
            return (self.next_token,)
        return (*(draft.tokens[node] for node in self.accepted), self.next_token)

    def explain(self, detail: StepDetail) -> StepDetail:
        """Return a step's detail with what only the rule that decided knows: here nothing."""
        return detail


@dataclass(frozen=True, slots=True)
class PassReport:
    """The properties of a target's last pass on which its time depends.

    `was_in_flight` says whether the step after the last committed token was in flight before; the
    first token of a draft was then compared with its result. `rows` are the rows fed before the
    choices could be read. After such a comparison they are the positions of the pass that followed,
    0 if none did. `in_flight` says whether the next step is in flight now.
    """

    rows: int
    was_in_flight: bool = False
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token of a reply was.

    These are natural logarithms of probabilities of the model's own distribution, before penalties,
    masks, filters and temperature.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """Ids and log probabilities of the likeliest tokens at its place, the likeliest first."""


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A finished reply.

    `token_ids` are the generated ids, including an end-of-generation id if one was generated;
    `text` has neither it nor a stop text. Of control tokens `text` has only those around reasoning
    (`akunu_py.engine.reasoning`), as the model wrote them; `Tokenizer.decode` of the ids
    leaves them out as well. `decode_s` and `prefill_s` are seconds. `seed` is the one used, so that
    the reply can be repeated. `time_to_first_token_s` counts from before the prefill to the end of
    the first step; None without a step.

    Two things decide whether drafting changed the reply. `exactness` says what the rule that
    accepted drafts keeps unchanged: "stream", the tokens; "distribution", the law they are drawn
    by; "none", neither. `row_bits` says whether a pass over several positions gives each row the
    same bits as a pass over one, with this model on this machine: "equal", no difference was found,
    in texts at least as long as this one, or no pass had a draft or rows of other replies;
    "different": of two tokens that are almost equally likely the other one may have been chosen;
    "unknown": not measured for texts as long as this one, or for its passes.

    `message` is the reply of a chat as a message for its next turn: reasoning, text and complete
    calls apart. It is None for a prompt that was continued. `unfinished_call` is a call that the
    end of the reply cut off; it is not part of the message. The finish reason is "tool_calls" where
    the model ended its reply with calls.

    `logprobs` has one entry for each of `token_ids`; None unless the configuration asks for them.
    `prompt_logprobs` has one entry for each token of the prompt but the first; None unless it was
    scored (`Engine.score`). `stop_text` is the stop text before which the reply ended, None if it
    ended otherwise.

    `constraint_met` says whether the text has the whole form that `constraint` asks for, which it
    may lack where the reply ended early: at `max_tokens`, a stop text or a cancel. None without a
    constraint.

    `time_saved` estimates the share of plain decoding's time that drafting saved, as a range
    (low, high), below 0 if drafting cost time. It is None if nothing was drafted, `draft_budget` is
    "always", or too few drafts were timed so far (`akunu_py.decoding.pass_costs`).
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
    message: Message | None = None
    unfinished_call: UnfinishedCall | None = None
    constraint_met: bool | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_text: str | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Generated tokens per second of decoding; None if no time passed."""
        return len(self.token_ids) / self.decode_s if self.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of tokens of one origin: `source` is named by their drafts, "" for the target's own.

    A draft names each token's origin (`Draft.origins`) or one source for all of them. `place` is
    the index of the prompt's token that the first of them copies (`Draft.places`), -1 if it copies
    none; the others copy those that follow it there. A character whose bytes come from several
    tokens belongs to the one that completes it.
    """

    text: str
    source: str = ""
    place: int = -1
    begin: int = field(default=-1, compare=False)
    """Where it begins in the reply's text; -1 for text that was put in."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """The addition of one step to a reply; the last event also has the result.

    `logprobs` has one entry for each of `token_ids`, if the configuration asks for them. Those of a
    scored prompt come with an event of their own, before the steps.
    The texts of `pieces`, none of them empty, make up `text`; an event without origins has none.
    `deltas` are the additions to the message: `text` without the markers of reasoning and, in a
    chat, of calls. What may yet become a marker comes with a later event.
    """

    text: str
    token_ids: tuple[int, ...]
    step: StepStats | None = None
    result: GenerationResult | None = None
    pieces: tuple[TextPiece, ...] = ()
    deltas: tuple[ReplyDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
