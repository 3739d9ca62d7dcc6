"""The product of 1 to 16 rows with quantized weights; `few_rows.h` says how it adds."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

MOST_ROWS = 16

HEADER = Path(__file__).with_name("few_rows.h")

BODY = """
few_rows<T, BITS, GROUP, VALUES, ROWS, OUTPUTS>(
    x, (const device uchar*)w, scales, biases, y, x_shape[0], x_shape[1], w_shape[0],
    thread_position_in_grid.y * OUTPUTS, thread_index_in_simdgroup);
"""

_TILES = (4, 8, 16)
"""Largest numbers of rows of the kernels that are compiled."""

_VALUES = {1: 32, 2: 16, 3: 8, 4: 8, 5: 8, 6: 4, 8: 4}
"""Bits of a code -> codes in one pack of MLX's product of one row."""

_SIMDGROUPS = 2
"""Simdgroups in a threadgroup."""


@dataclass(frozen=True, slots=True, order=True)
class MatrixForm:
    """Shape and form of a quantized matrix [outs, cols]."""

    outs: int
    cols: int
    bits: int
    group_size: int

    def __str__(self) -> str:
        return f"{self.outs} x {self.cols}, {self.bits} bits in groups of {self.group_size}"

    @property
    def values(self) -> int:
        """Codes that a thread adds up at once: as many as in MLX's product of one row."""
        pack = _VALUES[self.bits]
        # MLX has a faster kernel for sizes that leave no rest; with 1 and 2 bits it adds alike.
        wide = self.bits > 2 and self.outs % 8 == 0 and self.cols % (2 * pack * 32) == 0
        return pack * 2 if wide else pack

    def tile(self, rows: int) -> tuple[int, int]:
        """Return the rows that the kernel for so many holds, and its outputs of a simdgroup."""
        most = next(tile for tile in _TILES if rows <= tile)
        # So that a thread's codes and sums fit into registers.
        return most, 2 if most == MOST_ROWS or self.values > 16 else 4


def few_rows(x: mx.array, layer: Any, form: MatrixForm) -> mx.array:
    """Multiply x [..., cols], with up to 16 rows, by a layer's transposed matrix; [..., outs].

    x, scales and biases are of one type. A row has the same bits whatever the number of rows.
    """
    rows = x.size // form.cols
    inputs = [x.reshape(rows, form.cols), layer.weight, layer.scales, layer.biases]
    y: mx.array = _kernel()(inputs=inputs, **_launch(form, rows, x.dtype))[0]
    return y.reshape(*x.shape[:-1], form.outs)


@functools.cache
def _launch(form: MatrixForm, rows: int, kind: mx.Dtype) -> dict[str, Any]:
    """Return how the kernel is launched; made once, since a pass has hundreds of products."""
    tile, outputs = form.tile(rows)
    return {
        "template": [
            ("T", kind), ("BITS", form.bits), ("GROUP", form.group_size),
            ("VALUES", form.values), ("ROWS", tile), ("OUTPUTS", outputs),
        ],
        "grid": (32, -(-form.outs // outputs), 1),
        "threadgroup": (32, _SIMDGROUPS, 1),
        "output_shapes": [(rows, form.outs)],
        "output_dtypes": [kind],
    }  # fmt: skip


@functools.cache
def _kernel() -> Any:
    return mx.fast.metal_kernel(
        name="akunu_few_rows",
        input_names=["x", "w", "scales", "biases"],
        output_names=["y"],
        source=BODY,
        # MLX copies and hashes it with each product.
        header=re.sub(r"//.*", "", HEADER.read_text(encoding="utf-8")),
    )
