"""Time from the start of a process to its first token, as a user experiences it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from select import select

from akunu_py.cpu.blas import BLAS_VARIABLE
from akunu_py.model_store.default_model import DATA_VARIABLE
from akunu_py.system.errors import AkunuError
from akunu_py.system.settings import CACHE_VARIABLE, CONFIG_VARIABLE

_KEPT = frozenset({BLAS_VARIABLE, CACHE_VARIABLE, DATA_VARIABLE})
_OPTIONS = ("generate", "--raw", "--prompt", "The", "--max-tokens", "1")


class NoFirstTokenError(AkunuError):
    """The process ended or timed out before its first token."""


def first_token_s(path: Path, *, limit_s: float) -> float:
    """Start a process that continues one word with this model; return the seconds to its text.

    The process does not use the user's settings: they might name a file to which prompts are
    written. Raises NoFirstTokenError.
    """
    # -P: no module in the current folder may replace one of akunu's.
    command = [sys.executable, "-P", "-m", "akunu_py", *_OPTIONS, str(path.absolute())]
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - this Python, and constants
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(os.environ),
        )
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            ready, _, _ = select([process.stdout], [], [], limit_s)
            taken = time.perf_counter() - started
            if not ready:
                raise NoFirstTokenError(f"no token came within {limit_s:.0f} s")
            process.stdout.read()
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else "it said nothing"
            raise NoFirstTokenError(f"the process ended with the exit code {code}: {reason}")
    return taken


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the process, without those that set options of akunu."""
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith("AKUNU_") or name in _KEPT
    }
    return {**kept, CONFIG_VARIABLE: os.devnull}
