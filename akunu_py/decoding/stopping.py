"""The ends of a reply: an end-of-generation id, a stop text, or a loop."""

from collections.abc import Collection, Sequence

import numpy as np

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
    """Finds stop texts in a stream of text pieces, by one automaton for all of them.

    Text that may be the beginning of a stop text is held back until that is decided, so no part of
    a stop text is ever shown. The automaton (Aho and Corasick 1975) has a state for each beginning
    of a stop text: the longest one with which the text so far ends.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        # Of each state: its length, the state of its longest end that is one, too, and the length
        # of the longest stop text with which it ends.
        self._sizes, self._shorter, self._stops = [0], [0], [0]
        for stop in stops:
            self._add(stop)
        # By length, since a state depends on shorter ones.
        for (before, character), state in sorted(
            self._next.items(), key=lambda one: self._sizes[one[1]]
        ):
            if before:
                self._shorter[state] = self._after(self._shorter[before], character)
            self._stops[state] = self._stops[state] or self._stops[self._shorter[state]]
        self._state = 0
        self._held = ""
        self.reached: str | None = None

    @property
    def held(self) -> int:
        """Number of characters that are held back."""
        return len(self._held)

    def feed(self, text: str) -> tuple[str, bool]:
        """Return the text that can be shown now, and whether a stop text was reached.

        The one that is complete first ends the reply; of those that end there, the longest is the
        one that was reached.
        """
        if not self._next:
            return text, False
        held, first = self._held + text, len(self._held) + 1
        for end, character in enumerate(text, first):
            self._state = self._after(self._state, character)
            if size := self._stops[self._state]:
                self._held = ""
                self.reached = held[end - size : end]
                return held[: end - size], True
        keep = len(held) - self._sizes[self._state]
        self._held = held[keep:]
        return held[:keep], False

    def finish(self) -> str:
        """Return the text that was held back until the reply, or a part of it, ended."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _add(self, stop: str) -> None:
        state = 0
        for size, character in enumerate(stop, 1):
            following = self._next.setdefault((state, character), len(self._sizes))
            if following == len(self._sizes):
                self._sizes.append(size)
                self._shorter.append(0)
                self._stops.append(0)
            state = following
        self._stops[state] = len(stop)

    def _after(self, state: int, character: str) -> int:
        while state and (state, character) not in self._next:
            state = self._shorter[state]
        return self._next.get((state, character), 0)
