"""Keys typed while nobody reads them."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def echo_off() -> Iterator[None]:
    """Keep a terminal from showing what is typed; Ctrl-C works, and the next prompt gets the rest.

    Shown, it would stand in the middle of a reply, and what is drawn in place, such as a progress
    bar, would be erased a line off. Nothing is done where standard input is no terminal.
    """
    try:
        import termios  # noqa: PLC0415 - Windows has none
    except ImportError:
        yield
        return
    try:
        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
    except (OSError, ValueError, termios.error):
        yield
        return
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(keys, termios.TCSANOW, changed)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSANOW, before)
