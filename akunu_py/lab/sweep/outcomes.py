"""What a cell came to on an item, as a value and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from akunu_py.bench.replay.runner import passes_cost
from akunu_py.cost_curve import CostCurve
from akunu_py.types import DecodeStats


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """One item with one cell.

    Attributes:
        stats: its passes.
        drafter_s: seconds of the drafter to propose and to observe, the prompt left out.
        decode_s: seconds of decoding; None where nothing was decoded.
        identical: whether a reply was that of plain decoding; None where nothing was decoded.

    """

    stats: DecodeStats = field(default_factory=DecodeStats)
    drafter_s: float = 0.0
    decode_s: float | None = None
    identical: bool | None = None

    def cost(self, curve: CostCurve) -> float:
        """Return the cost of all passes: the sum of C(1 + k), k the tokens drafted for one."""
        return passes_cost(self.stats, curve)

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "ItemOutcome":
        """Return what `to_dict` wrote."""
        stats: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["stats"].items()
        }
        return cls(**{**record, "stats": DecodeStats(**stats)})


Outcomes = Sequence[ItemOutcome]
"""One for each item, in the order of the items."""
