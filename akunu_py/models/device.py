"""The device that MLX computes on, the memory of the machine, and the frame of a reply's passes."""

import contextlib
import ctypes
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.cpu import load_kernels
from akunu_py.system.errors import ConfigError, MemoryLimitError
from akunu_py.system.settings import METAL_VARIABLE

_MEMORY_INFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def on_cpu() -> bool:
    """Return whether MLX computes on its CPU backend.

    There 16 bits are many times slower than float32, and so are quantized products without the
    kernels of `akunu_py.cpu`.
    """
    return bool(mx.default_device() == mx.Device(mx.cpu))


def may_choose_products() -> bool:
    """Return whether products of few rows may be akunu's own: on Metal, unless AKUNU_METAL is mlx.

    Raises ConfigError for another value than "auto" and "mlx".
    """
    wanted = os.environ.get(METAL_VARIABLE) or "auto"
    if wanted not in ("auto", "mlx"):
        raise ConfigError(f"{METAL_VARIABLE} is {wanted!r:.80}; give auto or mlx")
    return wanted == "auto" and not on_cpu() and bool(mx.metal.is_available())


@functools.cache
def has_kernels() -> bool:
    """Return whether the kernels of `akunu_py.cpu` compute on the CPU backend.

    A call that they take shows it: whether the linker found them depends on what was opened before.
    """
    kernels = load_kernels()
    before = kernels.num_taken()
    mx.sigmoid(mx.zeros(1), stream=mx.cpu)
    return kernels.num_taken() > before


def disable_compile_with_kernels() -> None:
    """Run functions as they are written, in the whole process, if kernels of the CPU compute.

    What MLX compiles there (`mx.compile`) calls no kernel, and its exponentials take ten times as
    long.
    """
    if on_cpu() and has_kernels():
        mx.disable_compile()


@functools.cache
def replies_stream() -> Any:
    """Return the stream, one for each thread, in which all sessions queue their passes.

    MLX never ends a stream: each keeps a thread on the CPU backend, and `mx.clear_cache` asks every
    one of them. So streams are not made for each session.
    """
    return mx.new_thread_local_stream(mx.default_device())


@functools.cache
def drafts_stream() -> Any:
    """Return the stream, one for each thread, in which models that draft queue their passes.

    It is another one, so that a draft need not wait for the target's step in flight.
    """
    return mx.new_thread_local_stream(mx.default_device())


def physical_memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limit() -> int:
    """Return the bytes of memory that a model on this machine can take.

    On a GPU that is the working set recommended by MLX, else the memory of the machine or the limit
    of its container.
    """
    physical = physical_memory()
    if not on_cpu():
        info = mx.device_info()
        recommended = info.get("max_recommended_working_set_size") or info.get("total_memory")
        return int(recommended or physical)
    try:
        allowed = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):
        return physical
    return min(physical, allowed)


def free_memory() -> int | None:
    """Return the bytes that programs can take without swapping; None where no system says so.

    Linux does: memory that its caches of files would give back is part of it.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in _MEMORY_INFO.read_text().splitlines():
            name, _, size = line.partition(":")
            if name == "MemAvailable":
                return 1024 * int(size.removesuffix("kB"))
    return None


class Pressure(IntEnum):
    """How short of memory macOS says the machine is; `memory_pressure` is its command for it."""

    NORMAL = 1
    WARN = 2
    CRITICAL = 4


def free_buffers() -> None:
    """Give memory back that MLX keeps for later arrays."""
    mx.clear_cache()


def pressure_reader() -> Callable[[], Pressure] | None:
    """Return what reads the pressure; None on systems that do not tell it."""
    if sys.platform != "darwin":
        return None
    return functools.partial(read_pressure, ctypes.CDLL(None))


def read_pressure(system: Any) -> Pressure:
    """Ask the system's library; what it does not know is normal."""
    level = ctypes.c_int(0)
    size = ctypes.c_size_t(ctypes.sizeof(level))
    name = b"kern.memorystatus_vm_pressure_level"
    failed = system.sysctlbyname(name, ctypes.byref(level), ctypes.byref(size), None, 0)
    known = not failed and level.value in set(Pressure)
    return Pressure(level.value) if known else Pressure.NORMAL


def yield_to_others() -> None:
    """Give freed buffers back if memory is short; raise MemoryLimitError if it is critical.

    A Mac that goes on then compresses and swaps until it stands still.
    """
    read = pressure_reader()
    pressure = Pressure.NORMAL if read is None else read()
    if pressure >= Pressure.WARN:
        free_buffers()
    if pressure is Pressure.CRITICAL:
        raise MemoryLimitError(
            "macOS says that memory is critically short; close other programs, or take a smaller "
            "model or a shorter context, and try again"
        )


_log = logging.getLogger(__name__)

_CLOSE = 0.9
"""Share of Metal's recommended memory from which a model may be slow."""


_MARGIN = 10**9
"""Bytes that are wired beside a model's weights, for caches and passes."""


class _WiredLimit:
    """Metal's wired limit, of which a process has one.

    It is raised once for a model and never lowered. Kernels panicked where it was changed with each
    reply while prompt caches came and went (ml-explore/mlx#3186), and small Macs froze where all
    that the GPU may use was wired.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0

    def raise_to(self, wanted: int) -> None:
        with self._lock:
            if wanted > self._bytes:
                mx.set_wired_limit(wanted)
                self._bytes = wanted


_wired_limit = _WiredLimit()


class ReplyFrame:
    """Frames the replies of one model on one stream.

    On Metal the first one wires the weights and a margin, if they are to be `wired`: otherwise
    macOS may page them out between passes.
    """

    def __init__(self, stream: mx.Stream | mx.ThreadLocalStream, *, wired: bool = True) -> None:
        self._stream = stream
        self._wired = wired
        self._begun = False

    @contextlib.contextmanager
    def __call__(self, model: nn.Module) -> Iterator[None]:
        """Frame one reply: peak memory counts from here.

        Replies may overlap; their peaks then count from where the last of them began. Raises as
        `yield_to_others` does.
        """
        yield_to_others()
        mx.reset_peak_memory()
        if not self._begun:
            self._begun = True
            self._begin(model)
        try:
            yield
        finally:
            # A pass may still be running, and its thread must not end.
            mx.synchronize(self._stream)

    def _begin(self, model: nn.Module) -> None:
        """Warn of a model that the GPU hardly holds, and wire it; without Metal, do nothing."""
        most = mx.device_info().get("max_recommended_working_set_size")
        if most is None:
            return
        size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        if size > _CLOSE * int(most):
            _log.warning(
                "the model takes %.1f GB of the %.1f GB that the GPU should use at most, which can "
                "be slow; akunu doctor says how to raise the limit",
                size / 1e9,
                int(most) / 1e9,
            )
        if self._wired:
            _wired_limit.raise_to(min(size + _MARGIN, int(most)))
