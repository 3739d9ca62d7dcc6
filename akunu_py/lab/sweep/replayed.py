"""Replays cells on recorded replies, without a pass of a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from akunu_py.bench.replay.arms import (
    CURVE_BOUND,
    Arm,
    RegistryArm,
    check_names,
    make_arm,
    not_replayable,
)
from akunu_py.bench.replay.jobs import Memory, over_trace
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem, replay_item
from akunu_py.bench.worker_pool import run_tasks
from akunu_py.drafting.registry import make_drafter
from akunu_py.lab.baselines import BASELINES
from akunu_py.lab.sweep.grid import Cell
from akunu_py.lab.sweep.settings import cell_config
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import GenerationConfig


@dataclass(frozen=True, slots=True)
class ReplayData:
    """The data of a replay of cells; `curve` is for drafters that ask for one."""

    traces: Mapping[str, Sequence[ReplayItem]]
    curve: CostCurve
    memory: Memory
    vocabulary_size: int


TraceOutcomes = Mapping[str, Sequence[ItemCounts]]
"""The counts of each item, by trace."""


def replay_cells(
    cells: Sequence[Cell], data: ReplayData, *, processes: int = 1
) -> Iterator[tuple[Cell, TraceOutcomes]]:
    """Yield the cells as they are finished; seconds may depend on `processes`, counts do not."""
    yield from run_tasks(replay_cell, cells, data, processes=processes)


def replay_cell(cell: Cell, data: ReplayData) -> TraceOutcomes:
    """Replay all traces with one cell; the data's `memory` decides how long state is kept."""
    return {name: _replay_trace(cell, items, data) for name, items in data.traces.items()}


def _replay_trace(cell: Cell, items: Sequence[ReplayItem], data: ReplayData) -> list[ItemCounts]:
    arm = make_cell_arm(cell, data)
    limit = arm.default_limit if cell.num_draft_tokens is None else cell.num_draft_tokens
    return list(over_trace(arm, items, data.memory, lambda item: replay_item(item, arm, limit)))


def make_cell_arm(cell: Cell, data: ReplayData) -> Arm:
    """Make the drafter of a cell; raises ConfigError for one that cannot be replayed."""
    name, most = cell.drafter, cell.num_draft_tokens
    if name in BASELINES or name in CURVE_BOUND or most is None:
        return make_arm(name, data.curve)
    config = cell_config(cell, GenerationConfig())
    return RegistryArm(
        lambda: make_drafter(
            name, num_draft_tokens=most, config=config, vocabulary_size=data.vocabulary_size
        ),
        default_limit=most,
    )


def check_replayable(name: str) -> None:
    """Raise ConfigError for a drafter that is unknown or cannot be replayed."""
    if (reason := not_replayable(name)) is not None:
        raise ConfigError(f"{name} cannot be replayed: {reason}; decode with --live")
    check_names([name])


def is_curve_bound(cell: Cell) -> bool:
    """Return whether a cell drafts by the cost curve."""
    return cell.drafter in CURVE_BOUND
