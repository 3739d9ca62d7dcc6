"""Runs a sweep from its plan to its counts, continuing where an earlier run stopped."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from akunu_lab.replay.cells import Cell
from akunu_lab.replay.curves import load_curves
from akunu_lab.replay.runner import ItemCounts, ReplayItem
from akunu_lab.replay.tokens import Bar, read_traces, tokenize_traces
from akunu_lab.replay.trace_replays import (
    Counts,
    Memory,
    ReplayInputs,
    Traces,
    plan_replays,
    run_replays,
)
from akunu_lab.study.store import ItemStore
from akunu_lab.study.values import Exactness, reply_exactness
from akunu_lab.sweep.plan import Plan
from akunu_lab.sweep.recommend import Recommendable, eligible_cells
from akunu_lab.sweep.recorded import curve_of, decode_cells, measured_costs, record_replies
from akunu_py.api import (
    ConfigError,
    CostCurve,
    Costs,
    Engine,
    Failure,
    GenerationConfig,
    Prompt,
    Tokenizer,
)

RECORDED = "replies"
"""Name of the trace of the model's own replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep, as those of its command."""

    plan: Plan
    traces: tuple[Path, ...] = ()
    """Files of recorded replies; without any, the model answers the shipped prompts."""
    curve: str | None = None
    """Name or file of a cost curve; None measures it."""
    live: bool = False
    """Whether every cell is decoded, which makes speeds measured times."""
    memory: Memory = "session"
    categories: tuple[str, ...] = ()
    limit: int | None = None
    """Prompts of each category, or items of each trace; None: all."""
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    processes: int = 1
    heat_axes: str | None = None
    """Axes of the heat map, as "X,Y"; None: the first two that are varied."""
    recommendable: Recommendable = "identical"
    counts: Path | None = None
    """Counts of a corpus, for the drafter `corpus`."""

    @property
    def needs_model(self) -> bool:
        """Whether the sweep needs the model, not only its tokenizer."""
        return self.live or not self.traces or self.curve is None

    @property
    def config(self) -> GenerationConfig:
        """The configuration of the replies."""
        return GenerationConfig(
            max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed
        )

    @property
    def decoded(self) -> GenerationConfig:
        """The configuration of cells that are decoded."""
        return (
            self.config if self.counts is None else self.config.with_values({"counts": self.counts})
        )


@dataclass(slots=True)
class Sweep:
    """A sweep as far as it was measured: finished cells in the order of the grid."""

    options: SweepOptions
    traces: Traces = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    curve: CostCurve = field(default_factory=lambda: CostCurve({1: 1.0}))
    costs: Costs | None = None
    """What `curve` was made of, if it was measured, so that the next run has another."""
    failures: list[Failure] = field(default_factory=list)
    """Prompts without a reply, and lines and items of traces that cannot be used."""
    finished: bool = False

    def exactness(self, cell: Cell) -> Exactness:
        """Return how the replies of a cell relate to replies of plain decoding."""
        return reply_exactness(cell.config(self.options.config))

    def eligible(self) -> list[Cell]:
        """Return the finished cells that may be recommended."""
        exactness = {cell: self.exactness(cell) for cell in self.counts}
        return eligible_cells(self.counts, exactness, self.options.recommendable)


def run_sweep(
    options: SweepOptions,
    store: ItemStore,
    *,
    engine: Engine | None,
    tokenizer: Tokenizer,
    bar: Bar,
) -> Sweep:
    """Measure what the store lacks; after an interrupt the finished part is kept.

    The engine is given if `options.needs_model`; the tokenizer encodes traces. Raises ConfigError
    for a trace or a curve that cannot be read, and if no prompt could be answered.
    """
    sweep = Sweep(options)
    with contextlib.suppress(KeyboardInterrupt):
        if options.curve is not None:
            # A file may have several curves; the first one is used.
            sweep.curve = next(iter(load_curves([options.curve]).values()))
        if options.traces:
            read = read_traces(options.traces, options.limit, sweep.failures)
            traces: Traces = tokenize_traces(read, tokenizer, sweep.failures, bar)
        else:
            traces = {RECORDED: _record(sweep, _known(engine), store, bar)}
        if options.curve is None:
            items = [item for found in traces.values() for item in found]
            with bar("rounds measured") as count:
                sweep.costs = measured_costs(_known(engine), items, store, progress=count)
            sweep.curve = curve_of(sweep.costs)
        if options.live:
            _decode(sweep, _known(engine), traces[RECORDED], store, bar)
            sweep.finished = True
        else:
            size = (tokenizer if engine is None else engine).vocabulary_size
            inputs = ReplayInputs(traces, {"": sweep.curve}, options.memory, size)
            _replay(sweep, inputs, store, bar)
    return sweep


def _known(engine: Engine | None) -> Engine:
    assert engine is not None  # noqa: S101 - `needs_model`
    return engine


def _record(sweep: Sweep, engine: Engine, store: ItemStore, bar: Bar) -> Sequence[ReplayItem]:
    options = sweep.options
    prompts = Prompt.load(options.categories or None, limit=options.limit)
    with bar("replies") as count:
        items = record_replies(
            engine, prompts, store, options.config, sweep.failures, progress=count
        )
    if not items:
        first = sweep.failures[0]
        raise ConfigError(f"no prompt could be answered; {first.item}: {first.error}")
    return items


def _replay(sweep: Sweep, inputs: ReplayInputs, store: ItemStore, bar: Bar) -> None:
    sweep.traces = inputs.traces
    cells = sweep.options.plan.grid.cells
    replays = plan_replays(cells, inputs.traces)
    with bar("replays") as count:
        found, sweep.finished = run_replays(
            replays, inputs, store, processes=sweep.options.processes, progress=count
        )
    size = len(inputs.traces)
    sweep.counts = {cell: found[cell] for cell in cells if len(found.get(cell, ())) == size}


def _decode(
    sweep: Sweep, engine: Engine, items: Sequence[ReplayItem], store: ItemStore, bar: Bar
) -> None:
    """Decode the remaining items; only items that every cell decoded are compared."""
    options = sweep.options
    cells = options.plan.grid.cells
    done: list[Mapping[Cell, ItemCounts]] = []
    try:
        with bar("items") as count:
            count(0, len(items))
            for found in decode_cells(engine, cells, items, store, options.decoded):
                done.append(found)
                count(len(done), len(items))
    finally:
        sweep.traces = {RECORDED: items[: len(done)]}
        sweep.counts = {cell: {RECORDED: [at[cell] for at in done]} for cell in cells}
