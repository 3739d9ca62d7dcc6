"""What surrounds the passes of one reply: memory that stays wired, and how much was held."""

import contextlib
import io
import logging
from collections.abc import Iterator

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import wired_limit

_log = logging.getLogger(__name__)


class ReplyFrame:
    """Frames the replies of one model on one stream."""

    def __init__(self, stream: mx.Stream | mx.ThreadLocalStream) -> None:
        self._stream = stream
        self._warned = False

    @contextlib.contextmanager
    def __call__(self, model: nn.Module) -> Iterator[None]:
        """Frame one reply: peak memory counts from here, and on Metal the model stays wired."""
        mx.reset_peak_memory()
        with contextlib.ExitStack() as stack:
            notices = io.StringIO()
            with contextlib.redirect_stdout(notices):
                stack.enter_context(wired_limit(model, [self._stream]))
            if notices.getvalue() and not self._warned:
                self._warned = True
                _log.warning("%s", notices.getvalue().strip())
            try:
                yield
            finally:
                # A pass may still be under way; MLX does not like its thread to end then.
                mx.synchronize(self._stream)
