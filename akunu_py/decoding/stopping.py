"""The ends of a reply: an end-of-generation id, a stop text, or a loop."""

from collections.abc import Collection, Sequence

import numpy as np

from akunu_py.system.errors import ConfigError
from akunu_py.values.types import FinishReason

LONGEST_CYCLE = 256
REPEATED_TOKENS = 128
REPEATED_CYCLES = 4
"""A loop is a cycle of at most `LONGEST_CYCLE` tokens that is repeated at least `REPEATED_CYCLES`
times, for at least `REPEATED_TOKENS` tokens. Of 1,763 text files (code, documentation and data, up
to 20,000 characters each) two contain a loop, both tests with generated tables. Of 886 recorded
replies, which were not used to choose the numbers, two do, and both are stuck.
"""


class LoopDetector:
    """Detects that a reply repeats one cycle of tokens."""

    def __init__(self) -> None:
        periods = np.arange(1, LONGEST_CYCLE + 1)
        self._enough = np.maximum(REPEATED_TOKENS, REPEATED_CYCLES * periods)
        # Newest token first; for each period, how many of the last tokens repeat those before.
        self._recent = np.full(LONGEST_CYCLE, -1)
        self._runs = np.zeros(LONGEST_CYCLE, int)

    def feed(self, token: int) -> bool:
        """Add a reply's next token; return whether the reply is in a loop."""
        self._runs += 1
        self._runs *= self._recent == token
        self._recent[1:] = self._recent[:-1]
        self._recent[0] = token
        return bool((self._runs >= self._enough).any())


def cut_at_end(
    output: Sequence[int], end_ids: Collection[int], loops: LoopDetector | None = None
) -> tuple[tuple[int, ...], FinishReason | None]:
    """Cut the output after the token that ends the reply; return it with the reason, or None.

    The reply ends with the first end-of-generation id ("stop") or the token that completes a loop
    ("loop").
    """
    for index, token in enumerate(output):
        if token in end_ids:
            return tuple(output[: index + 1]), "stop"
        if loops is not None and loops.feed(token):
            return tuple(output[: index + 1]), "loop"
    return tuple(output), None


class StopTexts:
    """Finds stop texts in a stream of text pieces.

    Text that may be the beginning of a stop text is held back until that is decided, so no part of
    a stop text is ever shown.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise ConfigError(f"stop is {stops!r}; give a sequence of texts, none of them empty")
        self._stops = tuple(stops)
        self._held = ""
        self.reached: str | None = None

    def feed(self, text: str) -> tuple[str, bool]:
        """Return the text that can be shown now, and whether a stop text was reached.

        Where several stop texts occur, the one that begins first ends the reply; of those that
        begin there, the longest is the one that was reached.
        """
        if not self._stops:
            return text, False
        held = self._held + text
        found = [(index, -len(stop)) for stop in self._stops if (index := held.find(stop)) >= 0]
        if found:
            self._held = ""
            begin, size = min(found)
            self.reached = held[begin : begin - size]
            return held[:begin], True
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False

    def finish(self) -> str:
        """Return the text that was held back until the reply ended."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is the beginning of `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
