"""Machines that are not here: a Mac, Linux with and without CUDA."""

from dataclasses import dataclass, field
from pathlib import Path

from akunu_py.cpu.blas import Blas
from akunu_py.diagnosis.system import Device

GB = 10**9
VERSIONS = dict.fromkeys(("mlx", "mlx-lm", "numpy", "tokenizers", "huggingface_hub"), "1.0")
OWN = Device("cpu", "AMD EPYC", None, Blas("MLX's own", own=True, reason="AKUNU_BLAS is mlx"))
FAST = Device("cpu", "AMD EPYC", None, Blas("OpenBLAS 0.3.34", own=False))


@dataclass
class FakeSystem:
    name: str = "Linux"
    release: str = "6.8"
    machine: str = "x86_64"
    python: str = "3.12.1"
    environment: dict = field(default_factory=dict)
    programs: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    versions: dict = field(default_factory=lambda: dict(VERSIONS))
    needs: dict = field(default_factory=dict)
    memory: int | None = 64 * GB
    busy: float | None = 0.5
    found: Device | str = field(default_factory=lambda: Device("cpu", "AMD EPYC", None))
    read_only: set = field(default_factory=set)
    free: int | None = 500 * GB

    def output(self, *words):
        return self.programs.get(words)

    def text(self, path):
        return self.files.get(path)

    def version(self, package):
        return self.versions.get(package)

    def needed(self):
        return self.needs

    def memory_bytes(self):
        return self.memory

    def processors(self):
        return 10

    def load(self):
        return self.busy

    def free_bytes(self, folder):
        return self.free

    def writable(self, folder):
        return folder not in self.read_only

    def device(self):
        return self.found


def sysctl(**values):
    return {("sysctl", "-n", name.replace("__", ".")): str(value) for name, value in values.items()}


def mac(**values):
    """An M4 with 32 GiB; what is given changes it."""
    told = {"machdep__cpu__brand_string": "Apple M4", "iogpu__wired_limit_mb": 0}
    told |= {"sysctl__proc_translated": 0, **values}
    return FakeSystem(
        name="Darwin",
        release="26.1",
        machine="arm64",
        memory=32 * 2**30,
        programs={**sysctl(**told), ("pmset", "-g"): " lowpowermode         0\n sleep 1"},
        found=Device("metal", "Apple M4", 22_906_503_168),
    )


def linux(**changes):
    texts = {
        "/proc/cpuinfo": "processor : 0\nmodel name\t: AMD EPYC 9\ncache : 1\nmodel name\t: other"
    }
    return FakeSystem(files=texts, **changes)


FOLDERS = {
    "measured costs": Path("/home/u/.cache/akunu"),
    "settings": Path("/home/u/.config/akunu"),
}
