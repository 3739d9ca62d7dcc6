"""Voters on the next token of a chain: their weights and their proposals."""

from dataclasses import dataclass, field

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import Run

MAX_PROPOSALS = 2
MIN_REACH = 0.02  # least probability of the whole chain at which it is extended

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # a match may be this much shorter than the longest (up to 12) to vote

Voter = tuple[int, int]
"""An occurrence: the number of matching tokens, and the position of the token after it."""


@dataclass(slots=True)
class Situation:
    """State of a reply that estimates use besides the text.

    Attributes:
        memory_end: end of the memory's texts; the prompt follows.
        prompt_end: position of the reply's first token.
        bias: bias of this reply, in log-odds.
        streak: tokens predicted right since the last wrong one.
        last_outcome: of the last chain: 0 all right, 1 some, 2 none or nothing proposed.

    """

    memory_end: int = 0
    prompt_end: int = 0
    bias: float = 0.0
    streak: int = 0
    last_outcome: int = 2


@dataclass(slots=True)
class Chain:
    """Candidate tokens in order, each with its probability given that all before are right.

    `runs` are stretches of tokens with one estimate. Token k of the chain was copied from position
    source + k, with the source of its run. `match_length` is the first token's match.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    match_length: int = 0


def voters_of(found: list[Voter]) -> list[Voter]:
    """Return the occurrences, unless their match is much shorter than the longest."""
    floor = min(max(found)[0], 12) - _MATCH_SLACK
    return found if floor <= 1 else [voter for voter in found if voter[0] >= floor]


def proposals(
    proposed: list[int], voters: list[Voter]
) -> tuple[list[tuple[float, int, list[Voter]]], float]:
    """Return the proposals with the most votes, and the weight of all votes.

    `proposed` has the token that each voter proposes. A proposal is (weight of its votes, token,
    voters).
    """
    groups: dict[int, list[Voter]] = {}
    for token, voter in zip(proposed, voters, strict=True):
        if token in groups:
            groups[token].append(voter)
        else:
            groups[token] = [voter]
    options: list[tuple[float, int, list[Voter]]] = []
    total = 0.0
    for token, group in groups.items():
        weight = sum([_VOTE[match] for match, _ in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=_weight_of_option, reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


def _weight_of_option(option: tuple[float, int, list[Voter]]) -> float:
    return option[0]
