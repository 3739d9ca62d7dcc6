"""Fetches one model in a process of its own, which a server can end at any time.

It is given a name that `akunu models pull` takes, and writes a line of JSON for each step to
standard output: `{"digest", "total", "completed"}` for a file, in bytes, and at last `{"path"}` or
`{"error", "refused"}`, where `refused` says that asking again would not help.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from akunu_py.model_store.names import fetch, fetchable
from akunu_py.model_store.transfer import FileTransfer
from akunu_py.system.errors import AkunuError, ConfigError

_LOOK_S = 0.2


class _Told:
    """Tells how far files are, until the next one begins."""

    def __init__(self) -> None:
        self._file: FileTransfer | None = None
        self._turn = threading.Lock()

    def begin(self, file: FileTransfer) -> None:
        with self._turn:
            self._end()
            self._file = file
            self._tell(file, file.completed())

    def end(self) -> None:
        with self._turn:
            self._end()

    def watch(self) -> None:
        """Tell again and again; end the process if nobody listens."""
        while True:
            time.sleep(_LOOK_S)
            with self._turn:
                if self._file is None:
                    continue
                try:
                    self._tell(self._file, self._file.completed())
                except OSError:
                    os._exit(1)

    def _end(self) -> None:
        if self._file is not None:
            self._tell(self._file, self._file.num_bytes)
            self._file = None

    def _tell(self, file: FileTransfer, completed: int) -> None:
        _say({"digest": file.digest, "total": file.num_bytes, "completed": completed})


def _say(step: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(step) + "\n")
    sys.stdout.flush()


def _pull(name: str) -> Path:
    told = _Told()
    threading.Thread(target=told.watch, daemon=True).start()
    path = fetch(fetchable(name), told.begin)
    told.end()
    return path


if __name__ == "__main__":
    try:
        _say({"path": str(_pull(sys.argv[1]))})
    except AkunuError as error:
        _say({"error": str(error), "refused": isinstance(error, ConfigError)})
