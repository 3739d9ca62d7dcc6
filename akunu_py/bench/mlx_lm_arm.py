"""mlx-lm's own loops as arms, over a model that akunu has loaded."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version

from akunu_py.bench.reply import MeasuredReply, Recorder
from akunu_py.bench.runner import Item
from akunu_py.models.mlx_lm_loop import LoopPass, peak_memory_bytes

Passes = Callable[[Sequence[int], int, Sequence[int] | None], Generator[LoopPass, None, None]]
"""A loop: prompt, most tokens and the reply to force, if any -> its passes."""


class MlxLmArm:
    """Greedy replies of one of mlx-lm's loops."""

    steady = True

    def __init__(
        self,
        name: str,
        passes: Passes,
        *,
        max_tokens: int,
        end_ids: frozenset[int],
        plain: str,
        about: str = "",
    ) -> None:
        self.name, self.plain, self.about = name, plain, about
        self.version = f"mlx-lm {version('mlx-lm')}"
        self._passes = passes
        self._max_tokens, self._end_ids = max_tokens, end_ids

    def forget(self) -> None:
        """Need nothing: its drafts come from a model alone."""

    def reply(self, item: Item) -> MeasuredReply:
        recorder = Recorder(self._max_tokens, self._end_ids)
        recorder.start()
        with contextlib.closing(self._passes(item.prompt, self._max_tokens, item.text)) as passes:
            for done in passes:
                if recorder.take(
                    done.token_ids, num_drafted=done.num_drafted, num_accepted=done.num_accepted
                ):
                    break
            peak = peak_memory_bytes()
        return recorder.reply(peak_memory_bytes=peak)

    def close(self) -> None:
        """Need nothing: the models are somebody else's."""
