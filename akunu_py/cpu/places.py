"""Where the libraries of kernels are: shipped inside akunu, or built on this machine.

A folder holds the libraries for one level of processors and one version of MLX. The files are
called NAME-DIGEST.so, with the digest of their bytes.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from akunu_py.cpu import processor
from akunu_py.system.settings import cache_folder

SOURCES = Path(__file__).parent
SHIPPED = SOURCES / "prebuilt"
"""Of wheels: VERSION OF MLX/LEVEL."""

ARITHMETIC, KERNELS, REPLACEMENTS = NAMES = ("arithmetic", "kernels", "replacements")

NEWS = "news"
"""A file with what became of a build, until somebody is told."""

CANNOT = "akunu computes with MLX's own kernels, at about a quarter of the speed: %s"

OPTIONS = (
    "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi",
)  # fmt: skip

_MLX_SIDE = {
    "arithmetic.h", "chains.h", "operations.cpp", "primitives.h", "threads.h", "replacements.c",
}  # fmt: skip
_COMPILERS = (["c++"], ["g++"], ["clang++"])


@dataclass(frozen=True, slots=True)
class Wanted:
    """The libraries for a level and the MLX that is installed."""

    level: str
    mlx: str
    """MLX's version."""

    # Parts of names stand for what the arithmetic depends on, and what the other libraries do.
    @property
    def arithmetic(self) -> str:
        sources = [path for path in _sources() if path.name not in _MLX_SIDE - {"arithmetic.h"}]
        given = f"{OPTIONS}{processor.options(self.level)}{processor.identity(self.level)}"
        return f"{self.level}-{_digest_of(given, sources)}"

    @property
    def mlx_side(self) -> str:
        sources = [path for path in _sources() if path.name in _MLX_SIDE]
        return f"mlx-{self.mlx}-{_digest_of(str(OPTIONS), sources)}"

    @property
    def name(self) -> str:
        return f"{self.arithmetic}-{self.mlx_side}"

    def found(self) -> Path | None:
        """Return the first folder that has all of them, undamaged."""
        built = (store / self.name for store in stores())
        return next(filter(_is_complete, (SHIPPED / self.mlx / self.level, *built)), None)

    def ready_made(self, name: str) -> Path | None:
        """Return a library made for others that fits these: those of MLX's side after a check."""
        minor = self.mlx.rpartition(".")[0]
        shipped, built = f"*/{self.level}", f"{self.arithmetic}-*"
        if name != ARITHMETIC:
            shipped, built = f"{minor}.*/*", f"*-{self.mlx_side}"
        folders = [SHIPPED.glob(shipped), *(store.glob(built) for store in stores())]
        for folder in chain(*map(sorted, folders)):
            with suppress(OSError):
                return library(folder, name)
        return None


def stores() -> tuple[Path, Path]:
    """Return the folders where libraries may be kept, the better first."""
    beside = Path(tempfile.gettempdir()) / f"akunu-kernels-{os.getuid()}"
    return cache_folder() / "kernels", beside


def wanted(level: str = "") -> Wanted:
    """Return what to look for: for the best level that is shipped or, without one, there is.

    Raises PackageNotFoundError without MLX.
    """
    version = importlib.metadata.version("mlx")
    best = processor.levels()[::-1]
    shipped = (one for one in best if any(SHIPPED.glob(f"*/{one}")))
    return Wanted(level or next(shipped, best[0]), version)


def writable_store() -> Path:
    """Return the folder where libraries are kept: in the cache, else beside temporary files.

    Raises OSError if neither can be used.
    """
    reasons = []
    for store in stores():
        try:
            store.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(store)
            if os.statvfs(store).f_flag & os.ST_NOEXEC:
                reasons.append(f"{store} is on a disk from which nothing runs (noexec)")
                continue
            with tempfile.TemporaryFile(dir=store):
                return store
        except OSError as error:
            reasons.append(str(error))
    raise OSError(f"{'; '.join(reasons)}; AKUNU_CACHE_DIR may name another folder")


def library(folder: Path, name: str) -> Path:
    """Return a library of a folder, which must have the bytes it was written with.

    Raises OSError if it has not, or if somebody else could have written one that was built. Shipped
    ones are as safe as the program.
    """
    for path in folder.glob(f"{name}-*.so"):
        if not path.is_relative_to(SHIPPED):
            _check_owner(path)
        if path.is_file() and path.stem == f"{name}-{digest(path)}":
            return path.resolve()
    raise OSError(f"{folder} has no library of {name}, or a damaged one")


def digest(path: Path) -> str:
    """Return the digest that is part of a library's name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def mlx_folder() -> Path:
    """Return the folder of the package MLX; raises OSError if it has no library."""
    spec = importlib.util.find_spec("mlx")
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "lib/libmlx.so").is_file():
            return Path(place)
    raise OSError("MLX is installed without its library, libmlx.so")


def compiler() -> list[str]:
    """Return the command of CXX, or the system's C++ compiler; raises OSError if there is none."""
    named = os.environ.get("CXX")
    for program, *options in [shlex.split(named)] if named else _COMPILERS:
        if found := shutil.which(program):
            return [str(Path(found).absolute()), *options]
    raise OSError("there is no C++ compiler; install one (on Debian and Ubuntu: apt install g++)")


def identity_of_compiler() -> str:
    """Return a text that tells compilers apart; empty if there is none."""
    with suppress(OSError):
        program, *options = compiler()
        return f"{shlex.join([program, *options])} {Path(program).stat().st_mtime_ns}"
    return ""


def remember(note: Path, reason: str) -> None:
    """Write why libraries cannot be built with this compiler."""
    note.write_text(f"{identity_of_compiler()}\n{reason}", encoding="utf-8")


def remembered(note: Path) -> str:
    """Return the failure that was recorded for this compiler; empty if none was."""
    with suppress(OSError):
        compiler_then, _, reason = note.read_text(encoding="utf-8").partition("\n")
        return reason if compiler_then == identity_of_compiler() else ""
    return ""


def taken_news() -> list[str]:
    """Return the outcome of builds that nobody was told of yet."""
    lines = []
    for store in stores():
        with suppress(OSError):
            _check_owner(store)
            line = (store / NEWS).read_text(encoding="utf-8")
            # Only one of several processes can delete it.
            (store / NEWS).unlink()
            lines.append(line)
    return lines


def _is_complete(folder: Path) -> bool:
    """Return whether a folder has all libraries."""
    with suppress(OSError):
        if not folder.is_relative_to(SHIPPED):
            _check_owner(folder.parent)
        return bool([library(folder, name) for name in NAMES])
    return False


def _check_owner(path: Path) -> None:
    """Raise OSError if others could have written a file or folder, or its name is a link."""
    status = path.lstat()
    shared = stat.S_ISLNK(status.st_mode) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared or status.st_uid != os.getuid():
        raise OSError(f"{path} can be written by others")


def _sources() -> list[Path]:
    return sorted(path for path in SOURCES.iterdir() if path.suffix in {".c", ".cpp", ".h"})


def _digest_of(text: str, sources: list[Path]) -> str:
    parts = [text.encode(), *map(Path.read_bytes, sources)]
    return hashlib.sha256(b"".join(b"%d %b" % (len(part), part) for part in parts)).hexdigest()[:12]
