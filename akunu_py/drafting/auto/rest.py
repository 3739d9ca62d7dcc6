"""The tokens of a chain after the early ones."""

from bisect import bisect_left
from collections.abc import Sequence
from math import tanh

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.voters import (
    MIN_REACH,
    Chain,
    Situation,
    Voter,
    proposals,
)


class Rest:
    """Votes on the tokens after the early ones.

    Their features change from stretch to stretch instead of from token to token. Where all voters
    agree, one estimate serves all tokens that share its buckets.
    """

    __slots__ = (
        "_at",
        "_deep",
        "_end",
        "_streak",
        "_text",
        "_weights",
    )

    def __init__(  # noqa: PLR0917 - called once per pass, where keywords would cost time
        self,
        text: list[int],
        calibration: Calibration,
        at: Situation,
        streak: int,
        deep: int,
        end: int,
    ) -> None:
        self._text = text
        self._end = end
        self._weights = calibration.weights
        self._at = at
        self._streak = streak
        self._deep = deep

    def vote(  # noqa: PLR0917 - called once per pass, where keywords would cost time
        self,
        chain: Chain,
        voters: list[Voter],
        leader: Voter,
        reach: float,
        longest: int,
        floors: Sequence[float],
        pace: float,
    ) -> None:
        """Extend the chain as `make_chain` says.

        `leader` is the largest voter.
        """
        position = len(chain.tokens)
        while position < longest:
            match = position + leader[0]
            same_buckets = min(f.match_run[match], f.position_run[position], longest - position)
            stretch = self._agreed(voters, position, same_buckets)
            if stretch:
                log_odds, run_features = self._estimate(
                    position, match, len(voters), leader[2], f.ALL_AGREE
                )
            else:
                decision = self._decide(voters, position)
                if decision is None:
                    return
                log_odds, run_features, token, leader, voters = decision
                stretch = [token]
            probability = 0.5 + 0.5 * tanh(0.5 * log_odds)
            count = 0
            ended = False
            for token in stretch:
                if token < 0:
                    ended = True
                    break
                count += 1
                reach *= probability
                if reach < MIN_REACH or reach < pace * floors[position + count]:
                    ended = True
                    break
            if count:
                del stretch[count:]
                self._text += stretch
                chain.tokens += stretch
                chain.probabilities += [probability] * count
                position += count
                chain.runs.append((position, run_features, leader[2]))
            if ended:
                return

    def _agreed(self, voters: list[Voter], position: int, most: int) -> list[int]:
        """Return the tokens from `position` on that all voters propose, at most `most`."""
        text = self._text
        start = voters[0][2] + position
        piece = text[start : start + most]
        for _, _, other in voters[1:]:
            start = other + position
            others = text[start : start + len(piece)]
            if others != piece:
                same = 0
                for one, two in zip(piece, others, strict=False):
                    if one != two:
                        break
                    same += 1
                del piece[same:]
        return piece

    def _estimate(
        self, position: int, match: int, count: int, source: int, share: int
    ) -> tuple[float, tuple[int, ...]]:
        """Return the log-odds of the token at `position`, and its features.

        `match` is the longest match of its `count` voters, the chain's tokens included; `source` is
        the occurrence of their leader; `share` is the bucket of their share of the vote.
        """
        at, weights = self._at, self._weights
        match_share = f.match_row[match] + share
        position_match = f.position_match[position][match]
        support = f.support_row[count] + f.middle_match[match]
        region = f.REGION_MATCH + (match > 3)
        if source >= at.memory_end:
            region += 2 if source < at.prompt_end else 4
        distance = f.DISTANCE + 2 * (self._end - source).bit_length() + (match > 3)
        streak, deep = self._streak, self._deep
        log_odds = (
            at.bias + weights[match_share] + weights[position_match] + weights[support]
            + weights[region] + weights[streak] + weights[deep]
            + weights[distance]
        )  # fmt: skip
        found = (
            match_share, position_match, support, region, streak, deep, distance,
        )  # fmt: skip
        return log_odds, found

    def _decide(
        self, voters: list[Voter], position: int
    ) -> tuple[float, tuple[int, ...], int, Voter, list[Voter]] | None:
        """Return the likeliest proposal: log-odds, features, token, leader and supporters."""
        text = self._text
        proposed = [text[place + position] for _, _, place in voters]
        options, all_votes = proposals(proposed, voters)
        best = None
        for votes, token, supporters in options:
            if token < 0:
                continue
            leader = max(supporters)
            match = position + leader[0]
            share = votes / all_votes
            bucket = f.ALL_AGREE if share >= 0.995 else bisect_left(f.SHARE_BOUNDS, share)
            log_odds, found = self._estimate(position, match, len(supporters), leader[2], bucket)
            if best is None or log_odds > best[0]:
                best = log_odds, found, token, leader, supporters
        return best
