"""Work of strangers' making in a process of its own, which may be ended at a limit."""

import contextlib
import json
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from akunu_py.system.errors import ConfigError

_START_S = 60.0
"""Longest wait for a new child: a cold disk may take a while to import its libraries from."""


class LimitedChild:
    """A script that answers each line of JSON with one, and says so first when it is ready.

    Its process begins when it is asked, and anew where it has ended. Any thread may ask.
    """

    def __init__(self, script: str, *arguments: float, purpose: str) -> None:
        # Without the script's folder among the places that modules come from.
        self._command = [sys.executable, "-P", script, *map(str, arguments)]
        self._purpose = purpose
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any], most_s: float) -> dict[str, Any] | int:
        """Return the answer; without one within `most_s` seconds, the code of the ended process.

        Raises ConfigError, which names the `purpose`, if it cannot be started.
        """
        with self._turn, contextlib.ExitStack() as ending:
            # Also at Ctrl-C: nobody knows whose answer would come next.
            ending.callback(self._end)
            process = self._process
            if process is None or process.poll() is not None:  # other programs may end it
                self._end()
                process = self._start()
            assert process.stdin is not None  # noqa: S101 - a pipe
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            answer = _read(process, most_s)
            if answer is None:
                return self._end()
            ending.pop_all()
        return answer

    def close(self) -> None:
        """End the process, also while it is asked."""
        if (process := self._process) is not None:
            process.kill()
        with self._turn:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(  # noqa: S603 - this Python, and a file of akunu's
                self._command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for akunu
            )  # fmt: skip
        except OSError as error:
            what = f"{sys.executable} cannot be started: {error.strerror}"
            raise ConfigError(f"akunu cannot {self._purpose}: {what}") from None
        is_ready = _read(process, _START_S) is not None
        # Not before, for `close`: one that it ended would look like one that cannot run.
        self._process = process
        if not is_ready:
            what = f"{sys.executable} cannot run {self._command[2]}"
            raise ConfigError(f"akunu cannot {self._purpose}: {what}")
        return process

    def _end(self) -> int:
        """End the process; return its code, which is its own if it had ended."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        process.communicate()
        return process.returncode


def _read(process: subprocess.Popen[bytes], most_s: float) -> dict[str, Any] | None:
    stream = process.stdout
    assert stream is not None  # noqa: S101 - a pipe
    answer: dict[str, Any] | None = None
    # A child writes a line at once, and nothing before it was asked again.
    if select.select([stream], [], [], most_s)[0] and (line := stream.readline()):
        answer = json.loads(line)
    return answer
