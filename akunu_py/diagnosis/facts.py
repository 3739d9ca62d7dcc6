"""Facts about a machine that matter for running models."""

import re
from dataclasses import dataclass
from pathlib import Path

from akunu_py.cpu.blas import Blas
from akunu_py.diagnosis.system import Backend, System

_PACKAGES = ("mlx", "mlx-lm", "numpy", "tokenizers", "huggingface_hub")
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that akunu writes to: purpose, path, whether it is writable, and free bytes."""

    purpose: str
    path: Path
    writable: bool
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a machine; None means that a fact does not apply or is unknown."""

    system: str  # With its release.
    machine: str  # Kind of processor, such as "arm64".
    chip: str | None
    processors: int  # Logical ones that this process may use.
    memory_bytes: int | None
    load: float | None  # Mean over one minute, before akunu's own.
    wired_limit_bytes: int | None  # Of a Mac's GPU, if it was set by hand.
    working_set_bytes: int | None  # Limit that Metal recommends.
    translated: bool  # Whether Python runs under Rosetta.
    low_power: bool
    backend: Backend | None  # None if MLX cannot be imported.
    device: str  # MLX's name of the device, or the reason why MLX cannot be imported.
    nvidia: tuple[str, ...]  # Names of GPUs that the driver knows.
    both_wheels: bool  # Whether MLX's wheels for CPU and CUDA are both installed.
    blas: Blas | None  # Of the CPU backend.
    no_kernels: str | None  # As in `Device`.
    versions: dict[str, str | None]  # Of Python, akunu and its dependencies; None: missing.
    needed: dict[str, str]  # Supported versions of packages, as in ">=0.32,<0.33".
    folders: tuple[Folder, ...]


def read_facts(system: System, akunu: str, folders: dict[str, Path]) -> Facts:
    """Read the facts of a machine; `akunu` is this package's version, `folders` maps purposes."""
    mac = system.name == "Darwin"
    device = system.device()
    nvidia = system.output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    wired = _number(_sysctl(system, "iogpu.wired_limit_mb")) if mac else None
    needed = system.needed()
    return Facts(
        system=f"{'macOS' if mac else system.name} {system.release}",
        machine=system.machine,
        chip=_sysctl(system, "machdep.cpu.brand_string") if mac else _linux_chip(system),
        processors=system.processors(),
        memory_bytes=system.memory_bytes(),
        load=system.load(),
        # 0 is macOS' own limit, which the working set shows.
        wired_limit_bytes=wired * _MEGABYTE if wired else None,
        working_set_bytes=None if isinstance(device, str) else device.working_set_bytes,
        translated=mac and _sysctl(system, "sysctl.proc_translated") == "1",
        low_power=mac and _low_power(system),
        backend=None if isinstance(device, str) else device.backend,
        device=device if isinstance(device, str) else device.name,
        nvidia=tuple(line.strip() for line in (nvidia or "").splitlines() if line.strip()),
        both_wheels=system.version("mlx-cpu") is not None
        and any(system.version(name) for name in ("mlx-cuda", "mlx-cuda-12", "mlx-cuda-13")),
        blas=None if isinstance(device, str) else device.blas,
        no_kernels=None if isinstance(device, str) else device.no_kernels,
        versions={
            "akunu": akunu,
            "python": system.python,
            **{name: system.version(name) for name in _PACKAGES},
        },
        needed={
            name: needed[name.replace("_", "-")]
            for name in _PACKAGES
            if name.replace("_", "-") in needed
        },
        folders=tuple(
            Folder(purpose, path, system.writable(path), system.free_bytes(path))
            for purpose, path in folders.items()
        ),
    )


def _sysctl(system: System, name: str) -> str | None:
    return system.output("sysctl", "-n", name) or None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _low_power(system: System) -> bool:
    settings = system.output("pmset", "-g") or ""
    return re.search(r"^\s*lowpowermode\s+1\s*$", settings, re.MULTILINE) is not None


def _linux_chip(system: System) -> str | None:
    found = re.search(r"^model name\s*:\s*(.+)$", system.text("/proc/cpuinfo") or "", re.MULTILINE)
    return found[1].strip() if found else None
