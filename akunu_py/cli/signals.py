"""Signals that end the program, by exceptions."""

import signal
from types import FrameType

_AGAIN_S = 0.02
"""Seconds until a signal that came during an import is sent again."""


def end_by_signals() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, SIGTERM and SIGHUP SystemExit with 128 more than theirs.

    What has to be put back, as a terminal's state or a file half written, is. A signal that is
    ignored, as nohup has it, stays so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        # Python loses some exceptions there, and extension modules turn some into an abort.
        signal.signal(signal.SIGALRM, lambda _number, _frame: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        raise SystemExit(128 + number)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported around this frame."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
