"""The kernel for few rows on a CPU, lane by lane. There is no Mac here: nothing shows its speed."""

import numpy as np
import pytest
from kernel_on_cpu import KernelOnCPU, Matrix

from akunu_py.cpu import places
from akunu_py.gguf.quants.forms import EXACT, FITTED, Lattice, form_of
from akunu_py.models.metal.few_rows import MOST_ROWS

SANITIZERS = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SMALLEST = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24}
"""Largest relative error of a number of each type."""


def _forms():
    """Forms that GGUF files have after loading, and those of MLX folders."""
    lattices = [*EXACT.values(), *FITTED.values(), Lattice(8, 32, None)]
    forms = [lattice.form() for lattice in lattices if lattice.mode == "affine"]
    found = {(form.bits, form.group_size) for form in forms}
    return sorted(found | {(bits, group) for bits in (4, 5, 6, 8) for group in (32, 64, 128)})


CASES = [(*form, "half") for form in _forms()]
CASES += [
    (4, 32, "bfloat"),
    (1, 32, "bfloat"),
    (8, 64, "bfloat"),
    (4, 64, "float"),
    (6, 32, "float"),
]


@pytest.fixture
def kernel(tmp_path, request):
    try:
        places.compiler()
    except OSError as error:
        pytest.skip(str(error))
    kernel = KernelOnCPU(tmp_path, *request.param, *SANITIZERS)
    yield kernel
    kernel.close()


def test_every_form_of_a_file_is_among_the_cases():
    assert {(form_of(name).bits, form_of(name).group_size) for name in ("Q4_K", "Q6_K", "Q5_0")} == {
        (4, 32), (3, 32), (5, 32),
    }  # fmt: skip
    assert {bits for bits, _, _ in CASES} == {1, 2, 3, 4, 5, 6, 8}


@pytest.mark.fast_every(16)
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
