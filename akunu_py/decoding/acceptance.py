"""Estimates of how likely drafted tokens are right, learned from the target's choices.

An estimate starts from the drafter's own confidence and moves towards the record of similar drafts:
same source, similar length of match, similar confidence, and a similar share of recent hits.
"""

import bisect
from collections.abc import Sequence

from akunu_py.values.types import Draft

_CONFIDENCE_EDGES = (0.35, 0.6, 0.8, 0.95)
_PRIOR_BY_MATCH = (0.3, 0.4, 0.5, 0.6, 0.75, 0.85)
"""Prior probability of a token after a match of 0-1, 2, 3-4, 5-8, 9-16, 17 and more tokens.

It is averaged with the drafter's confidence, where there is one: few drafters are well calibrated.
"""

_DRAWN = -1
"""Class of tokens that a model drew. They have no match, and the prior of the shortest."""

_COARSE_WEIGHT = 3.0
_FINE_WEIGHT = 6.0
"""Weight of the coarser level's estimate, in outcomes."""

_MEMORY = 200.0
"""Number of outcomes in a cell after which the older ones are halved, because text changes."""

_RECENT_EDGES = (0.25, 0.5, 0.75, 0.9)
_RECENT_DECAY = 0.85
"""Decay of the share of recent hits: about the last seven steps count."""

_Key = tuple[int, ...]


class Acceptance:
    """Estimates the probability that a drafted token is right, given that its ancestors are.

    Outcomes are counted on two levels: by length of match and confidence, and within those by
    position in the draft and share of recent hits. The coarser level is the prior of the finer one
    (a beta prior; Gelman et al., Bayesian Data Analysis, section 2.4). Tokens that a model drew
    have no match, and their positions begin behind the copied tokens.

    A confidence below 0 means that it is not known yet.

    Every draft counts, verified or not, because the target's choice in its place becomes known
    anyway.
    """

    def __init__(self) -> None:
        # A table for each source; its cells are (right outcomes, all outcomes).
        self._tables: dict[str, dict[_Key, list[float]]] = {}
        self.recent = 0.5
        """Share of recent hits among drafted tokens, decayed by `_RECENT_DECAY`."""

    def begin_reply(self) -> "Acceptance":
        """Return the same record for a further reply, with recent hits of its own."""
        found = Acceptance()
        found._tables = self._tables
        return found

    def probabilities(self, draft: Draft) -> list[float]:
        """Return the probability of each token, given its ancestors."""
        table = self._tables.setdefault(draft.source, {})
        match = _match_class(draft.match_length)
        copied = len(draft) - draft.drawn
        recent = bisect.bisect_right(_RECENT_EDGES, self.recent)
        found: list[float] = []
        for node, position in enumerate(draft.depths()):
            if node == copied:
                match = _DRAWN
            confidence = draft.confidence[node] if draft.confidence else -1.0
            level = _confidence_class(confidence)
            probability = _PRIOR_BY_MATCH[max(match, 0)]
            if confidence >= 0:
                probability = (probability + min(confidence, 1.0)) / 2
            cell = table.get((match, level))
            if cell is not None:
                probability = _blend_prior(cell, probability, _COARSE_WEIGHT)
                place = position if node < copied else position - copied
                cell = table.get((match, level, _position_class(place), recent))
                if cell is not None:
                    probability = _blend_prior(cell, probability, _FINE_WEIGHT)
            found.append(probability)
        return found

    def observe(self, draft: Draft, chosen: Sequence[int]) -> None:
        """Count a draft's hits and misses against the tokens that the target chose.

        In a tree every child of a node on the target's path is an outcome.
        """
        table = self._tables.setdefault(draft.source, {})
        match = _match_class(draft.match_length)
        copied = len(draft) - draft.drawn
        recent = bisect.bisect_right(_RECENT_EDGES, self.recent)
        for position, (siblings, taken) in enumerate(draft.walk(chosen)):
            place = _position_class(position)
            if draft.drawn and position >= copied:
                match, place = _DRAWN, _position_class(position - copied)
            for node in siblings:
                right = node == taken
                confidence = draft.confidence[node] if draft.confidence else -1.0
                # And the record of tokens before they are drafted, when no confidence is known.
                for level in {_confidence_class(confidence), -1}:
                    _count(table, (match, level), right)
                    _count(table, (match, level, place, recent), right)
            followed = taken is not None
            self.recent = _RECENT_DECAY * self.recent + (1 - _RECENT_DECAY) * followed


def match_for(probability: float) -> int | None:
    """Return the shortest match whose prior reaches a probability, or None."""
    for kind, prior in enumerate(_PRIOR_BY_MATCH):
        if prior >= probability:
            return 2 ** (kind - 1) + 1 if kind > 1 else kind + 1
    return None


def _blend_prior(cell: list[float], prior: float, weight: float) -> float:
    return (cell[0] + weight * prior) / (cell[1] + weight)


def _count(table: dict[_Key, list[float]], key: _Key, right: bool) -> None:
    cell = table.get(key)
    if cell is None:
        cell = table[key] = [0.0, 0.0]
    cell[0] += right
    cell[1] += 1
    if cell[1] > _MEMORY:
        cell[0] /= 2
        cell[1] /= 2


def _match_class(length: int) -> int:
    return min(max(length - 1, 0).bit_length(), len(_PRIOR_BY_MATCH) - 1)


def _confidence_class(confidence: float) -> int:
    return bisect.bisect_right(_CONFIDENCE_EDGES, confidence) if confidence >= 0 else -1


def _position_class(position: int) -> int:
    return min(position, 7).bit_length()
