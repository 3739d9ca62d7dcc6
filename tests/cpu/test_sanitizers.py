"""The tests of the operations once more, with kernels that watch their memory and arithmetic."""

import shutil
import subprocess
from pathlib import Path

import pytest
from programs import python

from akunu_py.cpu import load_kernels

KERNELS = load_kernels()
pytestmark = pytest.mark.skipif(KERNELS.path is None, reason=f"no kernels: {KERNELS.reason}")

# The functions of replacements.c run before a sanitizer is ready.
COMPILER = """#!/bin/sh
case "$*" in *.cpp*)
    set -- "$@" -O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all ;;
esac
exec g++ "$@"
"""

PROGRAM = """
import os, sys
import pytest
from akunu_py.cpu import load_kernels

load_kernels()
del os.environ["LD_PRELOAD"]
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", sys.argv[1]]))
"""


def preloaded():
    """The libraries of GCC's sanitizers, which a program that was not built with them loads first."""
    if shutil.which("g++") is None:
        return []
    asked = [["g++", f"-print-file-name=lib{name}.so"] for name in ("asan", "ubsan")]
    found = [subprocess.check_output(command, text=True).strip() for command in asked]
    return [path for path in found if Path(path).is_absolute()]


@pytest.mark.slow
@pytest.mark.skipif(len(preloaded()) < 2, reason="GCC has no sanitizers here")
def test_no_kernel_leaves_its_memory(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    variables = {
        # Whoever names a level waits until its kernels are built.
        "AKUNU_CPU": KERNELS.level,
        "AKUNU_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler),
        "LD_PRELOAD": " ".join(preloaded()), "ASAN_OPTIONS": "detect_leaks=0",
    }  # fmt: skip
    operations = Path(__file__).with_name("test_operations.py")
    python("-c", PROGRAM, operations, variables=variables)
