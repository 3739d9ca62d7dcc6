"""The frame of one reply's passes: wired memory and the measure of peak memory."""

import contextlib
import logging
from collections.abc import Iterator

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

_log = logging.getLogger(__name__)

_CLOSE = 0.9
"""Share of Metal's recommended memory from which a model may be slow."""


class ReplyFrame:
    """Frames the replies of one model on one stream."""

    def __init__(self, stream: mx.Stream | mx.ThreadLocalStream) -> None:
        self._stream = stream
        self._warned = False

    @contextlib.contextmanager
    def __call__(self, model: nn.Module) -> Iterator[None]:
        """Frame one reply: peak memory counts from here, and on Metal the model stays wired."""
        mx.reset_peak_memory()
        limit = self._wire(model)
        try:
            yield
        finally:
            # A pass may still be running: its thread must not end, nor the limit change, meanwhile.
            mx.synchronize(self._stream)
            if limit is not None:
                mx.set_wired_limit(limit)

    def _wire(self, model: nn.Module) -> int | None:
        """Keep the model in memory while it is used; return the earlier limit, None without Metal.

        Otherwise macOS may page weights out between passes.
        """
        most = mx.device_info().get("max_recommended_working_set_size")
        if most is None:
            return None
        size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        if size > _CLOSE * int(most) and not self._warned:
            self._warned = True
            _log.warning(
                "the model takes %.1f GB of the %.1f GB that the GPU should use at most, which can "
                "be slow; akunu doctor says how to raise the limit",
                size / 1e9,
                int(most) / 1e9,
            )
        return int(mx.set_wired_limit(int(most)))
