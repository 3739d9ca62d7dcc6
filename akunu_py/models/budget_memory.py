"""What budgets learned about one model's passes on this machine, across replies and runs.

Measured costs are in one file for each model, device and version of MLX. Missing, corrupt and
foreign files are ignored. If a file cannot be written nothing is remembered: costs are learned anew
in a few steps.
"""

import hashlib
import json
import logging
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.cpu import load_kernels
from akunu_py.cpu.blas import load_blas
from akunu_py.decoding.budget import BudgetState
from akunu_py.decoding.pass_costs import roofline
from akunu_py.models.device import on_cpu
from akunu_py.models.load_steps import class_and_arguments
from akunu_py.models.loaded_model import ModelDescription
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.row_bits import MOST_ROWS
from akunu_py.system.files import open_to_read, replace_file
from akunu_py.system.settings import cache_folder
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import RowBits

_log = logging.getLogger(__name__)

_FORMAT = 1
_MOST_BYTES = 64 * 1024
_MOST_ROWS = 256
_MOST_BUCKETS = 32
_LEAST_COST, _MOST_COST = 1e-4, 1e4

Costs = dict[int, dict[int, float]]
"""Context bucket -> rows of a pass -> cost in plain steps; see `akunu_py.decoding.pass_costs`."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Content of a file."""

    costs: Costs = field(default_factory=dict)
    bit_equal: dict[int, int] = field(default_factory=dict)
    """By the largest number of rows in a pass, the context up to which rows were found bit-equal
    (`akunu_py.models.row_bits`), 0 if some were not."""
    shared: Costs = field(default_factory=dict)
    """Number of replies -> drafted rows and one more -> cost; see
    `akunu_py.decoding.shared_passes`."""


class CostFile:
    """The file of one key; the key identifies model, device and versions."""

    def __init__(self, key: Mapping[str, str], folder: Path | None = None) -> None:
        self.key = dict(key)
        self._folder = folder

    @property
    def path(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        return (self._folder or cache_folder()) / "costs" / f"{digest}.json"

    def load(self) -> Remembered:
        try:
            with open_to_read(self.path) as stream:
                data = stream.read(_MOST_BYTES + 1)
            return self._parse(data)
        except FileNotFoundError:
            return Remembered()
        except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            # RuntimeError: no home folder can be found, or JSON nested too deeply.
            _log.info("the costs of passes are measured anew: %s", error)
            return Remembered()

    def save(
        self,
        costs: Mapping[str, Mapping[str, float]],
        bit_equal: Mapping[int, int],
        shared: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        """Replace the file by these costs, in the form of `PassCosts.to_dict`, atomically."""
        record = {
            "format": _FORMAT, "key": self.key, "costs": costs, "bit_equal": dict(bit_equal),
            "shared": dict(shared),
        }  # fmt: skip
        try:
            path = self.path
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(record).encode(), private=False)
        except (OSError, RuntimeError) as error:
            _log.info("the costs of passes are not remembered: %s", error)

    def _parse(self, data: bytes) -> Remembered:
        """Parse a file's bytes; for anything unexpected it raises what `load` catches."""
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{self.path} is larger than {_MOST_BYTES} bytes")
        record = json.loads(data)
        if record["format"] != _FORMAT or record["key"] != self.key:
            raise ValueError(f"{self.path} belongs to another model, device or version")
        equal = record.get("bit_equal", {})
        return Remembered(
            _costs(record["costs"], _MOST_BUCKETS),
            {_within(int(rows), _MOST_ROWS): _within(held) for rows, held in equal.items()},
            _costs(record.get("shared", {}), _MOST_ROWS),
        )


def _costs(value: Any, most: int) -> Costs:
    """Read costs by a number up to `most`, and by rows."""
    return {
        _within(int(number), most): {
            _within(int(rows), _MOST_ROWS): _within(cost, _MOST_COST, least=_LEAST_COST)
            for rows, cost in by_rows.items()
        }
        for number, by_rows in value.items()
    }


def _within(number: Any, most: float = math.inf, *, least: float = 0) -> Any:
    if not least <= number <= most:
        raise ValueError(f"{str(number)[:20]!r} is not a number from {least} to {most}")
    return number


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
        self.file = CostFile(cost_key(description, model, kv_bits=kv_bits, block_rows=block_rows))
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
            self.file.save(self.state.costs.to_dict(), self._bit_equal, shared.to_dict())


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
        "mlx": _version("mlx"),
        "mlx_lm": _version("mlx-lm"),
        "device": f"{mx.default_device()} {name}",
        "cores": str(os.cpu_count()) if on_cpu() else "",
        "blas": load_blas().name if on_cpu() else "",
        "kernels": load_kernels().name if on_cpu() else "; ".join(products),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # Built from source and added to the path by hand.
        return "unknown"
