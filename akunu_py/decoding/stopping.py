"""When a reply ends: end-of-generation ids in a step's output, and stop texts across steps."""

from collections.abc import Collection, Sequence

from akunu_py.errors import ConfigError


def cut_at_end(output: Sequence[int], end_ids: Collection[int]) -> tuple[tuple[int, ...], bool]:
    """Return the output up to and with its first end-of-generation id, and whether it had one."""
    for index, token in enumerate(output):
        if token in end_ids:
            return tuple(output[: index + 1]), True
    return tuple(output), False


class StopTexts:
    """Finds stop texts in a stream of text pieces.

    Text that may turn out to be the beginning of a stop text is held back until that is decided,
    so that no part of a stop text is ever shown.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise ConfigError(f"stop is {stops!r}; give a sequence of texts, none of them empty")
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Return the text that can be shown now, and whether a stop text was reached.

        Where several stop texts occur, the one that begins first ends the reply.
        """
        if not self._stops:
            return text, False
        held = self._held + text
        found = [index for stop in self._stops if (index := held.find(stop)) >= 0]
        if found:
            self._held = ""
            return held[: min(found)], True
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False

    def finish(self) -> str:
        """Return the text held back: the reply ended before it became a stop text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that begins `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
