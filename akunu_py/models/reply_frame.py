"""The frame of one reply's passes: wired memory and the measure of peak memory."""

import contextlib
import logging
import threading
from collections.abc import Iterator

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

_log = logging.getLogger(__name__)

_CLOSE = 0.9
"""Share of Metal's recommended memory from which a model may be slow."""


class _WiredLimit:
    """Metal's wired limit, of which a process has one.

    The first of several replies raises it, and the last to end restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._before = 0

    @contextlib.contextmanager
    def raise_to(self, most: int) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._before = int(mx.set_wired_limit(most))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    mx.set_wired_limit(self._before)


_wired_limit = _WiredLimit()


class ReplyFrame:
    """Frames the replies of one model on one stream."""

    def __init__(self, stream: mx.Stream | mx.ThreadLocalStream) -> None:
        self._stream = stream
        self._warned = False

    @contextlib.contextmanager
    def __call__(self, model: nn.Module) -> Iterator[None]:
        """Frame one reply: peak memory counts from here, and on Metal the model stays wired.

        Replies may overlap; their peaks then count from where the last of them began.
        """
        mx.reset_peak_memory()
        with self._keep_wired(model):
            try:
                yield
            finally:
                # A pass may still be running: its thread must not end, nor the limit change.
                mx.synchronize(self._stream)

    def _keep_wired(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Keep the model in memory while it is used; without Metal, do nothing.

        Otherwise macOS may page weights out between passes.
        """
        most = mx.device_info().get("max_recommended_working_set_size")
        if most is None:
            return contextlib.nullcontext()
        size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        if size > _CLOSE * int(most) and not self._warned:
            self._warned = True
            _log.warning(
                "the model takes %.1f GB of the %.1f GB that the GPU should use at most, which can "
                "be slow; akunu doctor says how to raise the limit",
                size / 1e9,
                int(most) / 1e9,
            )
        return _wired_limit.raise_to(int(most))
