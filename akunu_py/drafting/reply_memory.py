"""What `auto` keeps over the replies of one engine, and when that is written down."""

import logging
import math
import time
from collections.abc import Callable, Sequence

from akunu_py.drafting.auto import AutoState
from akunu_py.drafting.memory import Memory
from akunu_py.errors import ConfigError

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
"""Seconds between two savings: a full memory is 800 kB, and a reply may be a few words."""


class ReplyMemory:
    """The state of `auto` for one engine: a reply's tokens join its memory once, when it ends.

    `clock` gives seconds. A memory that cannot be written is reported once and used on.
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
            # Now, so that the warning does not come in the middle of a reply's text.
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._warn(error)

    def begin_reply(self) -> Callable[[], None]:
        """Finish the reply before, if nobody did; return what ends the one to come.

        To be called before its drafter is made. Ending a reply twice, or after a later one began,
        does nothing: a stream that was dropped may be collected at any time.
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
        """Empty the memory, on disk too, and begin to learn anew.

        Raises ConfigError where a file stays as it was.
        """
        memory = self.state.memory
        memory.clear()
        self.state = AutoState(memory)
        # What is under way joins nothing any more.
        self._reply += 1
        try:
            memory.save()
        except OSError as error:
            raise ConfigError(
                f"the memory {memory.path} stays as it was, it cannot be written: {error.strerror}"
            ) from None

    def save_if_due(self) -> None:
        """Save as `save` does, unless that was done moments ago."""
        if self._clock() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write down what is new, where the memory is kept on disk."""
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
