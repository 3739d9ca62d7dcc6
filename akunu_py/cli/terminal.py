"""The terminal: text, progress of a prompt, the statistics line, and keys that nobody reads yet."""

import contextlib
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.machine_load import wait_until_quiet
from akunu_py.system.shown_text import harmless

if TYPE_CHECKING:
    from akunu_py.values.types import GenerationResult


_BAR_AFTER_S = 0.3
"""Seconds after which a bar is drawn; what is over by then needs none."""


def let_others_end() -> None:
    """Wait before a measurement while other programs are busy; say so on stderr."""
    wait_until_quiet(lambda text: click.echo(text, err=True))


def printable(text: str, stream: TextIO | None = None) -> str:
    """Replace control characters as `harmless` does where a terminal would obey them.

    Newlines and tabs stay. Text that goes to a file or a pipe stays as the model gave it.
    `stream` is where it goes, standard output by default.
    """
    terminal = (stream or sys.stdout).isatty()
    return harmless(text) if terminal else text


def is_dumb() -> bool:
    """Return whether the terminal, by its TERM, obeys no codes at all."""
    return os.environ.get("TERM") in {"dumb", "unknown"}


def wrapped(line: str, width: int, indent: int = 0) -> str:
    """Break a line between words where it is wider than a terminal; `indent` what goes on."""
    if len(line) <= width:
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted(line: str, indent: int = 0) -> str:
    """Return a line as standard output takes it: broken for a terminal, for a pipe as it is."""
    if not sys.stdout.isatty():
        return line
    return wrapped(line, shutil.get_terminal_size().columns, indent)


@contextlib.contextmanager
def prompt_progress(
    words: str = "reading", unit: str = "tokens"
) -> Iterator[Callable[[int, int], None]]:
    """Give a callback, of parts done and in all, that draws a bar on stderr if they take long.

    The bar is short: on a screen that gets narrower than it, a piece of it would stay.
    """
    if is_quiet() or is_dumb() or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.theme import Theme

    bar = Progress(
        SpinnerColumn(style="color(32)"),
        TextColumn(words, style="dim"),
        BarColumn(bar_width=10, style="dim", complete_style="color(32)"),
        TextColumn(f"{{task.completed}}/{{task.total}} {unit}", style="dim"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, theme=Theme({"progress.remaining": "dim"})),
        transient=True,
        # By default a pass of half a minute leaves no pace to tell the time left by.
        speed_estimate_period=3600,
    )
    task = bar.add_task(words)
    # The bar is begun by another thread: nobody calls back within a pass of the model.
    lock = threading.Lock()
    begun = over = False

    def show() -> None:
        with lock:
            if not over:
                bar.start()

    timer = threading.Timer(_BAR_AFTER_S, show)
    timer.daemon = True

    def end() -> None:
        nonlocal over
        timer.cancel()
        with lock:
            over = True
            bar.stop()

    def progress(done: int, total: int) -> None:
        nonlocal begun
        bar.update(task, completed=done, total=total)
        if done >= total:
            end()
        elif not begun:
            begun = True
            timer.start()

    try:
        yield progress
    finally:
        end()


@contextlib.contextmanager
def cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Make the first Ctrl-C end a reply after the step under way; a second one is an interrupt.

    Ending between steps keeps the caches whole, so the next message prefills its own tokens alone.
    """

    def handler(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def statistics_line(result: "GenerationResult") -> str:
    """Return the counts, times and rates of a reply, and its warnings, in one line."""
    parts = [f"{len(result.token_ids)} tokens"]
    if result.decode_tokens_per_s is not None:
        parts.append(f"{result.decode_tokens_per_s:.1f} tokens/s")
    if result.time_to_first_token_s is not None:
        parts.append(f"first after {result.time_to_first_token_s:.2f} s")
    if result.stats.tokens_per_pass is not None:
        parts.append(f"{result.stats.tokens_per_pass:.2f} tokens a pass")
    hit_rate = result.stats.hit_rate
    parts.append("nothing drafted" if hit_rate is None else f"hit rate {hit_rate:.0%}")
    if saved := _time_saved_text(result.time_saved):
        parts.append(saved)
    return " · ".join([*parts, *remarks(result)])


def remarks(result: "GenerationResult", *, end: bool = True) -> list[str]:
    """Return the remarks on a reply beside its figures: not exact, how it ended.

    Without `end` the last is left out.
    """
    parts = []
    if result.exactness == "none":
        parts.append("not exact")
    if end and result.finish_reason != "stop":
        ends = {
            "length": "ended by the token limit",
            "loop": "ended: it repeated itself",
            "cancelled": "interrupted",
        }
        parts.append(ends[result.finish_reason])
    if result.constraint_met is False:
        parts.append("incomplete: not the form asked for")
    return parts


def _time_saved_text(saved: tuple[float, float] | None) -> str:
    """Return the gain or loss by drafting, in whole percent; "" where it may be nothing."""
    if saved is None:
        return ""
    # Towards zero: no end claims more than the estimate does.
    low, high = (int(100 * share) for share in saved)
    if low > 0:
        return f"drafting saved {_percent_range(low, high)} of the time (estimated)"
    if high < 0:
        return f"drafting cost {_percent_range(-high, -low)} more time (estimated)"
    return ""


def _percent_range(low: int, high: int) -> str:
    return f"about {low}%" if low == high else f"{low} to {high}%"


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
