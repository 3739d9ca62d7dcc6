"""The tokens of a chain behind its first ones."""

from bisect import bisect_left
from collections.abc import Sequence
from math import tanh

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import PAIR_SHIFT, SUSPECT_ROWS, Calibration
from akunu_py.drafting.auto.voters import (
    MIN_REACH,
    NEAR_AFTER,
    NEAR_BEFORE,
    Chain,
    Situation,
    Voter,
    proposals,
)


class Rest:
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
        voters: list[Voter],
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

    def _agreed(self, voters: list[Voter], k: int, most: int) -> list[int]:
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
            e += 8 if NEAR_BEFORE <= source - at.pointer <= NEAR_AFTER else 16
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
        self, voters: list[Voter], k: int
    ) -> tuple[float, tuple[int, ...], int, Voter, list[Voter]] | None:
        """Return the proposal most likely to be right: estimate, features, token, lead, voters."""
        options, total = proposals(self._text, voters, k)
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
