"""What of texts may be published: no locations of files, no names of the user."""

import contextlib
import getpass
import platform
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

_PATH = re.compile(r"(?<![^\s'\"`(=:,\[])~?/(?!/)[^\s'\"`)\],;]+")
"""An absolute path, but neither the slash of "tokens/s" nor the slashes of a URL."""

_PLACE, _NAME = "(path)", "(name)"
_LEAST_NAME = 2
_NOTHING = "(?!)"
"""An expression that matches no text."""


class Privacy:
    """Cleans texts from outside, such as errors of libraries and names of files.

    The names of known `folders` may contain spaces, which would end any other path. `names` are
    those of the user and of the machine.
    """

    def __init__(self, folders: Iterable[Path], names: Iterable[str]) -> None:
        places = {str(folder) for folder in folders} - {"/", ".", ""}
        # A folder comes before its parents.
        self._places = sorted(places, key=len, reverse=True)
        words = {re.escape(name) for name in names if len(name) >= _LEAST_NAME}
        longest_first = sorted(words, key=len, reverse=True) or [_NOTHING]
        self._names = re.compile(rf"(?<!\w)({'|'.join(longest_first)})(?!\w)", re.IGNORECASE)

    @classmethod
    def of_this_user(cls, *places: Path) -> Self:
        """Return a cleaner for texts of this process, which used these files and folders."""
        folders = {Path(tempfile.gettempdir())}
        names = {platform.node(), platform.node().partition(".")[0]}
        # Without a home, a name or a current folder there is nothing to hide.
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

    def cleaned(self, value: Any) -> Any:
        """Return a value of JSON with its texts cleaned."""
        if isinstance(value, dict):
            return {name: self.cleaned(entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [self.cleaned(entry) for entry in value]
        return self.clean(value) if isinstance(value, str) else value

    def clean(self, text: str) -> str:
        """Return a text without paths and names; the last part of a path may stay."""
        for place in self._places:
            text = text.replace(place, _PLACE)
        return self._names.sub(_NAME, without_paths(text))


def without_paths(text: str) -> str:
    """Return a text without absolute paths."""
    return _PATH.sub(_PLACE, text)
