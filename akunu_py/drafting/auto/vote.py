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
    """Fill the chain: its early tokens here, one by one, what follows them by `Rest`."""
    tokens, probabilities, runs = chain.tokens, chain.probabilities, chain.runs
    weights, by_token, by_pair = calibration.weights, calibration.by_token, calibration.by_pair
    by_previous = calibration.by_previous
    pointer, memory_end, prompt_end = at.pointer, at.memory_end, at.prompt_end
    streak = f.POSITION[min(at.streak, f.MAX_POSITION)]
    pointer_row = f.POINTER + streak
    streak = f.STREAK + 9 * streak + 3 * at.last_outcome
    earlier = certainty = row = 0
    voters = voters_of(found, pointer)
    previous = text[-1]
    end = len(text)
    nexts = [text[position] for position, _ in found]
    k, reach = 0, 1.0
    while k < longest:
        before = PREVIOUS_ROWS[by_previous.get(previous, UNSEEN)]
        context = at.bias + weights[streak] + weights[before]
        total = 1.0
        if len(voters) == 1:
            options = [(1.0, text[voters[0][1] + k], voters)]
        else:
            options, total = proposals(text, voters, k)
        if k:
            earlier = f.EARLIER + row + certainty
            context += weights[earlier]
        position_of = f.position_match[k]
        best = _LEAST
        of_token: tuple[int, ...] = ()
        for weight, token, group in options:
            if token < 0:
                continue
            lead = group[0]
            count = len(group)
            m = lead[2] + k
            if count > 1:
                lead = max(group)
                m = max([voter[2] for voter in group]) + k
            source = lead[1]
            share = weight / total
            a = f.match_row[m]
            a += f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            b = position_of[m]
            c = f.support_row[count] + f.middle_match[m]
            d = f.REGION_MATCH + (m > 3)
            if source >= memory_end:
                d += 2 if source < prompt_end else 4
            e = pointer_row
            if pointer is not None:
                e += 8 if NEAR_BEFORE <= source - pointer <= NEAR_AFTER else 16
            i = f.DISTANCE + 2 * (end - source).bit_length() + (m > 3)
            if not k:
                times = (nexts.count(token) + 0.4) / (len(nexts) + 0.8)
                earlier = f.RATIO + 10 * bisect_left(f.RATIO_BOUNDS, times)
                earlier += f.ratio_column[len(nexts)] + (m > 2)
                recent = f.recent_row[m] + 3 * (nexts[0] == token)
                recent += 2 if len(nexts) == 1 else nexts[1] == token
                context = at.bias + weights[streak] + weights[before] + weights[earlier]
                context += weights[recent]
            g = TOKEN_ROWS[by_token.get(token, UNSEEN)]
            h = PAIR_ROWS[by_pair.get(previous << PAIR_SHIFT ^ token, UNSEEN)]
            z = (
                context + weights[a] + weights[b] + weights[c] + weights[d] + weights[e]
                + weights[g] + weights[h] + weights[i]
            )  # fmt: skip
            if z > best:
                best, chosen, winners, leader = z, token, group, lead
                of_token = (a, b, c, d, e, streak, earlier, before, g, h, i)
                if not k:
                    of_token += (recent,)
        if best == _LEAST:
            return
        p = 0.5 + 0.5 * tanh(0.5 * best)
        certainty = int(p * f.CERTAINTY_SCALE)
        if not k:
            row = f.CERTAINTY * certainty
            chain.match_length = leader[2]
            streak += 1
        text.append(chosen)
        tokens.append(chosen)
        probabilities.append(p)
        k += 1
        runs.append((k, of_token, leader[1]))
        reach *= p
        if reach < MIN_REACH or reach < pace * floors[k]:
            return
        voters, previous = winners, chosen
        if k == f.EARLY:
            deep = f.EARLIER_DEEP + row + certainty
            rest = Rest(text, calibration, at, pointer_row, streak + 1, deep, end)
            rest.vote(chain, voters, reach, longest, floors, pace)
            return
