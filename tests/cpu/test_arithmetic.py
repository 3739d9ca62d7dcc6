"""The arithmetic of the kernels without MLX, for each kind of processor that can be run here."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from akunu_py.cpu import places, processor

CHECKS = Path(__file__).with_name("arithmetic_checks.cpp")
EMULATED = {"aarch64": ("aarch64-linux-gnu-g++", "qemu-aarch64")}
"""A compiler and an emulator for processors of another kind than this machine's."""


def programs(level):
    """The compiler for a level, and what runs the program that it makes; skips where they are not."""
    if level in processor.levels():
        compiler, emulator = "g++", []
    elif level in EMULATED and platform.machine() != level:
        compiler, *emulator = EMULATED[level]
    else:
        pytest.skip(f"this processor is not {level}")
    for program in (compiler, *emulator):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return compiler, emulator


@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux", reason="the kernels are for Linux")
@pytest.mark.parametrize("level", processor.LEVELS)
def test_sums_are_right_and_rows_the_same_alone(level, tmp_path):
    compiler, emulator = programs(level)
    options = [option for option in places.OPTIONS if option != "-shared"]
    # No libraries of the other machine are needed to run it.
    command = [
        compiler, *options, "-O3", *processor.options(level), "-static", f'-DLEVEL="{level}"',
        "-I", places.SOURCES, places.SOURCES / "arithmetic.cpp", CHECKS, "-o", tmp_path / "checks",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    done = subprocess.run(
        [*emulator, tmp_path / "checks"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" 0 wrong\n")
