"""Runs a sweep from its plan to its figures, continuing where an earlier run stopped."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from akunu_py.bench.replay.curves import load_curves
from akunu_py.bench.replay.jobs import Memory
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem
from akunu_py.bench.replay.tokens import Bar, read_traces, tokenize_traces
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.workloads import load_prompts
from akunu_py.engine.engine import Engine
from akunu_py.lab.sweep.figures import Traces
from akunu_py.lab.sweep.grid import Cell
from akunu_py.lab.sweep.plan import Plan
from akunu_py.lab.sweep.recommend import Recommendable
from akunu_py.lab.sweep.recorded import curve_of, decode_cells, measured_costs, record_replies
from akunu_py.lab.sweep.replayed import ReplayData, TraceOutcomes, replay_cells
from akunu_py.lab.sweep.report import Sweep
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import GenerationConfig

RECORDED = "replies"
"""Name of the trace of the model's own replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep.

    Attributes:
        plan: the cells.
        traces: files of recorded replies; without any, the model answers the shipped prompts.
        curve: name or file of a cost curve; None measures it.
        live: whether every cell is decoded.
        memory: how long drafters remember earlier replies of a replay.
        categories: of the shipped prompts; empty: all.
        limit: prompts of each category, or items of each trace; None: all.
        max_tokens: of a reply.
        temperature: of the replies; `seed` keys their noise.
        processes: number of processes for replays.
        heat_axes: of the heat map, as "X,Y"; None: the first two that are varied.
        recommendable: which cells may be recommended.

    """

    plan: Plan
    traces: tuple[Path, ...] = ()
    curve: str | None = None
    live: bool = False
    memory: Memory = "session"
    categories: tuple[str, ...] = ()
    limit: int | None = None
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    processes: int = 1
    heat_axes: str | None = None
    recommendable: Recommendable = "identical"

    @property
    def needs_model(self) -> bool:
        """Whether the sweep needs the model, not only its tokenizer."""
        return self.live or not self.traces or self.curve is None


class SweepRun:
    """One run over all cells that the store lacks.

    Args:
        options: of the sweep.
        store: finished work of earlier runs.
        engine: the model, if `options.needs_model`.
        tokenizer: encodes traces.
        bar: opens progress bars.

    Attributes:
        costs: C(m) if it was measured.
        failures: prompts without a reply, and lines and items of traces that cannot be used.
        finished: whether all work is done.

    """

    def __init__(
        self,
        options: SweepOptions,
        store: ItemStore,
        *,
        engine: Engine | None,
        tokenizer: Tokenizer,
        bar: Bar,
    ) -> None:
        self.costs: Costs | None = None
        self.failures: tuple[Failure, ...] = ()
        self.finished = False
        self._options = options
        self._store = store
        self._engine = engine
        self._tokenizer = tokenizer
        self._bar = bar
        self._curve = CostCurve({1: 1.0})
        self._traces: Traces = {}
        self._outcomes: dict[Cell, TraceOutcomes] = {}

    def measure(self) -> Sweep:
        """Measure; after an interrupt the finished part is kept.

        Raises ConfigError for a trace or a curve that cannot be read, and if no prompt could be
        answered.
        """
        options = self._options
        with contextlib.suppress(KeyboardInterrupt):
            self._measure()
            self.finished = True
        cells = options.plan.grid.cells
        return Sweep(
            plan=options.plan,
            traces=self._traces,
            outcomes={cell: self._outcomes[cell] for cell in cells if cell in self._outcomes},
            curve=self._curve,
            curve_measured=self.costs is not None,
            live=options.live,
            heat_axes=options.heat_axes,
            temperature=options.temperature,
            recommendable=options.recommendable,
        )

    def _measure(self) -> None:
        options, engine = self._options, self._engine
        if options.curve is not None:
            # A file may have several curves; the first one is used.
            self._curve = next(iter(load_curves([options.curve]).values()))
        if options.traces:
            failures: list[Failure] = []
            read = read_traces(options.traces, options.limit, failures)
            traces: Traces = tokenize_traces(read, self._tokenizer, failures, self._bar)
            self.failures = tuple(failures)
        else:
            assert engine is not None  # noqa: S101 - `needs_model`
            traces = {RECORDED: self._record(engine)}
        if options.curve is None:
            assert engine is not None  # noqa: S101 - `needs_model`
            items = [item for found in traces.values() for item in found]
            with self._bar("rounds measured") as count:
                self.costs = measured_costs(engine, items, self._store, progress=count)
            self._curve = curve_of(self.costs)
        if options.live:
            assert engine is not None  # noqa: S101 - `needs_model`
            self._decode(engine, traces[RECORDED])
        else:
            source = self._tokenizer if engine is None else engine
            self._replay(ReplayData(traces, self._curve, options.memory, source.vocabulary_size))

    @property
    def _config(self) -> GenerationConfig:
        options = self._options
        return GenerationConfig(
            max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed
        )

    def _record(self, engine: Engine) -> Sequence[ReplayItem]:
        options = self._options
        prompts = load_prompts(options.categories or None, limit=options.limit)
        with self._bar("replies") as count:
            recording = record_replies(engine, prompts, self._store, self._config, progress=count)
        self.failures = recording.failures
        if not recording.items:
            first = recording.failures[0]
            raise ConfigError(f"no prompt could be answered; {first.item}: {first.error}")
        return recording.items

    def _replay(self, data: ReplayData) -> None:
        """Replay the remaining cells, one by one."""
        self._traces = data.traces
        cells, outcomes = self._options.plan.grid.cells, self._outcomes
        left: list[Cell] = []
        for cell in cells:
            kept = self._store.get(f"cell {cell.key}", dict[str, list[ItemCounts]])
            if kept is None:
                left.append(cell)
            else:
                outcomes[cell] = kept
        processes = min(self._options.processes, max(1, len(left)))
        with self._bar("cells") as count:
            count(len(outcomes), len(cells))
            for cell, found in replay_cells(left, data, processes=processes):
                self._store.put(f"cell {cell.key}", found)
                outcomes[cell] = found
                count(len(outcomes), len(cells))

    def _decode(self, engine: Engine, items: Sequence[ReplayItem]) -> None:
        """Decode the remaining items; only items that every cell decoded are compared."""
        cells = self._options.plan.grid.cells
        done: list[Mapping[Cell, ItemCounts]] = []
        try:
            with self._bar("items") as count:
                count(0, len(items))
                for found in decode_cells(engine, cells, items, self._store, self._config):
                    done.append(found)
                    count(len(done), len(items))
        finally:
            self._traces = {RECORDED: items[: len(done)]}
            self._outcomes = {cell: {RECORDED: [at[cell] for at in done]} for cell in cells}
