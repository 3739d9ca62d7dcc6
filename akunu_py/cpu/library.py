"""Opens the libraries of kernels, and lets `akunu_py.cpu.build` make them where they are missing.

MLX's own CPU kernels multiply packed weights so slowly that they would have to be expanded to
float32, four times their size. The functions of these libraries take the place of some of MLX's. So
`load_kernels` must run before the first import of MLX, and the rooms that import MLX call it.

The variable AKUNU_CPU decides: "auto", the default, takes the libraries that were shipped or built
for this machine; where there are none it begins to build them for later starts, and MLX's own
kernels compute meanwhile. A level of processors ("x86-64-v3") takes those of that level and waits
for them; "mlx" leaves MLX its own kernels; a path names a folder with libraries. Whatever goes
wrong with "auto" also leaves MLX its own.
"""

import atexit
import ctypes
import functools
import importlib.metadata
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from akunu_py.cpu import places, processor
from akunu_py.cpu.blas import follow_threads, load_blas
from akunu_py.cpu.places import ARITHMETIC, KERNELS, REPLACEMENTS, Wanted
from akunu_py.system.errors import ConfigError

_log = logging.getLogger(__name__)

KERNELS_VARIABLE = "AKUNU_CPU"

_MOST_FUNCTIONS = 16
_ERRORS = (OSError, ValueError, subprocess.SubprocessError, importlib.metadata.PackageNotFoundError)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of MLX's CPU backend.

    Attributes:
        path: the folder of the libraries; None where MLX keeps its own.
        reason: why MLX keeps its own.
        level: the level of processors that they were built for.
        num_taken: returns how many calls the kernels took so far.

    """

    path: Path | None
    reason: str = ""
    level: str = ""
    num_taken: Callable[[], int] = lambda: 0

    @property
    def name(self) -> str:
        """Name for people and for keys of caches: levels take different times."""
        return "MLX's own" if self.path is None else f"akunu's for {self.level}"


@functools.cache
def load_kernels() -> Kernels:
    """Open the libraries that AKUNU_CPU names, once; after the import of MLX this has no effect.

    OpenBLAS is loaded before them, since they bring MLX's library with them. Raises ConfigError for
    a value that is neither a known word nor a folder with libraries, and for a level that the
    machine lacks or whose kernels cannot be built.
    """
    load_blas()
    wanted = os.environ.get(KERNELS_VARIABLE) or "auto"
    if sys.platform != "linux":
        return _without("they are for Linux")
    if wanted == "mlx":
        return _without(f"{KERNELS_VARIABLE} is mlx")
    if "mlx.core" in sys.modules:
        _log.warning(
            "MLX was imported before akunu's engine, so it computes with its own kernels, at about "
            "a quarter of the speed; put `from akunu_py import Engine` before the import of MLX"
        )
        return _without("MLX was imported before akunu")
    try:
        if wanted == "auto":
            folder = _found_or_begun(places.wanted())
        elif wanted in processor.LEVELS:
            folder = _found_or_built(wanted)
        else:
            folder = Path(wanted)
        library = open_kernels(folder)
        level = give_arithmetic(library, folder)
        lead(library, folder)
    except _ERRORS as error:
        if wanted == "auto":
            return _without(str(error))
        raise ConfigError(
            f"{KERNELS_VARIABLE} is {wanted!r:.200}, but there are no such kernels: {error}; give "
            f"auto, mlx, one of {', '.join(processor.levels())}, or the path of a folder of kernels"
        ) from None
    follow_threads(library.akunu_use_threads)
    _log.info("MLX's CPU backend computes with the kernels in %s", folder)
    return Kernels(folder, level=level, num_taken=library.akunu_taken)


def _without(reason: str) -> Kernels:
    _log.info("MLX's CPU backend computes with its own kernels: %s", reason)
    return Kernels(None, reason)


def open_kernels(folder: Path) -> ctypes.CDLL:
    """Open the library of kernels that knows MLX; raises OSError if there is none."""
    # The kernels name MLX's library, but not its folder.
    ctypes.CDLL(str(places.mlx_folder() / "lib/libmlx.so"))
    library = ctypes.CDLL(str(places.library(folder, KERNELS)))
    library.akunu_taken.restype = ctypes.c_uint64
    return library


def give_arithmetic(kernels: ctypes.CDLL, folder: Path) -> str:
    """Give the kernels their arithmetic; return the level of processors that it is for.

    Raises OSError if there is none, or if this processor is of another level.
    """
    arithmetic = ctypes.CDLL(str(places.library(folder, ARITHMETIC)))
    arithmetic.akunu_arithmetic.restype = ctypes.c_void_p
    arithmetic.akunu_level.restype = ctypes.c_char_p
    level = str(arithmetic.akunu_level().decode())
    if level not in processor.levels():
        raise OSError(f"they are for {level}, which this processor is not")
    kernels.akunu_compute_with(ctypes.c_void_p(arithmetic.akunu_arithmetic()))
    return level


def replacements(kernels: ctypes.CDLL) -> list[tuple[str, int]]:
    """Return the linker's names of the functions that are replaced, and where the new ones are."""
    names = (ctypes.c_char_p * _MOST_FUNCTIONS)()
    functions = (ctypes.c_void_p * _MOST_FUNCTIONS)()
    number = kernels.akunu_replacements(names, functions)
    return [((names[i] or b"").decode(), functions[i] or 0) for i in range(number)]


def lead(kernels: ctypes.CDLL, folder: Path) -> None:
    """Lead MLX's calls to the kernels, if it is imported after this; raises OSError."""
    library = ctypes.CDLL(str(places.library(folder, REPLACEMENTS)), ctypes.RTLD_GLOBAL)
    for number, (_, function) in enumerate(replacements(kernels)):
        library.akunu_lead(number, ctypes.c_void_p(function))


def _found_or_built(level: str) -> Path:
    """Return the folder of libraries of a level; wait until they are built if need be."""
    if level not in processor.levels():
        raise OSError("this machine is of another level")
    if (folder := places.wanted(level).found()) is None:
        _log.warning("building kernels for %s first", level)
        # In a process of its own: it opens what it built, which may crash.
        done = subprocess.run(  # noqa: S603 - akunu itself
            _builder(level), capture_output=True, text=True, errors="replace", check=False,
            env=_environment(),
        )  # fmt: skip
        folder = places.wanted(level).found()
        if folder is None:
            raise OSError((done.stderr.strip().splitlines() or ["nothing was built"])[-1])
    return folder


def _found_or_begun(wanted: Wanted) -> Path:
    """Return the folder of libraries; raise OSError if they must be built first, or cannot be.

    Building begins then, in a process that this one does not wait for.
    """
    _tell_news()
    if folder := wanted.found():
        return folder
    note = places.writable_store() / f"{wanted.name}.failed"
    if reason := places.remembered(note):
        raise OSError(reason)
    if not wanted.ready_made(KERNELS):
        try:
            places.compiler()
        except OSError as error:
            _log.warning(places.CANNOT, error)
            places.remember(note, str(error))
            raise
    _log.warning(
        "building kernels for this processor, for the next start; this one computes with MLX's "
        "own, at about a quarter of the speed"
    )
    atexit.register(_tell_news)
    nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    command = [*_builder(wanted.level), "--background"]
    os.posix_spawn(command[0], command, _environment(), file_actions=nothing, setsid=True)
    raise OSError("they are being built; the next start has them")


def _tell_news() -> None:
    for line in places.taken_news():
        _log.warning("%s", line)


def _builder(level: str) -> list[str]:
    return [sys.executable, "-m", "akunu_py.cpu.build", level]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
