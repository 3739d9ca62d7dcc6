"""The chain of likely next tokens: a vote among all earlier occurrences of the last tokens.

Each occurrence proposes the token that followed it. Its vote weighs three times as much for every
token that matches, and more where its context resembles the end of the text. Among the proposals
with the most votes, the one with the highest estimated probability joins the chain, and the
occurrences that proposed it vote on the next token.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, tanh
from operator import itemgetter

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import (
    PAIR_ROWS,
    PAIR_SHIFT,
    PREVIOUS_ROWS,
    TOKEN_ROWS,
    UNSEEN,
    Calibration,
)
from akunu_py.drafting.memory import OccurrenceIndex

MAX_PROPOSALS = 2
MIN_REACH = 0.02  # least probability of the whole chain at which it is extended

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # a match may be this much shorter than the longest (up to 12) to vote

# The context of an occurrence: its last tokens, of which those count that the end of the text has,
# too. A longer match speaks for itself.
CONTEXT = 16
LONG_VOTER = 7
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
    if longest >= LONG_VOTER:
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
        groups.setdefault(token, []).append(voter)
    options: list[tuple[float, int, list[Voter]]] = []
    total = 0.0
    for token, group in groups.items():
        weight = sum([_VOTE[match] * _CONTEXT_VOTE[alike] for match, alike, _ in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=itemgetter(0), reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


MAX_OCCURRENCES = 32
LONG_MATCH = 24  # after a match of this length only a few more occurrences are searched
FURTHER_OCCURRENCES = 4

_LEAST = -inf
_NOTHING = Chain()


def make_chain(  # noqa: PLR0917 - called once per pass, where keywords would cost time
    index: OccurrenceIndex,
    calibration: Calibration,
    at: Situation,
    longest: int,
    floors: Sequence[float],
    pace: float,
) -> Chain:
    """Return the most likely chain of at most `longest` tokens.

    It ends where nothing is proposed, and after k tokens if the probability that all of them are
    right is below pace * floors[k], since no longer chain can pay then. `floors` has `longest` + 1
    entries.
    """
    found = index.occurrences(
        MAX_OCCURRENCES, f.MAX_MATCH, enough=LONG_MATCH, further=FURTHER_OCCURRENCES
    )
    if not found:
        return _NOTHING
    chain = Chain([], [], [])
    text = index.tokens
    size = len(text)
    # The chain is appended to the text for now, so that a match that reaches the end of the text
    # goes on with the chain's own tokens.
    try:
        _vote(chain, text, found, calibration, at, longest, floors, pace)
    finally:
        del text[size:]
    return chain


def _vote(  # noqa: PLR0917 - in one piece: calls and attributes would double its time
    chain: Chain,
    text: list[int],
    found: list[tuple[int, int]],
    calibration: Calibration,
    at: Situation,
    longest: int,
    floors: Sequence[float],
    pace: float,
) -> None:
    """Fill the chain.

    The estimate of a proposal is a logistic regression: the log-odds are a sum of weights, one for
    each feature. `context` is the part of the sum that all proposals at a position share. A
    variable named after a feature holds the index of its weight, as laid out in `features`.
    """
    tokens, probabilities = chain.tokens, chain.probabilities
    feature_sets, sources = chain.features, chain.sources
    weights, by_token, by_pair = calibration.weights, calibration.by_token, calibration.by_pair
    by_previous = calibration.by_previous
    memory_end, prompt_end = at.memory_end, at.prompt_end
    streak = f.STREAK + 6 * f.POSITION[min(at.streak, f.MAX_POSITION)] + 2 * at.last_outcome
    earlier = certainty = first_certainty = 0
    voters = voters_of(found, text)
    leader = max(voters)  # the longest match, the likest context, the latest
    proposed = [text[place] for _, _, place in voters]
    followers = proposed if len(voters) == len(found) else [text[place] for _, place in found]
    previous = text[-1]
    end = len(text)
    position, reach = 0, 1.0
    while position < longest:
        # 1. What the voters propose.
        if proposed.count(proposed[0]) == len(proposed):
            options, all_votes = [(1.0, proposed[0], voters)], 1.0
        else:
            options, all_votes = proposals(proposed, voters)
        # 2. The features that the proposals share: the streak, the token before, and how certain
        # the chain's tokens were so far. At position 0 a proposal adds some below.
        after_previous = PREVIOUS_ROWS[by_previous.get(previous, UNSEEN)]
        shared = context = at.bias + weights[streak] + weights[after_previous]
        if position:
            earlier = f.EARLIER + first_certainty + certainty
            context += weights[earlier]
        position_match_of = f.position_match[position]
        best = _LEAST
        best_features: tuple[int, ...] = ()
        for votes, token, supporters in options:
            if token < 0:
                continue  # a separator: the occurrence was the end of its text
            # 3. The features of one proposal: how long its best match is, how many support it, and
            # where the text lies that it copies.
            count = len(supporters)
            if supporters is not voters:
                leader = max(supporters) if count > 1 else supporters[0]
            match, alike, source = leader
            match += position
            share = votes / all_votes
            match_share = f.match_row[match]
            match_share += f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            position_match = position_match_of[match]
            support = f.support_row[count] + f.middle_match[match]
            region = f.REGION_MATCH + (match > 3)
            if source >= memory_end:
                region += 2 if source < prompt_end else 4
            distance = f.DISTANCE + 2 * (end - source).bit_length() + (match > 3)
            if not position:
                # Over all occurrences, voters or not: the token's share, and whether the latest
                # two were followed by it.
                ratio = (followers.count(token) + 0.4) / (len(followers) + 0.8)
                earlier = f.RATIO + 10 * bisect_left(f.RATIO_BOUNDS, ratio)
                earlier += f.ratio_column[len(followers)] + (match > 2)
                recent = f.recent_row[match] + 3 * (followers[0] == token)
                recent += 2 if len(followers) == 1 else followers[1] == token
                similar = f.context_row[match] + f.context_column[alike]
                context = shared + weights[earlier] + (weights[recent] + weights[similar])
            of_token = TOKEN_ROWS[by_token.get(token, UNSEEN)]
            of_pair = PAIR_ROWS[by_pair.get(previous << PAIR_SHIFT ^ token, UNSEEN)]
            # 4. The estimate. The largest wins.
            log_odds = (
                context + weights[match_share] + weights[position_match] + weights[support]
                + weights[region] + weights[of_token] + weights[of_pair]
                + weights[distance]
            )  # fmt: skip
            if log_odds > best:
                best, chosen, winners, best_leader = log_odds, token, supporters, leader
                best_features = (
                    match_share, position_match, support, region, streak, earlier,
                    after_previous, of_token, of_pair, distance,
                )  # fmt: skip
                if not position:
                    best_features += recent, similar
        if best == _LEAST:
            return
        # 5. The winner joins the chain.
        probability = 0.5 + 0.5 * tanh(0.5 * best)
        certainty = int(probability * f.CERTAINTY_SCALE)
        if not position:
            first_certainty = f.CERTAINTY * certainty
            chain.match_length = best_leader[0]
            streak += 1
        text.append(chosen)
        tokens.append(chosen)
        probabilities.append(probability)
        feature_sets.append(best_features)
        sources.append(best_leader[2] + position)
        position += 1
        # 6. Where no longer chain can pay it ends; else its supporters vote on the next token.
        reach *= probability
        if reach < MIN_REACH or reach < pace * floors[position]:
            return
        voters, leader, previous = winners, best_leader, chosen
        proposed = [text[place + position] for _, _, place in voters]
