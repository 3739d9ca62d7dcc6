"""Keys typed while nobody reads them."""

import contextlib
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def echo(on: bool) -> Iterator[None]:
    """Have a terminal show what is typed, or not: Ctrl-C works, and the next prompt gets the rest.

    Shown at once, it would stand in the middle of a reply and once more at the prompt, and what is
    drawn in place, such as a progress bar, would be erased a line off. Nothing is done where
    standard input is not a terminal.
    """
    try:
        import termios  # Windows has none
    except ImportError:
        yield
        return
    try:
        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
    except (OSError, ValueError, termios.error):
        yield
        return

    def apply(*_: object) -> None:
        changed = termios.tcgetattr(keys)
        changed[3] = changed[3] | termios.ECHO if on else changed[3] & ~termios.ECHO
        termios.tcsetattr(keys, termios.TCSANOW, changed)

    apply()
    # Behind Ctrl-Z and fg a shell has turned it on again.
    continued = signal.signal(signal.SIGCONT, signal.SIG_DFL if on else apply)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, continued)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSANOW, before)
