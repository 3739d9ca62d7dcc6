"""The chain of likely next tokens: a vote among all earlier occurrences of the last tokens.

Each occurrence proposes what followed it, with a weight that grows threefold with every token that
matches. Of the heaviest proposals the one with the highest estimated probability is taken, and
those occurrences that proposed it go on to vote on the next token.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, tanh

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import (
    PAIR_ROWS,
    PAIR_SHIFT,
    PREVIOUS_ROWS,
    TOKEN_ROWS,
    UNSEEN,
    Calibration,
)
from akunu_py.drafting.auto.rest import Rest
from akunu_py.drafting.auto.voters import (
    MIN_REACH,
    NEAR_AFTER,
    NEAR_BEFORE,
    Chain,
    Situation,
    proposals,
    voters_of,
)
from akunu_py.drafting.occurrences import OccurrenceIndex

MAX_OCCURRENCES = 32
LONG_MATCH = 24  # after a match of this length a few more occurrences are enough
FURTHER_OCCURRENCES = 4

_LEAST = -inf


def make_chain(  # noqa: PLR0917 - once a pass, where keywords would cost
    index: OccurrenceIndex,
    calibration: Calibration,
    at: Situation,
    longest: int,
    floors: Sequence[float],
    pace: float,
) -> Chain:
    """Return the most likely chain of at most `longest` tokens.

    It ends where nothing is proposed, and where after k tokens the probability that all are right
    is below pace * floors[k]: no longer chain can pay then. `floors` has `longest` + 1 entries.
    """
    chain = Chain([], [], [])
    found = index.occurrences(
        MAX_OCCURRENCES, f.MAX_MATCH, enough=LONG_MATCH, further=FURTHER_OCCURRENCES
    )
    if not found:
        return chain
    text = index.tokens
    size = len(text)
    # The chain is written behind the text, so that a match that runs into the end copies itself.
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
    """Fill the chain: its early tokens here, one by one, what follows them by `Rest`.

    A proposal's estimate is a logistic regression: the sum of one weight for each feature. The
    features of a position are summed once (`context`), those of a proposal for each. A variable
    named after a feature is the index of its weight, as `features` lays the tables out.
    """
    tokens, probabilities, runs = chain.tokens, chain.probabilities, chain.runs
    weights, by_token, by_pair = calibration.weights, calibration.by_token, calibration.by_pair
    by_previous = calibration.by_previous
    pointer, memory_end, prompt_end = at.pointer, at.memory_end, at.prompt_end
    streak_bucket = f.POSITION[min(at.streak, f.MAX_POSITION)]
    no_pointer = f.POINTER + streak_bucket
    streak = f.STREAK + 9 * streak_bucket + 3 * at.last_outcome
    earlier = certainty = first_certainty = 0
    voters = voters_of(found, pointer)
    previous = text[-1]
    end = len(text)
    nexts = [text[place] for place, _ in found]
    position, reach = 0, 1.0
    while position < longest:
        after_previous = PREVIOUS_ROWS[by_previous.get(previous, UNSEEN)]
        context = at.bias + weights[streak] + weights[after_previous]
        all_votes = 1.0
        if len(voters) == 1:
            options = [(1.0, text[voters[0][1] + position], voters)]
        else:
            options, all_votes = proposals(text, voters, position)
        if position:
            earlier = f.EARLIER + first_certainty + certainty
            context += weights[earlier]
        position_match_of = f.position_match[position]
        best = _LEAST
        best_features: tuple[int, ...] = ()
        for votes, token, supporters in options:
            if token < 0:
                continue
            leader = supporters[0]
            count = len(supporters)
            match = leader[2] + position
            if count > 1:
                leader = max(supporters)
                match = max([voter[2] for voter in supporters]) + position
            source = leader[1]
            share = votes / all_votes
            match_share = f.match_row[match]
            match_share += f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            position_match = position_match_of[match]
            support = f.support_row[count] + f.middle_match[match]
            region = f.REGION_MATCH + (match > 3)
            if source >= memory_end:
                region += 2 if source < prompt_end else 4
            near_pointer = no_pointer
            if pointer is not None:
                near_pointer += 8 if NEAR_BEFORE <= source - pointer <= NEAR_AFTER else 16
            distance = f.DISTANCE + 2 * (end - source).bit_length() + (match > 3)
            if not position:
                ratio = (nexts.count(token) + 0.4) / (len(nexts) + 0.8)
                earlier = f.RATIO + 10 * bisect_left(f.RATIO_BOUNDS, ratio)
                earlier += f.ratio_column[len(nexts)] + (match > 2)
                recent = f.recent_row[match] + 3 * (nexts[0] == token)
                recent += 2 if len(nexts) == 1 else nexts[1] == token
                context = at.bias + weights[streak] + weights[after_previous] + weights[earlier]
                context += weights[recent]
            of_token = TOKEN_ROWS[by_token.get(token, UNSEEN)]
            of_pair = PAIR_ROWS[by_pair.get(previous << PAIR_SHIFT ^ token, UNSEEN)]
            log_odds = (
                context + weights[match_share] + weights[position_match] + weights[support]
                + weights[region] + weights[near_pointer] + weights[of_token] + weights[of_pair]
                + weights[distance]
            )  # fmt: skip
            if log_odds > best:
                best, chosen, winners, source_of_best = log_odds, token, supporters, leader
                best_features = (
                    match_share, position_match, support, region, near_pointer, streak, earlier,
                    after_previous, of_token, of_pair, distance,
                )  # fmt: skip
                if not position:
                    best_features += (recent,)
        if best == _LEAST:
            return
        probability = 0.5 + 0.5 * tanh(0.5 * best)
        certainty = int(probability * f.CERTAINTY_SCALE)
        if not position:
            first_certainty = f.CERTAINTY * certainty
            chain.match_length = source_of_best[2]
            streak += 1
        text.append(chosen)
        tokens.append(chosen)
        probabilities.append(probability)
        position += 1
        runs.append((position, best_features, source_of_best[1]))
        reach *= probability
        if reach < MIN_REACH or reach < pace * floors[position]:
            return
        voters, previous = winners, chosen
        if position == f.EARLY:
            deep = f.EARLIER_DEEP + first_certainty + certainty
            rest = Rest(text, calibration, at, no_pointer, streak + 1, deep, end)
            rest.vote(chain, voters, reach, longest, floors, pace)
            return
