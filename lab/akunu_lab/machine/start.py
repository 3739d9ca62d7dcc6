"""The part "start": time from the start of a process to its first token, as a user feels it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from select import select
from statistics import median

from akunu_lab.machine.planning import STARTS, PartRun, Subject, start_limit_s
from akunu_lab.machine.report import PartFigures
from akunu_py.api import AkunuError

_KEPT = frozenset({"AKUNU_BLAS", "AKUNU_CACHE_DIR", "AKUNU_DATA_DIR"})
_OPTIONS = ("generate", "--raw", "--prompt", "The", "--max-tokens", "1")


@dataclass(frozen=True, slots=True)
class StartFigures(PartFigures):
    """Seconds from the start of a process to its first token, for each process."""

    section = "How long is the wait?"
    explanation = (
        "From the start of a process to its first token, one process after another; the first may "
        "have read the model from disk:"
    )
    seconds: tuple[float, ...]

    def answers(self) -> Iterator[str]:
        yield f"A new process gives its first token after {median(self.seconds):.1f} s."


def measure_start(subject: Subject, run: PartRun) -> StartFigures:
    """Time processes up to their first token."""
    figures = StartFigures(())
    while not figures.seconds or (
        len(figures.seconds) < STARTS and run.left > max(figures.seconds)
    ):
        run.tell()
        taken = first_token_s(subject.path, limit_s=start_limit_s(run.seconds))
        run.so_far = figures = StartFigures((*figures.seconds, taken))
    return figures


class NoFirstTokenError(AkunuError):
    """The process ended or timed out before its first token."""


def first_token_s(path: Path, *, limit_s: float) -> float:
    """Start a process that continues one word with this model; return the seconds to its text.

    The process does not use the user's settings: they might name a file to which prompts are
    written. Raises NoFirstTokenError.
    """
    # -P: no module in the current folder may replace one of akunu's.
    command = [sys.executable, "-P", "-m", "akunu_py", *_OPTIONS, str(path.absolute())]
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AKUNU_") or name in _KEPT
    }
    variables["AKUNU_CONFIG"] = os.devnull
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - this Python, and constants
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=variables,
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout:
            try:
                ready, _, _ = select([process.stdout], [], [], limit_s)
                taken = time.perf_counter() - started
                if not ready:
                    raise NoFirstTokenError(f"no token came within {limit_s:.0f} s")
                process.stdout.read()
                code = process.wait()
            finally:
                process.kill()
                process.wait()
        if code:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else "it said nothing"
            raise NoFirstTokenError(f"the process ended with the exit code {code}: {reason}")
    return taken
