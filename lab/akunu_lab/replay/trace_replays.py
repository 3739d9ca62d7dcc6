"""Replays of cells on whole traces, spread over processes and kept, so that a run can continue."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from akunu_lab.replay.baseline import Baseline, baselines
from akunu_lab.replay.cells import Cell
from akunu_lab.replay.runner import ItemCounts, ReplayItem, replay_item, replay_lengths
from akunu_lab.replay.trace_drafters import make_trace_drafter
from akunu_lab.replay.worker_pool import run_tasks
from akunu_lab.study.store import ItemStore
from akunu_py.api import ConfigError, CostCurve

Memory = Literal["trace", "session"]
"""How long drafters remember: over all items of a trace, or within a session."""

Traces = Mapping[str, Sequence[ReplayItem]]

Counts = Mapping[Cell, Mapping[str, Sequence[ItemCounts]]]
"""The counts of each item, by cell and trace."""


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """What cells are replayed on; `curves` are by the names that cells have for them."""

    traces: Traces
    curves: Mapping[str, CostCurve]
    memory: Memory
    vocabulary_size: int | None = None


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """One walk over a trace: by one cell, or by all lengths of a baseline."""

    cells: tuple[Cell, ...]
    trace: str

    @property
    def key(self) -> str:
        """Its name in the store."""
        return f"{self.cells[0].key} on {self.trace}"


def plan_replays(cells: Iterable[Cell], traces: Iterable[str]) -> list[TraceReplay]:
    """Return the replays of the cells, each on all traces before the next."""
    groups: dict[str | Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.drafter if cell.drafter in baselines() else cell, []).append(cell)
    names = tuple(traces)
    return [TraceReplay(tuple(group), name) for group in groups.values() for name in names]


def run_replay(replay: TraceReplay, inputs: ReplayInputs) -> list[tuple[ItemCounts, ...]]:
    """Replay the items of a trace in order; return the counts of each item, by cell."""
    first = replay.cells[0]
    drafter = make_trace_drafter(first, inputs.curves.get(first.curve), inputs.vocabulary_size)
    limits = [cell.num_draft_tokens or 0 for cell in replay.cells]
    counts: list[list[ItemCounts]] = []
    session: str | None = None
    for item in inputs.traces[replay.trace]:
        if inputs.memory == "session" and item.session != session:
            drafter.reset()
        session = item.session
        drafter.begin()
        if isinstance(drafter, Baseline) and len(limits) > 1:
            counts.append(replay_lengths(item, drafter, limits))
        else:
            counts.append([replay_item(item, drafter, limits[0])])
        drafter.end()
    return list(zip(*counts, strict=True))


def run_replays(
    replays: Sequence[TraceReplay],
    inputs: ReplayInputs,
    store: ItemStore,
    *,
    processes: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Counts, bool]:
    """Return the counts, and False after an interrupt.

    Replays in the store are not repeated. `progress` is called with finished and all replays.
    Counts do not depend on `processes`; seconds do if processes compete for the cores. Raises
    ConfigError for a stored replay that is malformed.
    """
    counts: dict[Cell, dict[str, Sequence[ItemCounts]]] = {}
    left: list[TraceReplay] = []

    def keep(replay: TraceReplay, rows: Sequence[Sequence[ItemCounts]]) -> None:
        for cell, row in zip(replay.cells, rows, strict=True):
            counts.setdefault(cell, {})[replay.trace] = row

    for replay in replays:
        rows = store.get(replay.key, tuple[tuple[ItemCounts, ...], ...])
        if rows is None:
            left.append(replay)
            continue
        size = len(inputs.traces[replay.trace])
        if len(rows) != len(replay.cells) or any(len(row) != size for row in rows):
            raise ConfigError(f"the finished {replay.key} is not of the items of {replay.trace}")
        keep(replay, rows)
    done = len(replays) - len(left)
    progress(done, len(replays))
    tasks = run_tasks(run_replay, left, inputs, processes=min(processes, max(1, len(left))))
    try:
        for number, (replay, found) in enumerate(tasks, start=done + 1):
            store.put(replay.key, found)
            keep(replay, found)
            progress(number, len(replays))
    except KeyboardInterrupt:
        return counts, False
    finally:
        tasks.close()
    return counts, True
