"""Access to the machine: programs, files, versions and MLX's device. Tests replace it."""

import errno
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from akunu_py.cpu import load_kernels
from akunu_py.cpu.blas import Blas, load_blas
from akunu_py.system.errors import ConfigError
from akunu_py.system.machine_load import machine_load, usable_processors

Backend = Literal["metal", "cuda", "cpu"]

_SECONDS = 10
_DISTRIBUTION = "akunu-py"


@dataclass(frozen=True, slots=True)
class Device:
    """MLX's device."""

    backend: Backend
    name: str
    working_set_bytes: int | None  # Limit that Metal recommends; None elsewhere.
    blas: Blas | None = None  # Of the CPU backend.
    # Why the CPU backend has none of akunu's kernels; "" if it has; None on a GPU.
    no_kernels: str | None = None


class System:
    """The machine this process runs on; no method raises, and None means unknown."""

    def __init__(self) -> None:
        self.name = platform.system()  # "Darwin", "Linux".
        self.release = platform.mac_ver()[0] or platform.release()
        self.machine = platform.machine()
        self.python = platform.python_version()
        self.environment: Mapping[str, str] = os.environ

    def output(self, *words: str) -> str | None:
        """Return the output of a program, stripped of white space."""
        program = shutil.which(words[0])
        if program is None:
            return None
        try:
            done = subprocess.run(  # noqa: S603 - the words are constants
                [program, *words[1:]],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    def text(self, path: str) -> str | None:
        """Return the content of a file."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def version(self, package: str) -> str | None:
        """Return the version of an installed distribution."""
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    def needed(self) -> dict[str, str]:
        """Return which versions of a distribution are supported: "mlx-lm" to ">=0.32,<0.33"."""
        try:
            lines = requires(_DISTRIBUTION) or []
        except PackageNotFoundError:
            return {}
        found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", line) for line in lines)
        # The oldest first, whatever order the packaging tool wrote.
        return {
            re.sub(r"[-_.]+", "-", match[1]): ",".join(
                sorted(re.findall(r"[<>]=?[\d.]+", match[2].replace(" ", "")), reverse=True)
            )
            for match in found
            if match is not None
        }

    def memory_bytes(self) -> int | None:
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            return None

    def processors(self) -> int:
        """Return the number of logical processors that the process may use."""
        return usable_processors()

    def load(self) -> float | None:
        """Return the load of the machine, a mean over one minute."""
        return machine_load()

    def free_bytes(self, folder: Path) -> int | None:
        """Return the free space at the place of a folder, which need not exist."""
        place = _nearest_existing(folder)
        try:
            return None if place is None else shutil.disk_usage(place).free
        except OSError:
            return None

    def writable(self, folder: Path) -> bool:
        """Return whether files, or a missing folder itself, can be created."""
        place = _nearest_existing(folder)
        try:
            # Permissions are not enough: root has all of them, also on a read-only disk.
            with tempfile.TemporaryFile(dir=place):
                return place is not None
        except OSError as error:
            return error.errno == errno.ENOSPC

    def device(self) -> Device | str:
        """Return MLX's default device, or the reason why MLX cannot be imported."""
        try:
            blas, kernels = load_blas(), load_kernels()
            import mlx.core as mx  # a broken installation is a finding

            info = mx.device_info()
            backend: Backend = "cpu"
            if mx.default_device() != mx.Device(mx.cpu):
                backend = "metal" if mx.metal.is_available() else "cuda"
        except (ConfigError, ImportError, OSError, RuntimeError, AttributeError) as error:
            return str(error)
        limit = info.get("max_recommended_working_set_size")
        return Device(
            backend,
            str(info.get("device_name", "unknown")),
            None if limit is None else int(limit),
            blas if backend == "cpu" else None,
            kernels.reason if backend == "cpu" else None,
        )


def _nearest_existing(folder: Path) -> Path | None:
    """Return a folder, or its nearest existing parent."""
    try:
        return next((place for place in (folder, *folder.parents) if place.exists()), None)
    except OSError:
        return None
