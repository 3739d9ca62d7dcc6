"""Fetches one model in a process of its own, which a server can end at any time.

It is given a name that `akunu models pull` takes, and writes a line of JSON to standard output for
each file that it begins, `{"digest", "num_bytes", "blobs"}`, and at last `{"path"}` or
`{"error", "refused"}`, where `refused` says that asking again would not help.
"""

import json
import sys
from typing import Any

from akunu_py.model_store.hub import FileTransfer
from akunu_py.model_store.names import fetch, fetchable
from akunu_py.system.errors import AkunuError, ConfigError


def _say(step: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(step) + "\n")
    sys.stdout.flush()


def _begin(file: FileTransfer) -> None:
    _say({"digest": file.digest, "num_bytes": file.num_bytes, "blobs": str(file.blobs)})


if __name__ == "__main__":
    try:
        _say({"path": str(fetch(fetchable(sys.argv[1]), _begin))})
    except AkunuError as error:
        _say({"error": str(error), "refused": isinstance(error, ConfigError)})
