"""Opens the libraries of kernels, and lets `akunu_py.cpu.build` make them where they are missing.

MLX's own CPU kernels multiply packed weights so slowly that they would have to be expanded to
float32, four times their size. The functions of these libraries take the place of some of MLX's. So
`load_kernels` must run before the first import of MLX, and the rooms that import MLX call it.

The variable AKUNU_CPU decides: "auto", the default, builds the libraries with the system's C++
compiler where that was not done yet; "mlx" leaves MLX its own kernels; a path names a folder with
libraries. Whatever goes wrong with "auto" also leaves MLX its own.
"""

import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from akunu_py.cpu.blas import follow_threads, load_blas
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import cache_folder

_log = logging.getLogger(__name__)

KERNELS_VARIABLE = "AKUNU_CPU"

SOURCES = Path(__file__).parent
ARITHMETIC, KERNELS, REPLACEMENTS = "arithmetic", "kernels", "replacements"
"""The libraries: NAME-DIGEST.so, with the digest of its bytes."""

OPTIONS = (
    "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi",
)  # fmt: skip
PROCESSOR = (
    # For this processor alone; the key of the cache names it.
    "-mcpu=native" if platform.machine() == "aarch64" else "-march=native",
    # GCC 12 tunes for a Zen 4 as for its predecessor: products of many rows took 1.7 times as long.
    "-mtune=generic",
)
"""The compiler's options for all, and for the arithmetic alone."""

BLAS_ROWS = ctypes.c_uint64(128)
"""Rows from which OpenBLAS multiplies dense weights; passes that verify drafts have fewer."""

_COMPILERS = ("c++", "g++", "clang++")
_BUILD_S = 300
_MOST_FUNCTIONS = 16
_ERRORS = (OSError, subprocess.SubprocessError, importlib.metadata.PackageNotFoundError)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of MLX's CPU backend.

    Attributes:
        path: the folder of the libraries; None where MLX keeps its own.
        reason: why MLX keeps its own.
        num_taken: returns how many calls the kernels took so far.

    """

    path: Path | None
    reason: str = ""
    num_taken: Callable[[], int] = lambda: 0

    @property
    def name(self) -> str:
        """Name for people and for keys of caches."""
        return "MLX's own" if self.path is None else "akunu's"


@functools.cache
def load_kernels() -> Kernels:
    """Open the libraries that AKUNU_CPU names, once; after the import of MLX this has no effect.

    OpenBLAS is loaded before them, since they bring MLX's library with them. Raises ConfigError for
    a value that is neither a known word nor a folder with libraries.
    """
    blas = load_blas()
    wanted = os.environ.get(KERNELS_VARIABLE) or "auto"
    if sys.platform != "linux":
        return _without("they are for Linux")
    if wanted == "mlx":
        return _without(f"{KERNELS_VARIABLE} is mlx")
    if "mlx.core" in sys.modules:
        return _without("MLX was imported before akunu")
    try:
        folder = _built() if wanted == "auto" else Path(wanted)
        library = open_kernels(folder)
        lead(library, folder)
    except _ERRORS as error:
        if wanted == "auto":
            return _without(str(error))
        raise ConfigError(
            f"{KERNELS_VARIABLE} is {wanted!r:.200}, which cannot be used as a folder of kernels: "
            f"{error}; give auto, mlx, or the path of one"
        ) from None
    if not blas.own:
        library.akunu_leave_to_blas(BLAS_ROWS)
    follow_threads(library.akunu_use_threads)
    _log.info("MLX's CPU backend computes with the kernels in %s", folder)
    return Kernels(folder, num_taken=library.akunu_taken)


def _without(reason: str) -> Kernels:
    _log.info("MLX's CPU backend computes with its own kernels: %s", reason)
    return Kernels(None, reason)


def open_kernels(folder: Path) -> ctypes.CDLL:
    """Open the libraries of kernels, which bring MLX's; raises OSError if one is missing."""
    arithmetic = ctypes.CDLL(str(_library(folder, ARITHMETIC)))
    arithmetic.akunu_arithmetic.restype = ctypes.c_void_p
    library = ctypes.CDLL(str(_library(folder, KERNELS)))
    library.akunu_compute_with(ctypes.c_void_p(arithmetic.akunu_arithmetic()))
    library.akunu_taken.restype = ctypes.c_uint64
    return library


def replacements(kernels: ctypes.CDLL) -> list[tuple[str, int]]:
    """Return the linker's names of the functions that are replaced, and where the new ones are."""
    names = (ctypes.c_char_p * _MOST_FUNCTIONS)()
    functions = (ctypes.c_void_p * _MOST_FUNCTIONS)()
    number = kernels.akunu_replacements(names, functions)
    return [((names[i] or b"").decode(), functions[i] or 0) for i in range(number)]


def lead(kernels: ctypes.CDLL, folder: Path) -> None:
    """Lead MLX's calls to the kernels, if it is imported after this; raises OSError."""
    library = ctypes.CDLL(str(_library(folder, REPLACEMENTS)), ctypes.RTLD_GLOBAL)
    for number, (_, function) in enumerate(replacements(kernels)):
        library.akunu_lead(number, ctypes.c_void_p(function))


def _library(folder: Path, name: str) -> Path:
    """Return a library of a folder, which must have the bytes it was written with.

    Raises OSError if it has not, or if somebody else could have written it.
    """
    for path in folder.glob(f"{name}-*.so"):
        status = path.lstat()
        ours = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if ours and stat.S_ISREG(status.st_mode) and path.stem == f"{name}-{digest(path)}":
            return path.resolve()
    raise OSError(f"{folder} has no library of {name}, or a damaged one")


def digest(path: Path) -> str:
    """Return the digest that is part of a library's name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _built() -> Path:
    """Return the folder of libraries for this MLX and processor; build them if need be.

    Raises OSError with the reason if they cannot be built, also if that was so before.
    """
    mlx, compiler = _mlx_folder(), _compiler()
    folder = cache_folder() / "kernels" / _key(mlx, compiler)
    failed = folder.with_suffix(".failed")
    if folder.is_dir():
        try:
            for name in (ARITHMETIC, KERNELS, REPLACEMENTS):
                _library(folder, name)
        except OSError:
            shutil.rmtree(folder)
        else:
            return folder
    if failed.is_file():
        raise OSError(f"{failed.read_text(encoding='utf-8')} ({failed} remembers it)")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.stderr.isatty():
        _log.warning("building kernels for this processor, once; about 10 seconds")
    # In a process of its own: it opens what it built, which may crash.
    command = [sys.executable, "-m", "akunu_py.cpu.build", str(folder), str(mlx), compiler]
    environment = os.environ | {KERNELS_VARIABLE: "mlx", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # noqa: S603 - akunu itself
        command, capture_output=True, text=True, errors="replace", timeout=_BUILD_S, check=False,
        env=environment,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        reason = f"the kernels could not be built: {said[-1]:.300}"
        failed.write_text(reason, encoding="utf-8")
        raise OSError(reason)
    return folder


def _mlx_folder() -> Path:
    """Return the folder of the package MLX; raises OSError if its wheel has no headers."""
    spec = importlib.util.find_spec("mlx")
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place)
        if (folder / "include/mlx/mlx.h").is_file() and (folder / "lib/libmlx.so").is_file():
            return folder
    raise OSError("MLX is installed without the headers of its library")


def _compiler() -> str:
    """Return the C++ compiler: that of CXX, or the system's; raises OSError if there is none."""
    named = os.environ.get("CXX")
    found = next(filter(None, map(shutil.which, [named] if named else _COMPILERS)), None)
    if found is None:
        raise OSError(
            "there is no C++ compiler; install one (on Debian and Ubuntu: apt install g++)"
        )
    return found


def _key(mlx: Path, compiler: str) -> str:
    """Return a name for what libraries depend on."""
    first = Path("/proc/cpuinfo").read_bytes().split(b"\n\n")[0]
    kinds = (b"flags", b"features", b"model", b"cpu part")
    processor = [line for line in first.splitlines() if line.lower().startswith(kinds)]
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in {".c", ".cpp", ".h"})
    parts = [
        importlib.metadata.version("mlx").encode(), str(mlx).encode(), compiler.encode(),
        repr(OPTIONS + PROCESSOR).encode(), *processor, *(path.read_bytes() for path in sources),
    ]  # fmt: skip
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[
        :32
    ]
