"""The kernel for few rows on a CPU, lane by lane. There is no Mac here: nothing shows its speed."""

import re
import shutil
import subprocess
from functools import partial
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from kernel_on_cpu import KernelOnCPU, Matrix

from akunu_py.cpu import places
from akunu_py.gguf.quants.forms import EXACT, form_of
from akunu_py.models.metal import few_rows
from akunu_py.models.metal.few_rows import MOST_ROWS, MatrixForm

SANITIZERS = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SMALLEST = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24}
"""Largest relative error of a number of each type."""


def _forms():
    """Forms that GGUF files have after loading, and those of MLX folders."""
    forms = [form_of(name, q6k) for name in EXACT for q6k in ("planes", "8bit")]
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


# What OpenCL's C++ and the Metal language share: in which memory something is.
OPENCL = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device __global
#define thread __private
#define METAL_FUNC inline __attribute__((always_inline))
#define float16_t half
typedef uint uint32_t;
float simd_sum(float);
{program}
kernel void few(const device half *x, constant int *x_shape, const device uint *w, constant int *w_shape,
                const device half *scales, const device half *biases, device half *y) {{
  const uint lane = get_local_id(0);
  {name}<half, {numbers}>(x, x_shape, w, w_shape, scales, biases, y, lane,
                          (uint3)(lane, get_global_id(1), 0));
}}
"""


@pytest.fixture
def source_of(monkeypatch, capfd, tmp_path):
    """What MLX gives to Metal's compiler; it also writes that for an export, on every machine."""
    kernel = few_rows._kernel()
    monkeypatch.setattr(few_rows, "_kernel", lambda: partial(kernel, verbose=True))

    def written(form, rows):
        weight = mx.zeros((form.outs, form.cols * form.bits // 32), mx.uint32)
        scales = mx.zeros((form.outs, form.cols // form.group_size), mx.float16)
        layer = SimpleNamespace(weight=weight, scales=scales, biases=scales)
        x = mx.zeros((rows, form.cols), mx.float16)
        capfd.readouterr()
        mx.export_function(str(tmp_path / "f"), lambda x: few_rows.few_rows(x, layer, form), x)
        return capfd.readouterr().out

    return written


@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang")
@pytest.mark.fast_every(7)
@pytest.mark.parametrize("rows", [4, 5, 16])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_memory_is_where_the_kernel_says_and_all_numbers_of_a_thread_are_in_registers(
    tmp_path, source_of, bits, rows
):
    """C++ has no such spaces, and no compiler of Metal is here; an `alloca` is memory, no register."""
    form = MatrixForm(64, 4096, bits, 32)
    program = source_of(form, rows)
    (name,) = re.findall(r"void (custom_kernel\w+)\(", program)
    # OpenCL lets a pointer leave it open, Metal does not.
    assert set(re.findall(r"(\w+) \w+\*", program)) == {"device", "thread", "constant"}
    program = re.sub(r"\[\[.*?\]\]", "", program[: program.index("\ntemplate [[host_name")])
    numbers = ", ".join(map(str, (bits, 32, form.values, *form.tile(rows))))
    (tmp_path / "few_rows.clcpp").write_text(
        OPENCL.format(program=program[program.index("template <") :], name=name, numbers=numbers)
    )
    command = [
        "clang", "-x", "cl", "-cl-std=clc++", "-Xclang", "-finclude-default-header", "-target", "spir64",
        "-Wall", "-Wno-c++11-narrowing", "-O2", "-S", "-emit-llvm", "-o", "-", "few_rows.clcpp",
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
