"""What akunu's own commands say of this machine and of a model, before its weights are read."""

import json
import subprocess
import sys
from typing import Any

from akunu_py.api import ConfigError


def ask(*arguments: str, limit_s: float | None = None) -> Any:
    """Return the JSON that a command of akunu prints; raises ConfigError with its reason."""
    # -P: no module in the current folder may replace one of akunu's.
    command = [sys.executable, "-P", "-m", "akunu_py", *arguments, "--json"]
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and names of files
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=limit_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"akunu {' '.join(arguments[:2])} took longer than {limit_s:.0f} s"
        ) from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines()
        raise ConfigError(
            said[-1].removeprefix("Error: ") if said else f"akunu {arguments[0]} said nothing"
        ) from None
