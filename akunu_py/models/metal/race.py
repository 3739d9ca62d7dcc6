"""MLX against akunu on one shape: products of few rows, or attention of few rows in parts.

A kernel of akunu's own is checked first.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, cycle, islice
from statistics import median
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np
from mlx import nn
from mlx_lm.models.base import scaled_dot_product_attention as attend

from akunu_py.models.attention import RACED, Shape, in_parts, largest_part
from akunu_py.models.metal.few_rows import MOST_ROWS, MatrixForm, few_rows

SIZES = (1, 2, 4, 5, 8, 9, 12, 16)
"""Rows that race: at both ends of the kernel's tiles, and where MLX changes its kernels."""

_ROUNDS = 5
_CHAIN_BYTES = 64 * 2**20
"""Bytes of weights or keys and values in a chain, more than most caches hold."""
_MOST_CHAIN = 64

_WON = 0.97
"""The most that the kernel may take, in MLX's time, where it is used."""
_NO_SLOWER = 1.02
_FAR = 2.0**-4
"""A difference from the right value, in their root mean square, that no rounding explains."""

_SAMPLE = 32
"""Outputs at either end of a matrix whose values are checked."""

Arm = Callable[[mx.array, Any], mx.array]


class Raced(msgspec.Struct, frozen=True):
    """What was found of one shape."""

    fault: str = ""
    """Why the kernel cannot be used; "" where it is right."""
    equal: bool = False
    """Whether its rows have the bits of MLX's product of one row."""
    mlx_s: dict[int, float] = {}
    own_s: dict[int, float] = {}
    """Median seconds of a product, by rows."""
    ratios: dict[int, float] = {}
    """akunu's time in MLX's, in all rounds but the worst."""
    first: int = 2
    """The least rows for which the two differ, beside a single one."""

    def __post_init__(self) -> None:
        for figures in () if self.fault else (self.mlx_s, self.own_s, self.ratios):
            if tuple(figures) != SIZES or not all(0 < each < math.inf for each in figures.values()):
                raise ValueError("these are no times of the sizes that race")

    def own_rows(self) -> list[int]:
        """Return the numbers of rows for the kernel.

        Where its rows have other bits than MLX's single row, it takes single rows too, so that a
        row is the same with and without drafts; and nothing where it is slower with them.
        """
        if self.fault:
            return []
        won = {rows for rows in SIZES if rows < self.first or self.ratios[rows] <= _WON}
        rows = [
            rows
            for rows in range(self.first, MOST_ROWS + 1)
            if {max(s for s in SIZES if s <= rows), min(s for s in SIZES if s >= rows)} <= won
        ]
        if self.equal or not rows:
            return rows
        return [1, *rows] if self.ratios[1] <= _NO_SLOWER else []

    def choice(self) -> str:
        """Return in words who computes."""
        if self.fault:
            return f"MLX's, since akunu's {self.fault}"
        rows = self.own_rows()
        return f"akunu's for rows {_ranges(rows)}" if rows else "MLX's"

    def costs(self) -> str:
        """Return the measured times in those of MLX for one row, in words."""
        if self.fault:
            return ""
        arms = (("MLX", self.mlx_s), ("akunu", self.own_s))
        shown = (
            f"{arm} {' '.join(f'{taken[rows] / self.mlx_s[1]:.2f}' for rows in SIZES)}"
            for arm, taken in arms
        )
        return f"rows {' '.join(map(str, SIZES))}: {'; '.join(shown)}"


def race(
    form: MatrixForm, layers: Sequence[nn.Module], clock: Callable[[], float] = time.perf_counter
) -> Raced:
    """Check the kernel with the weights of the first layer, then let it race MLX on all."""
    fault, equal = _checked(form, layers[0])
    if fault:
        return Raced(fault)
    x = mx.full((MOST_ROWS, form.cols), 2.0**-6, dtype=layers[0].scales.dtype)
    links = list(islice(cycle(layers), _links(layers[0].weight.nbytes)))
    arms = _of_mlx, partial(few_rows, form=form)
    return Raced("", equal, *_timed(arms, x, links, clock))


def race_attention(shape: Shape, clock: Callable[[], float] = time.perf_counter) -> Raced:
    """Let attention in parts race that of all rows at once."""

    def drawn(heads: int, rows: int, width: int) -> mx.array:
        return mx.random.normal((1, heads, rows, width)).astype(shape[4])

    def arm(most: int) -> Arm:
        return lambda x, held: in_parts(attend, most, x, held[0], held[1], None, 0.1, "causal")

    heads, key_heads, *widths, kind = shape
    count, part = _links(key_heads * RACED * sum(widths) * kind.size), largest_part(shape)
    held = [[drawn(key_heads, RACED, width) for width in widths] for _ in range(count)]
    mx.eval(held)
    queries = drawn(heads, MOST_ROWS, widths[0])
    return Raced("", True, *_timed((arm(MOST_ROWS), arm(part)), queries, held, clock), part + 1)


def _links(nbytes: int) -> int:
    return min(_MOST_CHAIN, -(-_CHAIN_BYTES // nbytes))


def _of_mlx(x: mx.array, layer: Any) -> mx.array:
    return mx.quantized_matmul(
        x, layer.weight, layer.scales, layer.biases, transpose=True,
        group_size=layer.group_size, bits=layer.bits,
    )  # fmt: skip


def _checked(form: MatrixForm, layer: Any) -> tuple[str, bool]:
    """Return what is wrong with the kernel's values, and whether its rows are MLX's single ones."""
    own = partial(few_rows, layer=layer, form=form)
    x = mx.random.normal((MOST_ROWS, form.cols), key=mx.random.key(0)).astype(layer.scales.dtype)
    rows = [x[row : row + 1] for row in range(MOST_ROWS)]
    together = _numbers(own(x))
    ends = np.unique(
        [*range(min(_SAMPLE, form.outs)), *range(max(0, form.outs - _SAMPLE), form.outs)]
    )
    expected = _expected(x, layer, mx.array(ends))
    # Some drivers return zeros; so MLX's own product on the GPU proves nothing.
    far = np.abs(together[:, ends] - expected) > _FAR * np.sqrt(np.mean(expected**2))
    if far.any() or not np.isfinite(together).all() or not expected.any():
        return "gives wrong values", False
    for size in SIZES:
        if _numbers(own(x[:size])).tobytes() != together[:size].tobytes():
            return f"gives other bits with {size} rows", False
    if _numbers(mx.concatenate(list(map(own, rows)))).tobytes() != together.tobytes():
        return "gives other bits to a row alone", False
    single = mx.concatenate([_of_mlx(row, layer) for row in rows])
    return "", _numbers(single).tobytes() == together.tobytes()


def _expected(x: mx.array, layer: Any, outputs: mx.array) -> Any:
    """Return the values of some outputs, as the CPU computes them."""
    with mx.stream(mx.cpu):
        weights = mx.dequantize(
            layer.weight[outputs],
            layer.scales[outputs].astype(mx.float32),
            layer.biases[outputs].astype(mx.float32),
            group_size=layer.group_size,
            bits=layer.bits,
        )
        return _numbers(x.astype(mx.float32) @ weights.T)


def _numbers(array: mx.array) -> Any:
    return np.array(array.astype(mx.float32))


def _timed(
    arms: tuple[Arm, Arm], most: mx.array, links: Sequence[Any], clock: Callable[[], float]
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Measure both in turns on chains of calls, each of which waits for the one before."""
    taken: dict[int, tuple[list[float], list[float]]] = {rows: ([], []) for rows in SIZES}
    for number, rows in chain.from_iterable(((n, r) for r in SIZES) for n in range(_ROUNDS + 1)):
        x = mx.contiguous(most[..., :rows, :])
        mx.eval(x)
        for arm in (0, 1) if number % 2 else (1, 0):
            y = x
            # What the host takes to queue a call counts too, as in a pass.
            started = clock()
            for link in links:
                # Nothing to add, but the next call cannot begin before.
                y = x + 0 * arms[arm](y, link)[..., :1]
            mx.eval(y)
            if number:  # The first round compiles.
                taken[rows][arm].append((clock() - started) / len(links))
    ratios = {
        rows: sorted(own_s / mlx_s for mlx_s, own_s in zip(*pair, strict=True))[-2]
        for rows, pair in taken.items()
    }
    mlx_s, own_s = ({rows: median(pair[arm]) for rows, pair in taken.items()} for arm in (0, 1))
    return mlx_s, own_s, ratios


def _ranges(rows: Sequence[int]) -> str:
    """Return numbers as ranges: "2-8, 16"."""
    starts = [row for row in rows if row - 1 not in rows]
    ends = [row for row in rows if row + 1 not in rows]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
