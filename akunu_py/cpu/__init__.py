"""Kernels for MLX's CPU backend on Linux, shipped or built there; see docs/linux.md."""

from akunu_py.cpu.library import KERNELS_VARIABLE, Kernels, load_kernels

__all__ = ["KERNELS_VARIABLE", "Kernels", "load_kernels"]
