"""The device that MLX computes on, and the memory of the machine."""

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

import mlx.core as mx

from akunu_py.cpu import load_kernels

_MEMORY_INFO = Path("/proc/meminfo")


def on_cpu() -> bool:
    """Return whether MLX computes on its CPU backend.

    There 16 bits are many times slower than float32, and so are quantized products without the
    kernels of `akunu_py.cpu`.
    """
    return bool(mx.default_device() == mx.Device(mx.cpu))


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
