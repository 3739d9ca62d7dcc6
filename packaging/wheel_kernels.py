"""A hook of hatch that builds the kernels of CPUs into a wheel for Linux; see README.md.

The libraries are for the version of MLX in the environment of the build.
"""

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Processors with less build their own.
LEVELS = {"x86_64": ("x86-64-v3", "x86-64-v4", "x86-64-v4-vnni"), "aarch64": ("aarch64",)}


class KernelsHook(BuildHookInterface):
    def initialize(self, version, build_data):
        machine = platform.machine()
        if version == "editable" or sys.platform != "linux" or machine not in LEVELS:
            return
        self.folder = tempfile.TemporaryDirectory()
        for level in LEVELS[machine]:
            subprocess.run(
                [
                    sys.executable, "-m", "akunu_py.cpu.build", level,
                    "--into", str(Path(self.folder.name, level)),
                ],
                check=True, env=os.environ | {"PYTHONPATH": self.root},
            )  # fmt: skip
        version = importlib.metadata.version("mlx")
        build_data["force_include"][self.folder.name] = f"akunu_py/cpu/prebuilt/{version}"
        build_data["pure_python"] = False
        # For all versions of Python; auditwheel says for which systems.
        build_data["tag"] = f"py3-none-linux_{machine}"

    def finalize(self, version, build_data, artifact_path):
        if hasattr(self, "folder"):
            self.folder.cleanup()
