"""What budgets learned about one model's passes on this machine, across replies and runs.

Measured costs are in one file for each model, device and version of MLX. Without it costs are
learned anew in a few steps.
"""

import hashlib
import os
import platform
from collections.abc import Callable
from typing import Annotated, Literal

import mlx.core as mx
import msgspec
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.cpu import load_kernels
from akunu_py.cpu.blas import load_blas
from akunu_py.decoding.budget import BudgetState
from akunu_py.decoding.pass_costs import roofline
from akunu_py.models.device import on_cpu
from akunu_py.models.load_steps import class_and_arguments
from akunu_py.models.loaded_model import ModelDescription
from akunu_py.models.measured_file import Measured, MeasuredFile, installed_version
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.row_bits import MOST_ROWS
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import RowBits

_Rows = Annotated[int, msgspec.Meta(ge=0, le=256)]
_ByRows = dict[_Rows, Annotated[float, msgspec.Meta(gt=0, le=1e4)]]
"""Rows of a pass -> cost in plain steps; see `akunu_py.decoding.pass_costs`."""


class RememberedCosts(Measured, kw_only=True):
    """What is remembered of one model."""

    format: Literal[1] = 1
    costs: dict[Annotated[int, msgspec.Meta(ge=0, le=32)], _ByRows] = msgspec.field(
        default_factory=dict
    )
    """By the bucket of the context."""
    bit_equal: dict[_Rows, Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=dict)
    """By the largest number of rows in a pass, the context up to which rows were found bit-equal
    (`akunu_py.models.row_bits`), 0 if some were not."""
    shared: dict[_Rows, _ByRows] = msgspec.field(default_factory=dict)
    """Number of replies -> drafted rows and one more -> cost; see
    `akunu_py.decoding.shared_passes`."""


_RIDGE_GPU = 4.0
_RIDGE_CPU = 3.0
"""Number of rows from which computing takes longer than reading weights, before measurements. On
Macs `akunu_py.models.metal_costs` says what passes cost."""

_SAVE_AFTER = 32
"""Number of new samples after which costs are saved."""


class BudgetMemory:
    """A `BudgetState` that begins with the last run's costs, and whether rows are bit-equal."""

    def __init__(
        self,
        description: ModelDescription,
        model: nn.Module,
        *,
        kv_bits: KVBits | None = None,
        block_rows: int | None = None,
    ) -> None:
        key = cost_key(description, model, kv_bits=kv_bits, block_rows=block_rows)
        self.file = MeasuredFile("costs", RememberedCosts, key)
        self.state = BudgetState(_prior())
        remembered = self.file.load()
        self.state.costs.remember(remembered.costs)
        self.state.costs_alone.remember(remembered.costs)
        self.state.shared_costs.remember(remembered.shared)
        self._bit_equal = remembered.bit_equal
        self._saved = 0

    def row_bits(self, context: int, rows: int, measure: Callable[[int], int]) -> RowBits:
        """Return whether rows are bit-equal in a text of `context` tokens and passes up to `rows`.

        `measure`, which is `Session.bit_equal_to`, is called where nothing is remembered or the
        text is twice as long as any that was measured. In between it is unknown.
        """
        most = next((size for size in MOST_ROWS if size >= rows), None)
        if most is not None and 0 not in self._bit_equal.values():
            longest = self._longest(rows)
            if context >= 2 * longest:
                found = measure(most)
                # At the end of the context it may be less than before.
                self._bit_equal[most] = max(found, longest) if found else 0
                self.save(new_samples=0)
        if 0 in self._bit_equal.values():
            return "different"
        return "equal" if context <= self._longest(rows) else "unknown"

    def _longest(self, rows: int) -> int:
        """Return the context up to which passes of so many positions were found bit-equal."""
        return max((held for size, held in self._bit_equal.items() if size >= rows), default=0)

    def learn(self, times: PassTimes) -> None:
        """Take over a measurement, and save it."""
        for costs in (self.state.costs, self.state.costs_alone):
            costs.learn(times.context, times.plain_s, times.costs)
        self.save(new_samples=0)

    def save(self, *, new_samples: int = _SAVE_AFTER) -> None:
        """Save the costs if at least `new_samples` samples are unsaved."""
        shared = self.state.shared_costs
        found = self.state.costs.num_samples + shared.num_samples
        if found - self._saved >= new_samples:
            self._saved = found
            costs = self.state.costs.to_dict()
            self.file.save(
                format=1, costs=costs, bit_equal=self._bit_equal, shared=shared.to_dict()
            )


def _prior() -> CostCurve:
    """Return what passes are taken to cost on this machine before any is measured."""
    if on_cpu():
        return roofline(_RIDGE_CPU)
    if not mx.metal.is_available():
        return roofline(_RIDGE_GPU)
    from akunu_py.models.metal_costs import reported_costs  # only on Macs

    return reported_costs(str(mx.device_info().get("device_name", "")))


def cost_key(
    description: ModelDescription,
    model: nn.Module,
    *,
    kv_bits: KVBits | None,
    block_rows: int | None,
) -> dict[str, str]:
    """Return the key of a cost curve.

    It has the model's name, its size, its arguments, such as windows, and the types of its arrays,
    not its path: a file that was moved costs the same. On the CPU the BLAS, the kernels and the
    number of cores belong to it as well, on Metal who computes few rows.
    """
    products = (choice for choice, _ in description.products)
    sizes: dict[str, int] = {}
    for _, array in tree_flatten(model.parameters()):
        kind = str(array.dtype)
        sizes[kind] = sizes.get(kind, 0) + array.nbytes
    arguments = class_and_arguments(model)
    name = mx.device_info().get("device_name", platform.machine())
    return {
        "model": description.name,
        "architecture": description.architecture,
        "arguments": hashlib.sha256(repr(arguments).encode()).hexdigest()[:16],
        "parameters": str(description.parameters),
        "weights": ", ".join(f"{kind} {nbytes}" for kind, nbytes in sorted(sizes.items())),
        "kv_bits": str(kv_bits),
        "block_rows": str(block_rows),
        "mlx": installed_version("mlx"),
        "mlx_lm": installed_version("mlx-lm"),
        "device": f"{mx.default_device()} {name}",
        "cores": str(os.cpu_count()) if on_cpu() else "",
        "blas": load_blas().name if on_cpu() else "",
        "kernels": load_kernels().name if on_cpu() else "; ".join(products),
    }
