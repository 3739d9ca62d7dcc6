"""What must not be in a page that strangers see: where files lie, and who the user is."""

import contextlib
import getpass
import platform
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

_PATH = re.compile(r"(?<![^\s'\"`(=:,\[])~?/(?!/)[^\s'\"`)\],;]+")
"""An absolute path; not the slash of "tokens/s", nor those of an address."""

_PLACE, _NAME = "(path)", "(name)"
_LEAST_NAME = 2


class Privacy:
    """Cleans texts that come from outside: errors of libraries, names that files have.

    Args:
        folders: known places; in their names there may be spaces, which end any other path.
        names: of the user and of the machine.

    """

    def __init__(self, folders: Iterable[Path], names: Iterable[str]) -> None:
        places = {str(folder) for folder in folders} - {"/", ".", ""}
        # A folder goes before those above it.
        self._places = sorted(places, key=len, reverse=True)
        words = {name for name in names if len(name) >= _LEAST_NAME}
        longest_first = sorted(map(re.escape, words), key=len, reverse=True)
        self._names = re.compile(rf"(?<!\w)({'|'.join(longest_first)})(?!\w)", re.IGNORECASE)
        self._has_names = bool(words)

    @classmethod
    def of_this_user(cls, *places: Path) -> Self:
        """Return what cleans texts of this process, which used these files and folders."""
        folders = {Path(tempfile.gettempdir())}
        names = {platform.node(), platform.node().partition(".")[0]}
        # No home, no name, or a current folder that is gone: nothing to hide then.
        with contextlib.suppress(OSError, RuntimeError):
            folders.add(Path.home())
            names.add(Path.home().name)
        with contextlib.suppress(OSError, KeyError):
            names.add(getpass.getuser())
        for place in (*places, Path()):
            with contextlib.suppress(OSError, RuntimeError):
                found = {place.absolute(), place.resolve()}
                folders |= {path if path.is_dir() else path.parent for path in found}
        return cls(folders, names)

    def clean(self, text: str) -> str:
        """Return a text without paths and names; of a path the last part may stay."""
        for place in self._places:
            text = text.replace(place, _PLACE)
        text = without_paths(text)
        return self._names.sub(_NAME, text) if self._has_names else text


def without_paths(text: str) -> str:
    """Return a text in which no absolute path is left."""
    return _PATH.sub(_PLACE, text)
