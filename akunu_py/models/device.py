"""The device that MLX computes on, and the memory of the machine."""

import os

import mlx.core as mx


def on_cpu() -> bool:
    """Return whether MLX computes on its CPU backend.

    There 16 bits and quantized products are many times slower than dense float32.
    """
    return bool(mx.default_device() == mx.Device(mx.cpu))


def physical_memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
