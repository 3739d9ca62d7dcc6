"""The kernel for few rows on a CPU, lane by lane. There is no Mac here: nothing shows its speed."""

import shutil
import subprocess

import numpy as np
import pytest
from kernel_on_cpu import KernelOnCPU, Matrix

from akunu_py.cpu import places
from akunu_py.gguf.quants.forms import EXACT, form_of
from akunu_py.models.metal.few_rows import BODY, HEADER, MOST_ROWS, Form

SANITIZERS = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SMALLEST = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24}
"""Largest relative error of a number of each type."""


def _forms():
    """Forms that GGUF files have after loading, and those of MLX folders."""
    ways = [
        (name, fitted, q6k)
        for name in EXACT
        for fitted in (False, True)
        for q6k in ("planes", "8bit")
    ]
    forms = [form_of(name, fitted=fitted, q6k=q6k) for name, fitted, q6k in ways]
    found = {(form.bits, form.group_size) for form in forms if form.mode == "affine"}
    return sorted(found | {(bits, group) for bits in (4, 5, 6, 8) for group in (32, 64, 128)})


# 16 bits hide most orders of sums, float32 none.
CASES = [(*form, "float") for form in _forms()]
CASES += [(bits, 32, "half") for bits in (1, 2, 3, 4, 5, 6, 8)]
CASES += [(bits, 64, "bfloat") for bits in (1, 4, 8)]


@pytest.fixture
def kernel(tmp_path, request):
    try:
        places.compiler()
    except OSError as error:
        pytest.skip(str(error))
    kernel = KernelOnCPU(tmp_path, *request.param, *SANITIZERS)
    yield kernel
    kernel.close()


# What OpenCL's C++ and the Metal language share: where memory is.
OPENCL = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device __global
#define thread __private
#define METAL_FUNC inline __attribute__((always_inline))
float simd_sum(float);
#include "few_rows.h"
kernel void few(const device TYPE *x, const device uint *w, const device TYPE *scales,
                const device TYPE *biases, device TYPE *y, constant int *x_shape, constant int *w_shape) {
  constexpr int BITS = FORM_BITS, GROUP = 32, VALUES = FORM_VALUES, ROWS = FORM_ROWS, OUTPUTS = FORM_OUTPUTS;
  typedef TYPE T;
  const uint thread_index_in_simdgroup = get_local_id(0);
  const uint3 thread_position_in_grid = (uint3)(thread_index_in_simdgroup, get_global_id(1), 0);
"""


@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang")
@pytest.mark.fast_every(4)
@pytest.mark.parametrize(
    ("bits", "rows"), [(bits, rows) for bits in (1, 2, 3, 4, 5, 6, 8) for rows in (4, 8, 16)]
)
def test_memory_is_where_the_kernel_says_and_all_numbers_of_a_thread_are_in_registers(
    tmp_path, bits, rows
):
    """C++ has no address spaces, and no compiler of Metal is here; what the optimizer leaves is no register."""
    form = Form(8, 4096, bits, 32)
    tile, outputs = form.tile(rows)
    sizes = {"BITS": bits, "VALUES": form.values, "ROWS": tile, "OUTPUTS": outputs}
    (tmp_path / "few_rows.clcpp").write_text(f"{OPENCL}{BODY}}}")
    command = [
        "clang", "-x", "cl", "-cl-std=clc++", "-Xclang", "-finclude-default-header", "-target", "spir64",
        "-Wall", "-O2", "-S", "-emit-llvm", "-o", "-", f"-I{HEADER.parent}", "-DTYPE=half",
        "-Wno-c++11-narrowing", *(f"-DFORM_{name}={value}" for name, value in sizes.items()), "few_rows.clcpp",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "clc++" in done.stderr.partition("\n")[0] or "spir64" in done.stderr.partition("\n")[0]:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    assert "alloca" not in done.stdout


@pytest.mark.fast_every(20)
@pytest.mark.parametrize("kernel", CASES, indirect=True, ids=lambda case: "-".join(map(str, case)))
def test_a_row_is_right_and_has_the_bits_of_mlx_s_single_row(kernel):
    """Of 1 to 16 rows, also where outputs and columns fill no block; nothing else is read or written."""
    generator = np.random.default_rng(5)
    group = kernel.group_size
    # Blocks of MLX's fast kernel and of its other one, outputs fewer than a simdgroup's, rests.
    for outs, cols in ((8, 512), (13, 512 + group), (7, 5 * group), (2, group), (16, 2048)):
        matrix, x = Matrix(kernel, generator, outs, cols), kernel.drawn(generator, MOST_ROWS, cols)
        single = kernel.of_mlx(x, matrix)
        for rows in range(1, MOST_ROWS + 1) if outs == 13 else (1, 2, 5, 16):
            found = kernel.own(x[:rows], matrix)
            # As bytes: rows that nothing wrote are NaN.
            assert found.tobytes() == single[:rows].tobytes(), (outs, cols, rows)
        codes, biases = matrix.parts()
        expected = x.astype(np.float64) @ (codes + biases).T
        size = np.abs(x).astype(np.float64) @ (np.abs(codes) + np.abs(biases)).T
        error = SMALLEST[kernel.number]
        # MLX adds activations in their own type where a code has one bit, and so does the kernel.
        of_sums = 2.0**-19 if kernel.bits > 1 else 4 * error
        assert (np.abs(single - expected) <= error * np.abs(expected) + of_sums * size).all()
        # Another row beside it changes no bit, whatever it holds.
        x[1] = np.inf
        assert kernel.own(x[:5], matrix)[0].tobytes() == single[0].tobytes()
