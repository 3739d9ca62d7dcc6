"""Several drafters make one chain: the first confident one begins, and the others go on.

For example, n-grams give a long copy for free, and a draft model is asked where there is nothing to
copy, or for the tokens after the copy. Or the draft model begins and n-grams go on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.api import ConfigError, ContractError, Draft, Drafter, GenerationConfig


@dataclass(frozen=True, slots=True)
class CombinedSource:
    """A drafter of a combination.

    A piece of its draft ends before the first token whose confidence is below `min_confidence`;
    tokens without a confidence are kept. `max_tokens` limits a piece, which is useful for a drafter
    with more expensive tokens than the drafters before it; None is no limit.

    Raises ConfigError for numbers out of range.
    """

    drafter: Drafter
    min_confidence: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafter", Drafter.of(self.drafter))
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is {self.min_confidence!r}; give 0 to 1")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens}; give 1 or more, or None for all")

    def limit(self, room: int) -> int:
        """Return the limit of a piece, given the room in the draft."""
        return room if self.max_tokens is None else min(room, self.max_tokens)

    def piece(self, before: Draft, limit: int) -> Draft:
        """Return the confident part of this drafter's draft after `before`; may be empty."""
        draft = self.drafter.extend(before, limit)
        if not draft.is_chain or len(draft) > limit:
            raise ContractError(
                f"the drafter {draft.source!r} drafted a tree or more than {limit} tokens; a "
                "combination is made of chains within their limit"
            )
        for place, confidence in enumerate(draft.confidence):
            if confidence < self.min_confidence:
                return draft.first(place)
        return draft


class CombinedDrafter(Drafter):
    """One chain from several drafters, most trusted first.

    The sources are asked in order. The first with a confident piece adds it. Then all are asked
    again for the next piece, until there is no room or no source has one. A source that ended its
    piece itself is not asked again before another one went on. Drafters without `extend` can only
    begin. The draft's `source` joins the names of the sources, and `origins` has one per token.

    With the size of a vocabulary it draws for rejection sampling: its sources must then draw with
    independent noise. Drawn pieces have their q, others a one-hot q.

    Raises ConfigError without a source, for numbers out of range, and for a source that draws for
    rejection sampling with a minimal confidence.
    """

    def __init__(
        self,
        sources: Sequence[CombinedSource],
        *,
        num_draft_tokens: int,
        vocabulary_size: int | None = None,
    ) -> None:
        if not sources:
            raise ConfigError("a combination needs at least one drafter")
        if not 0 <= num_draft_tokens <= 64:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 to 64")
        self.sources = tuple(sources)
        self.num_draft_tokens = num_draft_tokens
        self.reads_candidates = any(source.drafter.reads_candidates for source in sources)
        self.draws = vocabulary_size is not None
        if self.draws and any(one.drafter.draws and one.min_confidence > 0 for one in sources):
            raise ConfigError(
                "a drafter whose draws go to rejection sampling cannot be cut by confidence; "
                "give min_confidence 0"
            )
        self._vocabulary_size = vocabulary_size or 0
        self._rows: list[NDArray[np.floating]] = []

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Begin a reply in the sources that need its sampling."""
        for source in self.sources:
            source.drafter.begin_reply(config, seed, check)

    def use_rule(self, rule: Any) -> None:
        """Pass a rule to the sources that ask before each token."""
        for source in self.sources:
            source.drafter.use_rule(rule)

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        for source in self.sources:
            source.drafter.observe_candidates(rows)

    def observe(self, tokens: Sequence[int]) -> None:
        for source in self.sources:
            source.drafter.observe(tokens)

    def propose(self, limit: int) -> Draft:
        limit = min(limit, self.num_draft_tokens)
        self._rows = []
        pieces: list[Draft] = []
        draft = Draft.empty()
        ended: CombinedSource | None = None
        while len(draft) < limit:
            for source in self.sources:
                if source is ended:
                    continue
                most = source.limit(limit - len(draft))
                piece = source.piece(draft, most)
                if len(piece):
                    if self.draws:
                        self._rows.append(self._probabilities(source.drafter, piece))
                    pieces.append(piece)
                    draft = self._join(pieces)
                    ended = source if len(piece) < most else None
                    break
            else:
                break
        return draft

    def _join(self, pieces: Sequence[Draft]) -> Draft:
        tokens = (token for piece in pieces for token in piece.tokens)
        confidence: tuple[float, ...] = ()
        if not self.draws and all(piece.confidence for piece in pieces):
            confidence = tuple(value for piece in pieces for value in piece.confidence)
        names = "+".join(dict.fromkeys(piece.source for piece in pieces))
        match_length = pieces[0].match_length
        origins = tuple(piece.source for piece in pieces for _ in piece.tokens)
        length = next((piece.length for piece in pieces if piece.length), None)
        return Draft.chain(tokens, names, match_length, confidence, origins, length=length)

    def _probabilities(self, drafter: Drafter, piece: Draft) -> NDArray[np.floating]:
        rows = drafter.draft_probabilities()
        if rows is None:
            rows = np.zeros((len(piece), self._vocabulary_size))
            rows[np.arange(len(piece)), list(piece.tokens)] = 1.0
        return rows

    def draft_probabilities(self) -> NDArray[np.floating] | None:
        """Return q of each token of the last draft, [n, vocab]; None if nothing is drawn."""
        if not self.draws:
            return None
        return np.concatenate(self._rows or [np.zeros((0, self._vocabulary_size))])
