"""Several drafters make one chain: the first confident one begins, and the others go on.

For example, n-grams give a long copy for free, and a draft model is asked where there is nothing to
copy, or for the tokens after the copy. Or the draft model begins and n-grams go on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError, ContractError
from akunu_py.protocols import (
    CandidateObserver,
    Drafter,
    DrawnToken,
    Extender,
    ReplyDrafter,
    SampledDrafter,
    TokenByToken,
)
from akunu_py.types import Draft, GenerationConfig


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A token of another source; its probability is -1 without a confidence."""

    probability: float


@dataclass(frozen=True, slots=True)
class Source:
    """A drafter of a combination.

    A piece of its draft ends before the first token whose confidence is below `min_confidence`;
    tokens without a confidence are kept. `max_tokens` limits a piece, which is useful for a drafter
    with dearer tokens than the drafters before it; None is no limit.

    Raises ConfigError for numbers out of range.
    """

    drafter: Drafter
    min_confidence: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is {self.min_confidence!r}; give 0 to 1")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; give 1 or more, or None for all")

    def limit(self, room: int) -> int:
        """Return the limit of a piece, given the room in the draft."""
        return room if self.max_tokens is None else min(room, self.max_tokens)

    def piece(self, drafted: Sequence[int], limit: int) -> Draft:
        """Return the confident part of this drafter's draft after `drafted`; may be empty."""
        if isinstance(self.drafter, Extender):
            draft = self.drafter.extend(drafted, limit)
        elif not drafted:
            draft = self.drafter.propose(limit)
        else:
            return Draft.empty()
        if not draft.is_chain or len(draft) > limit:
            raise ContractError(
                f"the drafter {draft.source!r} drafted a tree or more than {limit} tokens; a "
                "combination is made of chains within their limit"
            )
        for place, confidence in enumerate(draft.confidence):
            if confidence < self.min_confidence:
                return draft.first(place)
        return draft


class CombinedDrafter:
    """Chains from several drafters; made by `combine`.

    The sources are asked in order. The first with a confident piece adds it. Then all are asked
    again for the next piece, until there is no room or no source has one. A source that ended its
    piece itself is not asked again before another one went on. Drafters without `extend` can only
    begin. The draft's `source` joins the names of the sources, and `origins` has one per token.
    """

    def __init__(self, sources: Sequence[Source], *, num_draft_tokens: int) -> None:
        if not sources:
            raise ConfigError("a combination needs at least one drafter")
        if not 0 <= num_draft_tokens <= 64:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 to 64")
        self.sources = tuple(sources)
        self.num_draft_tokens = num_draft_tokens
        self._pieces: list[Draft] = []

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Begin a reply in the sources that need its sampling."""
        for source in self.sources:
            if isinstance(source.drafter, ReplyDrafter):
                source.drafter.begin_reply(config, seed, check)

    def add_rule(self, rule: Callable[[Sequence[DrawnToken]], bool]) -> None:
        """Add a rule for the sources that ask before each token.

        The rule also sees the tokens that other sources drafted before.
        """
        for source in self.sources:
            if isinstance(source.drafter, TokenByToken):
                source.drafter.add_rule(lambda drawn: rule((*self._drafted(), *drawn)))

    def observe(self, tokens: Sequence[int]) -> None:
        """Pass committed tokens to every source."""
        for source in self.sources:
            source.drafter.observe(tokens)

    def propose(self, limit: int) -> Draft:
        """Draft at most min(limit, num_draft_tokens) tokens."""
        limit = min(limit, self.num_draft_tokens)
        self._begin()
        tokens: list[int] = []
        ended: Source | None = None
        while len(tokens) < limit:
            for source in self.sources:
                if source is ended:
                    continue
                most = source.limit(limit - len(tokens))
                piece = source.piece(tokens, most)
                if len(piece):
                    tokens += piece.tokens
                    self._take(source, piece)
                    ended = source if len(piece) < most else None
                    break
            else:
                break
        return self._draft(tokens)

    def _begin(self) -> None:
        self._pieces = []

    def _take(self, source: Source, piece: Draft) -> None:  # noqa: ARG002 - see below
        self._pieces.append(piece)

    def _drafted(self) -> list[_Drafted]:
        return [
            _Drafted(probability)
            for piece in self._pieces
            for probability in piece.confidence or [-1.0] * len(piece)
        ]

    def _draft(self, tokens: list[int]) -> Draft:
        pieces = self._pieces
        confidence: tuple[float, ...] = ()
        if all(piece.confidence for piece in pieces):
            confidence = tuple(value for piece in pieces for value in piece.confidence)
        names = "+".join(dict.fromkeys(piece.source for piece in pieces))
        match_length = pieces[0].match_length if pieces else 0
        origins = tuple(piece.source for piece in pieces for _ in piece.tokens)
        length = next((piece.length for piece in pieces if piece.length), None)
        return Draft.chain(tokens, names, match_length, confidence, origins, length=length)


class _SampledCombination(CombinedDrafter):
    """A combination for rejection sampling: drawn pieces have their q, others a one-hot q."""

    def __init__(
        self, sources: Sequence[Source], *, num_draft_tokens: int, vocabulary_size: int
    ) -> None:
        super().__init__(sources, num_draft_tokens=num_draft_tokens)
        for source in sources:
            if isinstance(source.drafter, SampledDrafter) and source.min_confidence > 0:
                raise ConfigError(
                    "a drafter whose draws go to rejection sampling cannot be cut by confidence; "
                    "give min_confidence 0"
                )
        self.vocabulary_size = vocabulary_size
        self._rows: list[NDArray[np.floating]] = []

    def draft_probabilities(self) -> NDArray[np.floating]:
        """Return q of each token of the last draft, [n, vocab]."""
        if not self._rows:
            return np.zeros((0, self.vocabulary_size))
        return np.concatenate(self._rows)

    def _begin(self) -> None:
        super()._begin()
        self._rows = []

    def _take(self, source: Source, piece: Draft) -> None:
        super()._take(source, piece)
        rows = None
        if isinstance(source.drafter, SampledDrafter):
            rows = source.drafter.draft_probabilities()
        if rows is None:
            rows = np.zeros((len(piece), self.vocabulary_size))
            rows[np.arange(len(piece)), list(piece.tokens)] = 1.0
        self._rows.append(rows)

    def _draft(self, tokens: list[int]) -> Draft:
        return replace(super()._draft(tokens), confidence=())


class _CandidateDrafter(CombinedDrafter):
    """A combination with a source that observes the target's candidates."""

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass the rows to the sources that observe candidates."""
        for source in self.sources:
            if isinstance(source.drafter, CandidateObserver):
                source.drafter.observe_candidates(rows)


class _SampledCandidateDrafter(_CandidateDrafter, _SampledCombination):
    """A combination for rejection sampling with a source that observes candidates."""


def combine(
    sources: Sequence[Source], *, num_draft_tokens: int, vocabulary_size: int | None = None
) -> CombinedDrafter:
    """Make one drafter of several, most trusted first.

    It is a `CandidateObserver` if a source is one. With the size of a vocabulary it is a
    `SampledDrafter` for rejection sampling; its sources must then draw with independent noise.
    Raises ConfigError without a source, for numbers out of range, and for a source that draws for
    rejection sampling with a minimal confidence.
    """
    learns = any(isinstance(source.drafter, CandidateObserver) for source in sources)
    if vocabulary_size is None:
        plain = _CandidateDrafter if learns else CombinedDrafter
        return plain(sources, num_draft_tokens=num_draft_tokens)
    sampled = _SampledCandidateDrafter if learns else _SampledCombination
    return sampled(sources, num_draft_tokens=num_draft_tokens, vocabulary_size=vocabulary_size)
