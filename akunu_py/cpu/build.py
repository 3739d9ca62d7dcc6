"""Builds the libraries of kernels and compares them with MLX's own functions.

Run by `library` as: python -m akunu_py.cpu.build FOLDER MLX COMPILER. The folder appears only when
all operations were taken and had MLX's results; else the last line of the errors says why not.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from akunu_py.cpu.library import (
    ARITHMETIC,
    KERNELS,
    OPTIONS,
    PROCESSOR,
    REPLACEMENTS,
    SOURCES,
    digest,
    lead,
    open_kernels,
    replacements,
)

_TOLERANCE = 1e-4
"""Of the largest number of a result: sums have other orders, and MLX's exponential is rough."""


def build(folder: Path, mlx: Path, compiler: str) -> None:
    """Build the libraries in a folder that does not exist; SystemExit says what failed."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as name:
        new = Path(name) / folder.name
        new.mkdir(mode=0o700)
        library = mlx / "lib"
        with ThreadPoolExecutor() as side_by_side:
            list(side_by_side.map(lambda of: _compile(new, *of), (
                (ARITHMETIC, compiler, *OPTIONS, "-O3", *PROCESSOR,
                 str(SOURCES / "arithmetic.cpp")),
                # MLX's headers take most of its time; loops over numbers are in the arithmetic.
                (KERNELS, compiler, *OPTIONS, "-O1", "-isystem", str(mlx / "include"),
                 str(SOURCES / "operations.cpp"), f"-L{library}", "-lmlx", f"-Wl,-rpath,{library}",
                 "-Wl,-z,defs"),
            )))  # fmt: skip
        kernels = open_kernels(new)
        names = (f'REPLACE({n}, "{name}")' for n, (name, _) in enumerate(replacements(kernels)))
        given = f"-DREPLACEMENTS={' '.join(names)}"
        _compile(new, REPLACEMENTS, compiler, "-fPIC", "-shared", "-fvisibility=hidden",
                 "-x", "c", given, str(SOURCES / "replacements.c"))  # fmt: skip
        lead(kernels, new)
        check(kernels)
        # Another process may have been faster.
        with suppress(OSError):
            new.rename(folder)


def _compile(folder: Path, name: str, *command: str) -> None:
    path = folder / f"{name}.so"
    # S603: the system's compiler, on sources of akunu.
    done = subprocess.run(  # noqa: S603
        [*command, "-o", str(path)], capture_output=True, text=True, errors="replace", check=False
    )  # fmt: skip
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        sys.exit(f"{command[0]} failed: {(errors or ['it gave no reason'])[0]}")
    path.chmod(0o600)
    path.rename(folder / f"{name}-{digest(path)}.so")


def _operations(mx: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return each operation that the kernels have, on random numbers, with a name."""
    mx.random.seed(1)
    x = mx.random.normal((1, 6, 5, 64))
    weights = mx.random.normal((3, 36, 64))
    scores = mx.random.normal((5, 40))
    ways: list[dict[str, Any]] = [{"bits": b, "group_size": 32} for b in (1, 2, 3, 4, 5, 6, 8)]
    for way in (*ways, {"mode": "mxfp4"}, {"mode": "nvfp4"}):
        packed = mx.quantize(weights[0], **way)
        for rows in (1, 5, 30):
            part = x.reshape(30, 64)[:rows]
            yield (
                f"the product of {rows} rows with {way}",
                partial(mx.quantized_matmul, part, *packed, **way),
            )
        yield (
            f"the product with {way} as they are",
            partial(mx.quantized_matmul, scores[:, :36], *packed, transpose=False, **way),
        )
        if "bits" in way:
            yield f"unpacking with {way}", partial(mx.dequantize, *packed, **way)
        chosen = mx.array([[2, 0], [0, 0]])
        experts = mx.quantize(weights, **way)
        yield (
            f"the product of experts with {way}",
            partial(mx.gather_qmm, x[0, 0, :2, None, None], *experts, rhs_indices=chosen, **way),
        )
    dense = weights.swapaxes(-1, -2)
    for rows in (1, 5, 30):
        part = x.reshape(30, 64)[:rows]
        yield f"the dense product of {rows} rows", partial(mx.matmul, part, weights[0].T)
    yield "the dense product with a bias", partial(mx.addmm, weights[1, :, 0], x, weights[0].T)
    yield (
        "the dense product of experts",
        partial(mx.gather_mm, x[0, 0, :2, None, None], dense, rhs_indices=chosen),
    )
    keys, values = mx.random.normal((2, 1, 2, 19, 64))
    attend = partial(mx.fast.scaled_dot_product_attention, x, keys, values, scale=0.125)
    for mask in (None, "causal", scores[:, :19], scores[:, :19] > 0):
        yield "attention", partial(attend, mask=mask)
    turn = partial(mx.fast.rope, x, 32, base=10000.0, scale=1.0, offset=3)
    for neighbours in (False, True):
        yield "rope", partial(turn, traditional=neighbours)
    yield "rms_norm", partial(mx.fast.rms_norm, x, mx.arange(64) / 32, 1e-5)
    yield "sigmoid", partial(mx.sigmoid, x * 9)
    yield "softmax", partial(mx.softmax, x * 9, axis=-1)
    yield "logsumexp", partial(mx.logsumexp, x, axis=-1)


def check(kernels: Any) -> None:
    """Compare the operations with MLX's; SystemExit names the first that differs."""
    # Only now: its calls are led elsewhere when it is imported.
    import mlx.core as mx

    mx.set_default_device(mx.Device(mx.cpu))
    for name, operation in _operations(mx):
        kernels.akunu_enable(0)
        expected = operation()
        mx.eval(expected)
        kernels.akunu_enable(1)
        before = kernels.akunu_taken()
        found = operation()
        if kernels.akunu_taken() == before:
            sys.exit(f"{name} went to MLX")
        error = _error(mx, found, expected)
        # A NaN is not less, either.
        if not error < _TOLERANCE:
            sys.exit(f"{name} is wrong by {error:.2g} of its largest number")


def _error(mx: Any, found: Any, expected: Any) -> float:
    return float((mx.abs(found - expected).max() / mx.abs(expected).max()).item())


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
