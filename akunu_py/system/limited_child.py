"""Work of strangers' making in a process of its own, which may be ended at a limit."""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from akunu_py.system.errors import ConfigError

_START_S = 60.0
"""Longest wait for a new child: a cold disk may take a while to import its libraries from."""


class LimitedChild:
    """A script that answers each line of JSON with one, and says so first when it is ready.

    Raises ConfigError, which names the `purpose`, if it cannot be started.
    """

    def __init__(self, script: str, *arguments: str, purpose: str) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and a file of akunu's
                # Without the script's folder among the places that modules come from.
                [sys.executable, "-P", script, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for akunu
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(
                f"akunu cannot {purpose}: {sys.executable} cannot be started: {error.strerror}"
            ) from None
        if self._read(_START_S) is None:
            self.close()
            raise ConfigError(f"akunu cannot {purpose}: {sys.executable} cannot run {script}")

    @property
    def alive(self) -> bool:
        """Whether the process runs; other programs may end it."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any], most_s: float) -> dict[str, Any] | None:
        """Return the answer to a request; None if there is none within `most_s` seconds."""
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - a pipe
        with contextlib.suppress(BrokenPipeError):
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
        return self._read(most_s)

    def _read(self, most_s: float) -> dict[str, Any] | None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - a pipe
        # A child writes a line at once, and nothing before it was asked again.
        if not select.select([stream], [], [], most_s)[0]:
            return None
        line = stream.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def close(self) -> int:
        """End the process; return its code, which is its own if it had ended."""
        self.kill()
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        """Let the process end; one that has ended keeps its exit code."""
        self._process.kill()
