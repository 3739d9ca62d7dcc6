"""Who votes on the next token of a chain, with what weight, and what they propose."""

from dataclasses import dataclass, field

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import Run

MAX_PROPOSALS = 4
MIN_REACH = 0.02  # of the whole chain: below it nothing is thought out further

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # matches shorter than the longest (up to 12) by more than this do not vote
_NEAR_VOTE = 9.0  # more weight for an occurrence where copying left off
NEAR_BEFORE, NEAR_AFTER = -8, 64

Voter = tuple[float, int, int]
"""Weight, position of the token after an occurrence, tokens that match."""


@dataclass(slots=True)
class Situation:
    """What an estimate rests on besides the text.

    Attributes:
        memory_end: position before which the text is that of earlier replies.
        prompt_end: position of the reply's first token.
        bias: of this reply, on the logistic scale.
        streak: tokens predicted right since the last wrong one.
        last_outcome: of the last chain; 0 all right, 1 some, 2 none, or nothing to propose.
        pointer: position after the last token that was copied rightly, where there is one.

    """

    memory_end: int = 0
    prompt_end: int = 0
    bias: float = 0.0
    streak: int = 0
    last_outcome: int = 2
    pointer: int | None = None


@dataclass(slots=True)
class Chain:
    """Candidate tokens in order, and of each its probability, given that those before are right.

    `runs` are stretches of tokens with one estimate; the source of a run + k is the position that
    token k was copied from.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    match_length: int = 0


def voters_of(found: list[tuple[int, int]], pointer: int | None) -> list[Voter]:
    """Weigh the occurrences; those with much shorter matches than the longest do not vote."""
    if len(found) == 1:
        start, length = found[0]
        return [(1.0, start, length)]
    floor = min(max([length for _, length in found]), 12) - _MATCH_SLACK
    if pointer is None:
        return [(_VOTE[length], start, length) for start, length in found if length >= floor]
    low, high = pointer + NEAR_BEFORE, pointer + NEAR_AFTER
    return [
        (_VOTE[length] * _NEAR_VOTE if low <= start <= high else _VOTE[length], start, length)
        for start, length in found
        if length >= floor
    ]


def proposals(
    text: list[int], voters: list[Voter], k: int
) -> tuple[list[tuple[float, int, list[Voter]]], float]:
    """Return the heaviest proposals for token k, (weight, token, voters), and all votes' weight."""
    proposed = [text[start + k] for _, start, _ in voters]
    token = proposed[0]
    if proposed.count(token) == len(proposed):
        return [(1.0, token, voters)], 1.0
    groups: dict[int, list[Voter]] = {}
    for token, voter in zip(proposed, voters, strict=True):
        if token in groups:
            groups[token].append(voter)
        else:
            groups[token] = [voter]
    options: list[tuple[float, int, list[Voter]]] = []
    total = 0.0
    for token, group in groups.items():
        weight = group[0][0] if len(group) == 1 else sum([voter[0] for voter in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=_weight_of_option, reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


def _weight_of_option(option: tuple[float, int, list[Voter]]) -> float:
    return option[0]
