"""What a measurement was made with: versions and machine, so that two can be compared."""

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Self

import mlx.core as mx

import akunu_py


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions, operating system, and the device that MLX computes on."""

    akunu: str
    mlx: str
    mlx_lm: str
    python: str
    platform: str
    machine: str
    device: str
    device_name: str

    @classmethod
    def current(cls) -> Self:
        """Return that of this process."""
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
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # Built from source and put on the path by hand.
        return "unknown"
