#!/usr/bin/env python3
"""Measure what re-laying out GGUF weights costs: memory, error, time. Writes docs/gguf.md's table.

    python scripts/measure_quantization.py [--write] [--types Q4_K Q6_K]

ggml (`pip install --group references`) quantizes normally distributed weights of deviation 0.02, one in
500 of them five times as large, with a random importance for each column. Errors are those of
float16 scales against ggml's own dequantization, in units of the root mean square weight; the rise
is that of the root mean square error against the weights before quantization. Speeds are megabytes
of the file a second of processor time, all threads added up, the best of several runs over a tensor
of 64 MB: what other programs run beside it shows little in them.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from marked_pages import write_between
from quant_blocks import info_of
from references import llama_cpp

from akunu_py.gguf import BLOCK_TYPES, QuantizedMatrix, TensorInfo, dequantize, relayout
from akunu_py.gguf.quants import SUPPORTED_TYPES, WeightForm, form_of

PAGE = ROOT / "docs" / "gguf.md"
BEGIN = "<!-- scripts/measure_quantization.py writes from here -->"
END = "<!-- to here -->"
SPEED_BYTES = 64_000_000
HEAD = (
    "| type | form in MLX | bits in file | in memory | mean error | largest | rise | when | MB/s a core |",
    "|---|---|--:|--:|--:|--:|--:|---|--:|",
)
DENSE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def weights(rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    values = generator.normal(0, 0.02, (rows, cols))
    values[generator.random((rows, cols)) < 0.002] *= 5
    return values.astype(np.float32), generator.gamma(2, 1, cols).astype(np.float32)


def unpack(matrix: QuantizedMatrix) -> np.ndarray:
    """Weights float64 [rows, cols] of a matrix in mode "affine"."""
    bits = np.unpackbits(matrix.packed.view(np.uint8), axis=1, bitorder="little")
    codes = bits.reshape(len(bits), -1, matrix.bits) @ (1 << np.arange(matrix.bits))
    groups = codes.reshape(*matrix.scales.shape, matrix.group_size).astype(np.float64)
    parts = groups * matrix.scales[..., None].astype(np.float64)
    parts += matrix.biases[..., None].astype(np.float64)
    factors = np.array(matrix.multipliers or (1.0,))[:, None]
    joined = (parts.reshape(*parts.shape[:-1], len(factors), -1) * factors).sum(axis=-2)
    return joined.reshape(len(bits), -1)


def speed(info: TensorInfo, raw: np.ndarray, **options: object) -> float:
    copies = max(1, SPEED_BYTES // raw.nbytes)
    tensor = np.tile(raw, (copies, 1))
    large = info_of(info.type.name, len(tensor), info.cols)
    best = float("inf")
    for _ in range(9):
        started = time.process_time()
        relayout(large, tensor, **options)
        best = min(best, time.process_time() - started)
    return tensor.nbytes / best / 1e6


def describe(form: WeightForm) -> str:
    if form.mode != "affine":
        return f"{form.mode}, groups of {form.group_size}"
    planes = f"{len(form.multipliers)} planes of " if form.multipliers else ""
    unit = "bit" if form.bits == 1 else "bits"
    return f"{planes}{form.bits} {unit}, groups of {form.group_size}"


def number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def rows_of(kind: str, originals: np.ndarray, importance: np.ndarray) -> list[str]:
    raw = llama_cpp.quantize(kind, originals, importance)
    info = info_of(kind, *originals.shape)
    exact = llama_cpp.dequantize(kind, raw).astype(np.float64)
    if not np.array_equal(exact, dequantize(info, raw)):
        raise SystemExit(f"{kind}: dequantize differs from ggml's")
    usual, fitted = form_of(kind), form_of(kind, fitted=True)
    cases = [({}, usual, "always" if usual == fitted else "default")]
    if usual != fitted:
        cases.append(({"fitted": True}, fitted, "`--fitted-weights`"))
    if kind == "Q6_K":
        cases[0] = ({}, usual, "default")
        cases.append(({"q6k": "8bit"}, form_of(kind, q6k="8bit"), '`q6k="8bit"`'))
    block = info.type
    lines = []
    for options, form, when in cases:
        matrix = relayout(info, raw, **options)
        mean = largest = rise = 0.0
        if matrix.mode == "affine":
            kept = unpack(matrix)
            unit = np.sqrt(np.mean(exact**2))
            mean = np.mean(np.abs(kept - exact)) / unit
            largest = np.abs(kept - exact).max() / unit
            own = np.sqrt(np.mean((exact - originals) ** 2))
            rise = np.sqrt(np.mean((kept - originals) ** 2)) / own - 1
        lines.append(
            f"| {kind} | {describe(form)} | {block.block_bytes * 8 / block.block_elements:.4g} "
            f"| {form.bits_per_weight:.4g} | {number(mean)} | {number(largest)} "
            f"| {round(100 * rise, 2) + 0.0:.2f} % | {when} | {speed(info, raw, **options):.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=[], help="these alone; nothing is written")
    parser.add_argument("--write", action="store_true", help=f"write into {PAGE.name}")
    options = parser.parse_args()
    try:
        llama_cpp.library()
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    originals, importance = weights(32, 2048)
    order = [block.name for block in BLOCK_TYPES.values() if block.name in SUPPORTED_TYPES]
    lines = list(HEAD)
    for kind in options.types or order:
        if kind in DENSE:
            bits = form_of(kind).bits_per_weight
            lines.append(
                f"| {kind} | {DENSE[kind]} | {bits:g} | {bits:g} | 0 | 0 | 0.00 % | always | |"
            )
        else:
            lines += rows_of(kind, originals, importance)
    if options.write and not options.types:
        write_between(PAGE, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
