"""What of a machine and of texts may be published: no locations of files, no names of the user."""

import contextlib
import getpass
import platform
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from akunu_py.diagnosis.facts import Facts
from akunu_py.diagnosis.system import System

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

    def clean(self, text: str) -> str:
        """Return a text without paths and names; the last part of a path may stay."""
        for place in self._places:
            text = text.replace(place, _PLACE)
        return self._names.sub(_NAME, without_paths(text))


def without_paths(text: str) -> str:
    """Return a text without absolute paths."""
    return _PATH.sub(_PLACE, text)


@dataclass(frozen=True, slots=True)
class Machine:
    """`Facts` of a machine and some more; None means that one does not apply or is unknown."""

    system: str
    machine: str
    chip: str | None
    mac_model: str | None
    """Apple's identifier, such as "Mac16,1"."""
    gpu_cores: int | None
    processors: int
    load: float | None
    """Load at the beginning, a mean over one minute."""
    memory_bytes: int | None
    wired_limit_bytes: int | None
    working_set_bytes: int | None
    translated: bool
    low_power: bool
    backend: str | None
    device: str
    blas: str | None
    versions: dict[str, str | None]


def published(facts: Facts, privacy: Privacy) -> Facts:
    """Return facts without private parts: locations of folders, and paths in texts of MLX."""
    blas = facts.blas
    if blas is not None:
        blas = replace(blas, name=privacy.clean(blas.name), reason=privacy.clean(blas.reason))
    system = privacy.clean(facts.system)
    return replace(facts, system=system, device=privacy.clean(facts.device), blas=blas, folders=())


def describe_machine(facts: Facts, system: System) -> Machine:
    """Return the machine as it stands in the report, from facts that may be published."""
    is_mac = system.name == "Darwin"
    displays = system.output("system_profiler", "SPDisplaysDataType") if is_mac else None
    cores = re.search(r"Total Number of Cores:\s*(\d+)", displays or "")
    more: dict[str, Any] = {
        "mac_model": (system.output("sysctl", "-n", "hw.model") or None) if is_mac else None,
        "gpu_cores": int(cores[1]) if cores else None,
        "load": system.load(),
        "blas": None if facts.blas is None else facts.blas.name,
    }
    same = [one.name for one in fields(Machine) if one.name not in more]
    return Machine(**{name: getattr(facts, name) for name in same}, **more)
