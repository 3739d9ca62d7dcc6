"""Versions and machine of a measurement, so that two can be compared."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

import akunu_py
from akunu_py.bench.rows import Count, Number, Row
from akunu_py.cpu.blas import load_blas
from akunu_py.system.machine_load import machine_load, usable_processors


class Environment(Row, frozen=True):
    """Versions, operating system, and the device that MLX computes on.

    Attributes:
        akunu: version; `mlx`, `mlx_lm` and `python` likewise.
        platform: operating system and kernel.
        machine: kind of processor.
        device: "cpu" or "gpu".
        device_name: the device as MLX calls it.
        commit: of a source checkout, followed by "-dirty" if tracked files were changed;
            None for an installed package.
        cpu_count: logical processors this process may use.
        memory_bytes: the machine's memory; None if the system does not report it.
        blas: library for the CPU backend's matrix products; "" on a GPU.
        load: of the machine when the measurement began, a mean over one minute; None if unknown.

    """

    akunu: str
    mlx: str
    mlx_lm: str
    python: str
    platform: str
    machine: str
    device: str
    device_name: str
    commit: str | None
    cpu_count: Count
    memory_bytes: Count | None
    blas: str
    load: Number | None = None

    @classmethod
    def current(cls) -> Self:
        """Return the environment of this process."""
        load_blas()
        import mlx.core as mx  # reading a result file needs no MLX

        # The machine of a Mac is "arm64" on every chip; the device says which one.
        return cls(
            akunu=akunu_py.__version__,
            mlx=_version("mlx"),
            mlx_lm=_version("mlx-lm"),
            python=platform.python_version(),
            platform=platform.platform(),
            machine=platform.machine(),
            device=str(mx.default_device().type).rpartition(".")[2],
            device_name=str(mx.device_info().get("device_name", "unknown")),
            commit=_commit(),
            cpu_count=usable_processors(),
            memory_bytes=_memory_bytes(),
            blas=load_blas().name if mx.default_device() == mx.Device(mx.cpu) else "",
            load=machine_load(),
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # Built from source and put on the path by hand.
        return "unknown"


def _commit() -> str | None:
    root = Path(akunu_py.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(  # noqa: S603 - the words are constants
            command, cwd=root, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
