"""The chain of likely next tokens: a vote among all earlier occurrences of the last tokens.

Each occurrence proposes what followed it, with a weight that grows threefold with every token that
matches. Of the heaviest proposals the one with the highest estimated probability is taken, and
those occurrences that proposed it go on to vote on the next token.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, tanh

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import (
    PAIR_ROWS,
    PAIR_SHIFT,
    PREVIOUS_ROWS,
    SUSPECT_ROWS,
    TOKEN_ROWS,
    UNSEEN,
    Calibration,
    Run,
)
from akunu_py.drafting.occurrences import OccurrenceIndex

MAX_OCCURRENCES = 32
LONG_MATCH = 24  # after a match of this length a few more occurrences are enough
FURTHER_OCCURRENCES = 4
MAX_PROPOSALS = 4
MIN_REACH = 0.02  # of the whole chain: below it nothing is thought out further

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # matches shorter than the longest (up to 12) by more than this do not vote
_NEAR_VOTE = 9.0  # more weight for an occurrence where copying left off
_NEAR_BEFORE, _NEAR_AFTER = -8, 64

_Voter = tuple[float, int, int]
"""Weight, position of the token after an occurrence, tokens that match."""

_LEAST = -inf


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
    chain = Chain()
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
    """Fill the chain: its early tokens here, one by one, what follows them by `_vote_deep`."""
    tokens, probabilities, runs = chain.tokens, chain.probabilities, chain.runs
    weights, by_token, by_pair = calibration.weights, calibration.by_token, calibration.by_pair
    by_previous = calibration.by_previous
    pointer, memory_end, prompt_end = at.pointer, at.memory_end, at.prompt_end
    streak = f.POSITION[min(at.streak, f.MAX_POSITION)]
    pointer_row = f.POINTER + streak
    streak = f.STREAK + 9 * streak + 3 * at.last_outcome
    earlier = certainty = row = 0
    voters = _voters(found, pointer)
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
            options, total = _proposals(text, voters, k)
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
                e += 8 if _NEAR_BEFORE <= source - pointer <= _NEAR_AFTER else 16
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
            rest = _Rest(text, calibration, at, pointer_row, streak + 1, deep, end)
            rest.vote(chain, voters, reach, longest, floors, pace)
            return


class _Rest:
    """Votes on the tokens behind the early ones.

    Here the features change from stretch to stretch, not from token to token: where all voters
    agree, one estimate serves as many tokens as share its buckets. Tokens that were wrong before,
    after the same token, are estimated each for itself.
    """

    __slots__ = (
        "_at",
        "_deep",
        "_end",
        "_pointer_row",
        "_streak",
        "_suspects",
        "_text",
        "_weights",
    )

    def __init__(  # noqa: PLR0917
        self,
        text: list[int],
        calibration: Calibration,
        at: Situation,
        pointer_row: int,
        streak: int,
        deep: int,
        end: int,
    ) -> None:
        self._text = text
        self._end = end
        self._weights = calibration.weights
        self._suspects = calibration.suspects
        self._at = at
        self._pointer_row = pointer_row
        self._streak = streak
        self._deep = deep

    def vote(  # noqa: PLR0917
        self,
        chain: Chain,
        voters: list[_Voter],
        reach: float,
        longest: int,
        floors: Sequence[float],
        pace: float,
    ) -> None:
        """Extend the chain as `make_chain` says."""
        k = len(chain.tokens)
        while k < longest:
            lead = voters[0]
            m = k + lead[2]
            if len(voters) > 1:
                lead = max(voters)
                m = k + max([voter[2] for voter in voters])
            stretch = self._agreed(voters, k, min(f.match_run[m], f.position_run[k], longest - k))
            if stretch:
                suspect = self._cut_before_suspect(stretch)
                z, of_token = self._estimate(k, m, len(voters), lead[1], f.ALL_AGREE, suspect)
            else:
                decision = self._decide(voters, k)
                if decision is None:
                    return
                z, of_token, token, lead, voters = decision
                stretch = [token]
            p = 0.5 + 0.5 * tanh(0.5 * z)
            count = 0
            ended = False
            for token in stretch:
                if token < 0:
                    ended = True
                    break
                count += 1
                reach *= p
                if reach < MIN_REACH or reach < pace * floors[k + count]:
                    ended = True
                    break
            if count:
                del stretch[count:]
                self._text += stretch
                chain.tokens += stretch
                chain.probabilities += [p] * count
                k += count
                chain.runs.append((k, of_token, lead[1]))
            if ended:
                return

    def _cut_before_suspect(self, stretch: list[int]) -> int | None:
        """Cut a stretch before its first suspect; return the feature of one that begins it."""
        suspects = self._suspects
        previous = self._text[-1]
        for place, token in enumerate(stretch):
            pair = previous << PAIR_SHIFT ^ token
            if pair in suspects:
                del stretch[place or 1 :]
                return None if place else SUSPECT_ROWS[suspects[pair]]
            previous = token
        return None

    def _agreed(self, voters: list[_Voter], k: int, most: int) -> list[int]:
        """Return tokens k, k + 1, ... as far as all voters propose the same, at most `most`."""
        text = self._text
        start = voters[0][1] + k
        piece = text[start : start + most]
        for _, other, _ in voters[1:]:
            start = other + k
            others = text[start : start + len(piece)]
            if others != piece:
                same = 0
                for one, two in zip(piece, others, strict=False):
                    if one != two:
                        break
                    same += 1
                del piece[same:]
        return piece

    def _estimate(  # noqa: PLR0917
        self, k: int, m: int, count: int, source: int, share: int, suspect: int | None
    ) -> tuple[float, tuple[int, ...]]:
        """Return the estimate of token k on the logistic scale, and its features.

        Of `count` voters the longest match is m - k, and the heaviest at `source`; `share` is the
        bucket of their share of the vote, `suspect` the feature of a token that is one.
        """
        at, weights = self._at, self._weights
        a = f.match_row[m] + share
        b = f.position_match[k][m]
        c = f.support_row[count] + f.middle_match[m]
        d = f.REGION_MATCH + (m > 3)
        if source >= at.memory_end:
            d += 2 if source < at.prompt_end else 4
        e = self._pointer_row
        if at.pointer is not None:
            e += 8 if _NEAR_BEFORE <= source - at.pointer <= _NEAR_AFTER else 16
        i = f.DISTANCE + 2 * (self._end - source).bit_length() + (m > 3)
        streak, deep = self._streak, self._deep
        z = (
            at.bias + weights[a] + weights[b] + weights[c] + weights[d] + weights[e]
            + weights[streak] + weights[deep] + weights[i]
        )  # fmt: skip
        if suspect is None:
            return z, (a, b, c, d, e, streak, deep, i)
        return z + weights[suspect], (a, b, c, d, e, streak, deep, i, suspect)

    def _decide(
        self, voters: list[_Voter], k: int
    ) -> tuple[float, tuple[int, ...], int, _Voter, list[_Voter]] | None:
        """Return the proposal most likely to be right: estimate, features, token, lead, voters."""
        options, total = _proposals(self._text, voters, k)
        best = None
        for weight, token, group in options:
            if token < 0:
                continue
            lead = max(group)
            m = k + max([voter[2] for voter in group])
            share = weight / total
            bucket = f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            suspect = self._cut_before_suspect([token])
            z, of_token = self._estimate(k, m, len(group), lead[1], bucket, suspect)
            if best is None or z > best[0]:
                best = z, of_token, token, lead, group
        return best


def _voters(found: list[tuple[int, int]], pointer: int | None) -> list[_Voter]:
    """Weigh the occurrences; those with much shorter matches than the longest do not vote."""
    if len(found) == 1:
        start, length = found[0]
        return [(1.0, start, length)]
    floor = min(max([length for _, length in found]), 12) - _MATCH_SLACK
    if pointer is None:
        return [(_VOTE[length], start, length) for start, length in found if length >= floor]
    low, high = pointer + _NEAR_BEFORE, pointer + _NEAR_AFTER
    return [
        (_VOTE[length] * _NEAR_VOTE if low <= start <= high else _VOTE[length], start, length)
        for start, length in found
        if length >= floor
    ]


def _proposals(
    text: list[int], voters: list[_Voter], k: int
) -> tuple[list[tuple[float, int, list[_Voter]]], float]:
    """Return the heaviest proposals for token k, (weight, token, voters), and all votes' weight."""
    proposed = [text[start + k] for _, start, _ in voters]
    token = proposed[0]
    if proposed.count(token) == len(proposed):
        return [(1.0, token, voters)], 1.0
    groups: dict[int, list[_Voter]] = {}
    for token, voter in zip(proposed, voters, strict=True):
        if token in groups:
            groups[token].append(voter)
        else:
            groups[token] = [voter]
    options: list[tuple[float, int, list[_Voter]]] = []
    total = 0.0
    for token, group in groups.items():
        weight = group[0][0] if len(group) == 1 else sum([voter[0] for voter in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=_weight_of_option, reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


def _weight_of_option(option: tuple[float, int, list[_Voter]]) -> float:
    return option[0]
