"""Measured costs of passes on disk: one file for each model, device and version of MLX.

Missing, corrupt and foreign files are ignored. If a file cannot be written nothing is remembered:
costs are learned anew in a few steps.
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from akunu_py.system.atomic_file import replace_file
from akunu_py.system.regular_file import open_to_read
from akunu_py.system.settings import cache_folder

_log = logging.getLogger(__name__)

_FORMAT = 1
_MOST_BYTES = 64 * 1024
_MOST_ROWS = 256
_MOST_BUCKETS = 32
_MOST_COST = 1e4

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
        except (OSError, RuntimeError, ValueError, ArithmeticError) as error:
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
        """Parse a file's bytes; raises ValueError for anything unexpected."""
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{self.path} is larger than {_MOST_BYTES} bytes")
        record = json.loads(data)
        if not isinstance(record, dict) or record.get("format") != _FORMAT:
            raise ValueError(f"{self.path} has another format")
        if record.get("key") != self.key:
            raise ValueError(f"{self.path} belongs to another model, device or version")
        equal = record.get("bit_equal", {})
        if not isinstance(equal, dict):
            raise ValueError(f"{self.path} does not say where rows are bit-equal")  # noqa: TRY004
        return Remembered(
            _costs(record.get("costs"), _MOST_BUCKETS),
            {_number(rows, _MOST_ROWS): _context(held) for rows, held in equal.items()},
            _costs(record.get("shared", {}), _MOST_ROWS),
        )


def _costs(value: object, most: int) -> Costs:
    """Read costs by a number up to `most`, and by rows."""
    if not isinstance(value, dict):
        raise ValueError("the file has no costs")  # noqa: TRY004 - one kind for all
    found: Costs = {}
    for number, by_rows in value.items():
        if not isinstance(by_rows, dict):
            raise ValueError("the file has costs that are not by rows")  # noqa: TRY004
        found[_number(number, most)] = {
            _number(rows, _MOST_ROWS): _cost(cost) for rows, cost in by_rows.items()
        }
    return found


def _number(text: str, most: int) -> int:
    # Python reads digits of any script, and is slow with thousands of them.
    if not (text.isascii() and text.isdigit() and len(text) < 5 and int(text) <= most):
        raise ValueError(f"{text[:20]!r} is not a number up to {most}")
    return int(text)


def _context(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{str(value)[:20]!r} is not a number of tokens")
    return value


def _cost(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    cost = float(value) if number else math.nan  # type: ignore[arg-type]
    if not 0 < cost <= _MOST_COST:
        raise ValueError(f"{str(value)[:20]!r} is not a cost")
    return cost
