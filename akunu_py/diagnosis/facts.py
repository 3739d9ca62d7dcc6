"""Facts about a machine that bear on how models run."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from akunu_py.blas import Blas
from akunu_py.diagnosis.system import Backend, System

_PACKAGES = ("mlx", "mlx-lm", "numpy", "tokenizers", "huggingface_hub")
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder akunu writes into: what for, where, whether it can, and free bytes there."""

    purpose: str
    path: Path
    writable: bool
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a machine; None is "does not apply" or "cannot be said".

    Attributes:
        system: operating system and release.
        machine: kind of processor, such as "arm64".
        chip: the processor's name.
        processors: logical ones this process may use.
        memory_bytes: of the machine.
        wired_limit_bytes: what macOS lets the GPU wire at most, where it was set by hand.
        working_set_bytes: what Metal recommends to use at most.
        translated: whether Python runs under Rosetta.
        low_power: whether a Mac is in Low Power Mode.
        backend: what MLX computes with; None where MLX cannot be imported.
        device: MLX's name of it, or why MLX cannot be imported.
        nvidia: names of NVIDIA GPUs the driver knows.
        both_wheels: whether MLX's wheels for CPU and CUDA are both installed.
        blas: what the CPU backend multiplies with; None on a GPU.
        versions: of Python, akunu and the packages below it; None for a missing one.
        needed: the oldest versions of packages that akunu takes.
        folders: those akunu writes into.

    """

    system: str
    machine: str
    chip: str | None
    processors: int
    memory_bytes: int | None
    wired_limit_bytes: int | None
    working_set_bytes: int | None
    translated: bool
    low_power: bool
    backend: Backend | None
    device: str
    nvidia: tuple[str, ...]
    both_wheels: bool
    blas: Blas | None
    versions: dict[str, str | None]
    needed: dict[str, str]
    folders: tuple[Folder, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        folders = [{**asdict(folder), "path": str(folder.path)} for folder in self.folders]
        return {**asdict(self), "nvidia": list(self.nvidia), "folders": folders}


def read_facts(system: System, akunu: str, folders: dict[str, Path]) -> Facts:
    """Ask a machine; `akunu` is the version of this package, `folders` what folders are for."""
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
        # 0 is macOS' own limit, which the working set tells.
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
