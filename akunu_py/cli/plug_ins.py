"""Commands that installed packages add: entry points of the group "akunu.commands".

`importlib.metadata` takes as much CPU time for them as all else that `akunu --help` does: it is
made for more than reading one section of a few files.
"""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

_SECTION = "[akunu.commands]"


def commands() -> Mapping[str, str]:
    """Return names such as "bench.sweep" with "module:attribute"; the first on sys.path counts."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for path in sorted(Path(folder).glob("*-info/entry_points.txt")):
            with contextlib.suppress(OSError):
                found = _declared(path.read_text(encoding="utf-8", errors="replace")) | found
    return found


def _declared(text: str) -> dict[str, str]:
    """Return the lines NAME = MODULE:ATTRIBUTE of the section; extras in brackets are left out."""
    found, inside = {}, False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.strip() == _SECTION
        elif inside and "=" in line and not line.startswith("#"):
            name, _, place = line.partition("=")
            found[name.strip()] = place.partition("[")[0].strip()
    return found
