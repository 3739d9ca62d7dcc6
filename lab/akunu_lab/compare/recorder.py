"""Records a reply that another program makes."""

import time
from collections.abc import Sequence
from typing import Any

from akunu_py.api import ContractError, DecodeStats, MeasuredReply, Pass


class Recorder:
    """Records tokens and times of a reply that another program makes in this process.

    Args:
        max_tokens: number of tokens after which a reply ends.
        end_ids: ids that end it.

    """

    def __init__(self, max_tokens: int, end_ids: frozenset[int]) -> None:
        self.max_tokens = max_tokens
        self.end_ids = end_ids
        self._token_ids: list[int] = []
        self._passes: list[Pass] = []
        self._started = self._first = self._last = 0.0
        self._over = False

    def start(self) -> None:
        """Start the clock: the prompt's ids are ready, and no pass over them has begun."""
        self._started = time.perf_counter()

    def take(
        self, token_ids: Sequence[int], *, num_drafted: int = 0, num_accepted: int = 0
    ) -> bool:
        """Record the tokens of a pass once they are on the host; return whether the reply is over.

        `num_drafted` tokens were drafted for the pass, and the first `num_accepted` of its tokens
        were accepted drafts. Tokens after an end id or beyond `max_tokens` are dropped, as are all
        tokens after the end of the reply.
        """
        now = time.perf_counter()
        if self._over or not token_ids:
            return self._over
        kept = self._kept(token_ids)
        if not self._passes:
            self._first = now
        self._last = now
        self._token_ids += token_ids[:kept]
        self._passes.append(Pass(num_drafted, min(num_accepted, kept), kept))
        return self._over

    def _kept(self, token_ids: Sequence[int]) -> int:
        """Return the number of tokens that belong to the reply, and note whether it ends."""
        room = self.max_tokens - len(self._token_ids)
        for count, token in enumerate(token_ids[:room], start=1):
            if token in self.end_ids:
                self._over = True
                return count
        self._over = len(token_ids) >= room
        return min(room, len(token_ids))

    def reply(self, **more: Any) -> MeasuredReply:
        """Return the reply, with further fields; raises ContractError if it has no token."""
        if not self._passes:
            raise ContractError("the arm returned no token")
        return MeasuredReply(
            token_ids=tuple(self._token_ids),
            num_first=self._passes[0].tokens,
            first_s=self._first - self._started,
            decode_s=self._last - self._first,
            stats=DecodeStats(
                steps=len(self._passes),
                steps_with_draft=sum(done.drafted > 0 for done in self._passes),
                drafted=sum(done.drafted for done in self._passes),
                accepted=sum(done.accepted for done in self._passes),
                output_tokens=len(self._token_ids),
            ),
            passes=tuple(self._passes),
            **more,
        )
