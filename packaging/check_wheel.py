#!/usr/bin/env python3
"""Build a wheel with kernels, install it where there is no compiler, and compute with it.

python packaging/check_wheel.py              builds one in a temporary folder
python packaging/check_wheel.py WHEEL        checks this one
python packaging/check_wheel.py --installed  checks the akunu of this Python
"""

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

PRODUCT = """
from akunu_py.cpu import load_kernels
kernels = load_kernels()
import mlx.core as mx
import numpy as np
x, packed = mx.random.normal((5, 64)), mx.quantize(mx.random.normal((96, 64)), group_size=32)
found = np.array(mx.quantized_matmul(x, *packed, group_size=32))
expected = np.array(x, np.float64) @ np.array(mx.dequantize(*packed, group_size=32), np.float64).T
# On AVX2 x is rounded to 16 bits.
assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()
assert kernels.num_taken() > 0, kernels.reason
print("computed with the kernels for", kernels.level, "in", kernels.path)
"""

LEVELS = """
from akunu_py.cpu import places, processor
shipped = {folder.name for folder in places.SHIPPED.glob("*/*")}
print(*shipped.intersection(processor.levels()))
"""

# What was shipped for one version of MLX, as if it were for another that is almost the same.
OTHER_MLX = """
from akunu_py.cpu import places
mlx = places.wanted().mlx
(places.SHIPPED / mlx).rename(places.SHIPPED / (mlx.rpartition(".")[0] + ".99"))
"""


def run(*command, **variables):
    return subprocess.run(
        list(map(str, command)), check=True, env=os.environ | variables, text=True,
        stdout=subprocess.PIPE,
    ).stdout  # fmt: skip


def built(folder):
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT,
        HATCH_BUILD_HOOK_ENABLE_CUSTOM="true",
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def installed(wheel, folder):
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel)
    return python


def check(python, folder):
    """Compute with the kernels of the best level and of each that was shipped."""
    clean = {
        "PATH": str(Path(python).parent), "CXX": "", "HOME": str(folder), "TMPDIR": str(folder),
        "AKUNU_CACHE_DIR": str(folder / "cache"), "AKUNU_CPU": "auto", "PYTHONPATH": "",
    }  # fmt: skip
    os.chdir(folder)
    levels = run(python, "-c", LEVELS, **clean).split()
    assert levels, "no kernels were shipped for this machine"
    for level in ("auto", *levels):
        print(run(python, "-c", PRODUCT, **clean | {"AKUNU_CPU": level}), end="")
    assert not (folder / "cache/kernels").exists(), "kernels were built"
    if str(folder) in str(python):
        run(python, "-c", OTHER_MLX, **clean)
        run(python, "-m", "akunu_py.cpu.build", **clean)
        print(run(python, "-c", PRODUCT, **clean), end="")


def main():
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given == ["--installed"]:
            check(sys.executable, folder)
            return
        wheel = Path(given[0]).resolve() if given else built(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, of that libraries:")
        for file in zipfile.ZipFile(wheel).infolist():
            if file.filename.endswith(".so"):
                sizes = f"{file.compress_size / 1e6:.2f} of {file.file_size / 1e6:.2f} MB"
                print(f"  {sizes} {file.filename}")
        check(installed(wheel, folder / "venv"), folder)


if __name__ == "__main__":
    main()
