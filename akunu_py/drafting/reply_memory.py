"""The state of `auto` from reply to reply of an engine, and when it is saved."""

import logging
import math
import time
from collections.abc import Callable, Sequence

from akunu_py.drafting.auto import AutoState
from akunu_py.drafting.memory import Memory
from akunu_py.system.errors import ConfigError

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
"""Seconds between two saves: a full memory has 800 kB, and a reply may have a few words."""


class ReplyMemory:
    """The state of `auto` for one engine; a reply joins its memory once, when it ends.

    `clock` returns seconds. If the memory cannot be saved, that is reported once, and the memory
    stays in use.
    """

    def __init__(
        self, memory: Memory | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = AutoState(memory)
        self._clock = clock
        self._reply = 0
        self._saved_at = -math.inf
        self._warned = False
        path = self.state.memory.path
        if path is not None:
            # Now, because a warning later would interrupt the text of a reply.
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._warn(error)

    def begin_reply(self) -> Callable[[], None]:
        """Finish the last reply; return a function that ends the next one.

        Call this before the next reply's drafter is made. Ending a reply twice, or after a later
        one began, does nothing: a dropped stream may be collected at any time.
        """
        self.state.finish()
        self._reply += 1
        number = self._reply

        def end() -> None:
            if number == self._reply:
                self.state.finish()
                self.save_if_due()

        return end

    def remember(self, tokens: Sequence[int]) -> None:
        """Add a text, such as a file that replies may repeat."""
        self.state.memory.add(tokens)
        self.save_if_due()

    def forget(self) -> None:
        """Empty the memory, also on disk, and start to learn anew.

        Raises ConfigError if the file cannot be changed.
        """
        memory = self.state.memory
        memory.clear()
        self.state = AutoState(memory)
        # The current reply no longer joins any memory.
        self._reply += 1
        try:
            memory.save()
        except OSError as error:
            raise ConfigError(
                f"the memory {memory.path} stays as it was, it cannot be written: {error.strerror}"
            ) from None

    def save_if_due(self) -> None:
        """Save the memory, unless that happened moments ago."""
        if self._clock() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Save new texts, if the memory is on disk."""
        memory = self.state.memory
        if memory.path is None or not memory.unsaved:
            return
        self._saved_at = self._clock()
        try:
            memory.save()
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        logger.warning(
            "the memory %s cannot be written (%s); it is kept in RAM until the end",
            self.state.memory.path,
            error.strerror or error,
        )
