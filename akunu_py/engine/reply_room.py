"""How many replies memory holds at once."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from akunu_py.models.memory_check import USUAL_CONTEXT, MemoryNeeds, available_memory
from akunu_py.system.errors import AkunuError, ConfigError, MemoryLimitError

_log = logging.getLogger(__name__)

_USUAL = 8
"""Replies made at once where nobody says how many: more bring little, and each takes memory."""


@dataclass(frozen=True, slots=True)
class ReplyRoom:
    """The memory for replies of an engine that are made at once.

    `needs` is the memory that they take; None leaves the check out. `context` is the one that the
    engine was given; without it a reply counts with USUAL_CONTEXT tokens, its prompt included.
    """

    needs: MemoryNeeds | None = None
    context: int | None = None
    available: Callable[[], int] = available_memory

    def usual(self, tokens: int | None = None) -> int:
        """Return how many replies to make at once where nobody says it, each of `tokens` tokens."""
        return max(1, min(self._replies(tokens or self._tokens), _USUAL))

    def checked(self, streams: int | None) -> int:
        """Return how many replies to make at once, those that are wanted if any are.

        Raises ConfigError for fewer than one, MemoryLimitError for more than memory holds.
        """
        if streams is None:
            return self.usual()
        if streams < 1:
            raise ConfigError(f"streams is {streams}; give 1 or more")
        tokens = self._tokens
        room = max(1, self._replies(tokens, streams))
        if streams > room:
            one = room == 1
            raise MemoryLimitError(
                f"streams is {streams}, and memory holds {room} {'reply' if one else 'replies'} of "
                f"{tokens:,} tokens, prompt included; give {room}{'' if one else ' or fewer'}, "
                "kv_bits 8, or a shorter context"
            )
        return streams

    @property
    def _tokens(self) -> int:
        return self.context or USUAL_CONTEXT

    def _replies(self, tokens: int, most: int = _USUAL) -> int:
        """Return how many replies memory holds; `most` where it is not asked or cannot be told."""
        if self.needs is None:
            return most
        try:
            return self.needs.replies(tokens, self.available())
        except AkunuError as error:
            _log.info("the memory of replies is not checked: %s", error)
            return most
