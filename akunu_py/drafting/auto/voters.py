"""Voters on the next token of a chain: their weights and their proposals."""

from dataclasses import dataclass, field

from akunu_py.drafting.auto import features as f

MAX_PROPOSALS = 2
MIN_REACH = 0.02  # least probability of the whole chain at which it is extended

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # a match may be this much shorter than the longest (up to 12) to vote

# The context of an occurrence: its last tokens, of which those count that the end of the text has,
# too. A longer match speaks for itself.
CONTEXT = 16
LONG_MATCH = 7
_CONTEXT_VOTE = [3.0 ** (0.8 * alike) for alike in range(CONTEXT + 1)]

Voter = tuple[int, int, int]
"""An occurrence: the number of matching tokens, that of different tokens that its context has in
common with the end of the text, and the position of the token after it. So the largest voter has
the longest match, and of several the most similar context, and of these the latest."""


@dataclass(slots=True)
class Situation:
    """State of a reply that estimates use besides the text."""

    memory_end: int = 0
    """End of the memory's texts; the prompt follows."""

    prompt_end: int = 0
    """Position of the reply's first token."""

    bias: float = 0.0
    """Bias of this reply, in log-odds."""

    streak: int = 0
    """Tokens predicted right since the last wrong one."""

    last_outcome: int = 2
    """Of the last chain: 0 all right, 1 some, 2 none or nothing proposed."""


@dataclass(slots=True)
class Chain:
    """Candidate tokens in order, each with its probability given that all before are right.

    `features` are the features of each estimate, and `sources` the positions that the tokens were
    copied from. `match_length` is the first token's match.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    features: list[tuple[int, ...]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    match_length: int = 0


def voters_of(found: list[tuple[int, int]], text: list[int]) -> list[Voter]:
    """Return the occurrences, unless their match is much shorter than the longest.

    Contexts are compared where that can matter: after short matches, and of the longest match
    alone if all occurrences propose the same token.
    """
    longest, latest = max(found)
    floor = min(longest, 12) - _MATCH_SLACK
    voters = [(match, 0, place) for match, place in found if match >= floor]
    if longest >= LONG_MATCH:
        return voters
    common = set(text[-CONTEXT:]).intersection
    token = text[latest]
    for _, _, place in voters:
        if text[place] != token:
            return [
                (match, len(common(text[place - CONTEXT if place > CONTEXT else 0 : place])), place)
                for match, _, place in voters
            ]
    voters[voters.index((longest, 0, latest))] = (
        longest, len(common(text[max(0, latest - CONTEXT) : latest])), latest,
    )  # fmt: skip
    return voters


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
        weight = sum([_VOTE[match] * _CONTEXT_VOTE[alike] for match, alike, _ in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=_weight_of_option, reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


def _weight_of_option(option: tuple[float, int, list[Voter]]) -> float:
    return option[0]
