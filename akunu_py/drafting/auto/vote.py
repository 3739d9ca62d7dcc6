"""The chain of likely next tokens: a vote among all earlier occurrences of the last tokens.

Each occurrence proposes what followed it, with a weight that grows threefold with every token that
matches. Of the heaviest proposals the one with the highest estimated probability is taken, and
those occurrences that proposed it go on to vote on the next token.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import Calibration, sigmoid
from akunu_py.drafting.occurrences import OccurrenceIndex

MAX_OCCURRENCES = 32
LONG_MATCH = 24  # after a match of this length a few more occurrences are enough
FURTHER_OCCURRENCES = 4
MAX_PROPOSALS = 4
MIN_REACH = 0.02  # of the whole chain: below it nothing is thought out further

_VOTE = [3.0 ** min(length, 12) for length in range(f.MAX_MATCH + 1)]
_MATCH_SLACK = 4  # matches shorter than the longest (up to 12) by more than this do not vote
_NEAR_VOTE = 9.0  # more weight for an occurrence where copying left off
_NEAR = range(-8, 65)

_Voter = tuple[int, int, float]
"""Position of the token after an occurrence, tokens that match, weight."""

_Decision = tuple[int, float, tuple[int, ...], int]
"""A token, its probability and features, and the position its occurrence began to propose at."""


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
    """Candidate tokens in order, and of each: probability, features, and where it was copied from.

    Probabilities are conditional on the tokens before being right. `sources[k] + k` is the position
    that token k was copied from.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    features: list[tuple[int, ...]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
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
    vote = _Vote(text, calibration, at, found)
    k, reach = 0, 1.0
    # The chain is written behind the text, so that a match that runs into the end copies itself.
    try:
        while k < longest:
            piece = vote.agreed(k, longest) if k >= f.EARLY else None
            if piece:
                p, of_token, source = vote.estimate_agreed(k)
            else:
                decision = vote.decide(k)
                if decision is None:
                    break
                token, p, of_token, source = decision
                piece = [token]
            for token in piece:
                if token < 0:
                    return chain
                text.append(token)
                chain.tokens.append(token)
                chain.probabilities.append(p)
                chain.features.append(of_token)
                chain.sources.append(source)
                k += 1
                reach *= p
                if reach < MIN_REACH or reach < pace * floors[k]:
                    return chain
    finally:
        del text[size:]
        chain.match_length = vote.match_length
    return chain


class _Vote:
    """The voters left, and what they propose at each position of a chain."""

    __slots__ = (
        "_at",
        "_calibration",
        "_certainty",
        "_found",
        "_pointer_row",
        "_previous",
        "_row",
        "_streak_row",
        "_text",
        "_voters",
        "match_length",
    )

    def __init__(
        self,
        text: list[int],
        calibration: Calibration,
        at: Situation,
        found: list[tuple[int, int]],
    ) -> None:
        self._text = text
        self._calibration = calibration
        self._at = at
        self._found = found
        self._voters = _voters(found, at.pointer)
        self._previous = text[-1]
        streak = f.POSITION[min(at.streak, f.MAX_POSITION)]
        self._streak_row = f.STREAK + 9 * streak + 3 * at.last_outcome
        self._pointer_row = f.POINTER + streak
        # Buckets of the first token's probability, of the last early one's, and of that before.
        self._row = 0
        self._certainty = 0
        self.match_length = 0

    def decide(self, k: int) -> _Decision | None:
        """Vote on token k: return the proposal most likely to be right, if there is any."""
        text, at, calibration = self._text, self._at, self._calibration
        weights = calibration.weights
        options, total = _proposals(text, self._voters, k)
        early = k < f.EARLY
        streak = self._streak_row + (0 if not k else 1 if early else 2)
        context = at.bias + weights[streak]
        earlier = 0
        if k:
            earlier = (f.EARLIER if early else f.EARLIER_DEEP) + self._row + self._certainty
            context += weights[earlier]
        pointer, pointer_row, position_row = at.pointer, self._pointer_row, f.position_row[k]
        best = -1e9
        of_token: tuple[int, ...] = ()
        for weight, token, group in options:
            if token < 0:
                continue
            lead = group[0]
            source, matched, _ = lead
            if len(group) > 1:
                lead = max(group, key=_weight)
                source = lead[0]
                matched = max(group, key=_matched)[1]
            m = matched + k
            share = weight / total
            a = f.match_row[m]
            a += f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            b = position_row + f.coarse_match[m]
            c = f.support_row[len(group)] + f.middle_match[m]
            region = 0 if source < at.memory_end else 2 if source < at.prompt_end else 4
            d = f.REGION_MATCH + region + (m > 3)
            near = 0 if pointer is None else 8 if source - pointer in _NEAR else 16
            e = pointer_row + near
            z = context + weights[a] + weights[b] + weights[c] + weights[d] + weights[e]
            if not early:
                if z > best:
                    best, of_token = z, (a, b, c, d, e, streak, earlier)
                    chosen, winners, leader = token, group, lead
                continue
            if not k:
                earlier = self._ratio_feature(token, m)
                z += weights[earlier]
            g, h, i = calibration.outcome_features(self._previous, token)
            z += weights[g] + weights[h] + weights[i]
            if z > best:
                best, of_token = z, (a, b, c, d, e, streak, earlier, g, h, i)
                chosen, winners, leader = token, group, lead
        if not of_token:
            return None
        probability = sigmoid(best)
        if early:
            self._certainty = int(probability * f.CERTAINTY_SCALE)
            if not k:
                self._row = f.CERTAINTY * self._certainty
                self.match_length = leader[1]
        self._voters = winners
        self._previous = chosen
        return chosen, probability, of_token, leader[0]

    def agreed(self, k: int, longest: int) -> list[int]:
        """Return tokens k, k + 1, ... that all voters propose and one estimate serves.

        Deep in a chain the features change from run to run, not from token to token. Empty where
        the voters differ.
        """
        text, voters = self._text, self._voters
        lead = voters[0] if len(voters) == 1 else max(voters, key=_weight)
        start = lead[0] + k
        m = k + (lead[1] if len(voters) == 1 else max(voters, key=_matched)[1])
        run = min(f.match_run[m], f.position_run[k], longest - k)
        piece = text[start : start + run]
        if len(voters) > 1:
            run = len(piece)
            for voter in voters:
                if text[voter[0] + k : voter[0] + k + run] != piece:
                    return []
        return piece

    def estimate_agreed(self, k: int) -> tuple[float, tuple[int, ...], int]:
        """Return the probability of each token of a run, its features, and its source."""
        voters, at = self._voters, self._at
        source = max(voters, key=_weight)[0]
        m = k + max(voters, key=_matched)[1]
        region = 0 if source < at.memory_end else 2 if source < at.prompt_end else 4
        near = 0 if at.pointer is None else 8 if source - at.pointer in _NEAR else 16
        of_token = (
            f.match_row[m] + f.ALL_AGREE,
            f.position_row[k] + f.coarse_match[m],
            f.support_row[len(voters)] + f.middle_match[m],
            f.REGION_MATCH + region + (m > 3),
            self._pointer_row + near,
            self._streak_row + 2,
            f.EARLIER_DEEP + self._row + self._certainty,
        )
        weights = self._calibration.weights
        z = at.bias
        for feature in of_token:
            z += weights[feature]
        return sigmoid(z), of_token, source

    def _ratio_feature(self, token: int, matched: int) -> int:
        """Return the feature of how many of all occurrences, voters or not, were followed so."""
        text, found = self._text, self._found
        count = len(found)
        times = 1 if count == 1 else sum(text[position] == token for position, _ in found)
        ratio = bisect_left(f.RATIO_BOUNDS, (times + 0.4) / (count + 0.8))
        return f.RATIO + 10 * ratio + f.ratio_column[count] + (matched > 2)


def _voters(found: list[tuple[int, int]], pointer: int | None) -> list[_Voter]:
    """Weigh the occurrences; those with much shorter matches than the longest do not vote."""
    if len(found) == 1:
        return [(*found[0], 1.0)]
    floor = min(max(found, key=_matched)[1], 12) - _MATCH_SLACK
    if pointer is None:
        return [(start, length, _VOTE[length]) for start, length in found if length >= floor]
    return [
        (start, length, _VOTE[length] * (_NEAR_VOTE if start - pointer in _NEAR else 1.0))
        for start, length in found
        if length >= floor
    ]


def _proposals(
    text: list[int], voters: list[_Voter], k: int
) -> tuple[list[tuple[float, int, list[_Voter]]], float]:
    """Return the heaviest proposals for token k, (weight, token, voters), and all votes' weight."""
    if len(voters) == 1:
        return [(1.0, text[voters[0][0] + k], voters)], 1.0
    groups: dict[int, list[_Voter]] = {}
    for voter in voters:
        token = text[voter[0] + k]
        group = groups.get(token)
        if group is None:
            groups[token] = [voter]
        else:
            group.append(voter)
    if len(groups) == 1:
        return [(1.0, token, voters)], 1.0
    options: list[tuple[float, int, list[_Voter]]] = []
    total = 0.0
    for token, group in groups.items():
        weight = group[0][2] if len(group) == 1 else sum([voter[2] for voter in group])
        total += weight
        options.append((weight, token, group))
    if len(options) > MAX_PROPOSALS:
        options.sort(key=_weight_of_option, reverse=True)
        del options[MAX_PROPOSALS:]
    return options, total


def _matched(occurrence: tuple[int, int] | _Voter) -> int:
    return occurrence[1]


def _weight(voter: _Voter) -> float:
    return voter[2]


def _weight_of_option(option: tuple[float, int, list[_Voter]]) -> float:
    return option[0]
