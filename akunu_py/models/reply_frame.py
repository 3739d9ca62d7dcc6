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


_MARGIN = 10**9
"""Bytes that are wired beside a model's weights, for caches and passes."""


class _WiredLimit:
    """Metal's wired limit, of which a process has one.

    It is raised once for a model and never lowered. Kernels panicked where it was changed with each
    reply while prompt caches came and went (ml-explore/mlx#3186), and small Macs froze where all
    that the GPU may use was wired.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0

    def raise_to(self, wanted: int) -> None:
        with self._lock:
            if wanted > self._bytes:
                mx.set_wired_limit(wanted)
                self._bytes = wanted


_wired_limit = _WiredLimit()


class ReplyFrame:
    """Frames the replies of one model on one stream.

    On Metal the first one wires the weights and a margin, if they are to be `wired`: otherwise
    macOS may page them out between passes.
    """

    def __init__(self, stream: mx.Stream | mx.ThreadLocalStream, *, wired: bool = True) -> None:
        self._stream = stream
        self._wired = wired
        self._begun = False

    @contextlib.contextmanager
    def __call__(self, model: nn.Module) -> Iterator[None]:
        """Frame one reply: peak memory counts from here.

        Replies may overlap; their peaks then count from where the last of them began.
        """
        mx.reset_peak_memory()
        if not self._begun:
            self._begun = True
            self._begin(model)
        try:
            yield
        finally:
            # A pass may still be running, and its thread must not end.
            mx.synchronize(self._stream)

    def _begin(self, model: nn.Module) -> None:
        """Warn of a model that the GPU hardly holds, and wire it; without Metal, do nothing."""
        most = mx.device_info().get("max_recommended_working_set_size")
        if most is None:
            return
        size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        if size > _CLOSE * int(most):
            _log.warning(
                "the model takes %.1f GB of the %.1f GB that the GPU should use at most, which can "
                "be slow; akunu doctor says how to raise the limit",
                size / 1e9,
                int(most) / 1e9,
            )
        if self._wired:
            _wired_limit.raise_to(min(size + _MARGIN, int(most)))
