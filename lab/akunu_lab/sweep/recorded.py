"""Replies that the model decodes: plain ones, recorded once, and with --live those of every cell.

Cells are replayed on the plain replies, or decoded and compared with them. All cells decode each
item in turn, with the order rotated by one from item to item, so that other work on the machine
slows all alike. Nothing is remembered from reply to reply.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from akunu_lab.replay.cells import Cell
from akunu_lab.replay.runner import ItemCounts, ReplayItem
from akunu_lab.replay.traces import half_of
from akunu_lab.study.store import ItemStore
from akunu_lab.study.values import Count
from akunu_py.api import AkunuError, CostCurve, Costs, Engine, Failure, GenerationConfig, Prompt

_LONGEST_PASS = 33
"""Positions of the longest pass that is measured."""

Progress = Callable[[int, int], None]


def record_replies(
    engine: Engine,
    prompts: Sequence[Prompt],
    store: ItemStore,
    config: GenerationConfig,
    failures: list[Failure],
    *,
    progress: Progress = lambda _done, _total: None,
) -> list[ReplayItem]:
    """Answer each prompt that the store lacks without drafts; errors go to `failures`."""
    items: list[ReplayItem] = []
    progress(0, len(prompts))
    for number, prompt in enumerate(prompts, start=1):
        try:
            ids = prompt.encode(engine.tokenizer, engine.context)
            output = _reply(engine, prompt.id, ids, store, config)
        except AkunuError as error:
            failures.append(Failure(prompt.id, str(error)))
        else:
            items.append(
                ReplayItem(
                    id=prompt.id,
                    category=prompt.category,
                    session=prompt.session,
                    half=half_of(prompt.session),
                    prompt=tuple(ids),
                    output=output,
                )
            )
        progress(number, len(prompts))
    return items


def _reply(
    engine: Engine, name: str, ids: Sequence[int], store: ItemStore, config: GenerationConfig
) -> tuple[int, ...]:
    key = f"reply {name}"
    found = store.get(key, tuple[Count, ...])
    if found is None:
        engine.reset()
        found = engine.generate(ids, config, drafter="none").token_ids
        store.put(key, found)
    return found


def measured_costs(
    engine: Engine, items: Sequence[ReplayItem], store: ItemStore, *, progress: Progress
) -> Costs:
    """Measure C(m) after the prompt of median length, once for a run, even if it is continued.

    A prompt that leaves no room for the longest pass is cut at its end.
    """
    found = store.get("costs", Costs)
    if found is None:
        by_length = sorted(items, key=lambda item: len(item.prompt))
        prompt = by_length[len(by_length) // 2].prompt[: max(1, engine.context - 2 * _LONGEST_PASS)]
        times = engine.tune(prompt, progress=progress)
        found = Costs(times.unit_s, times.costs)
        store.put("costs", found)
    return found


def curve_of(costs: Costs) -> CostCurve:
    """Return the curve that judges cells: C(1) is 1, and no cost falls as rows increase.

    The measured pass over one row had no step in flight, while plain decoding has one; and
    the medians of neighbouring sizes can be in the wrong order.
    """
    rows = sorted(rows for rows in costs.costs if rows > 1)
    rising = accumulate((costs.costs[size] for size in rows), max, initial=1.0)
    return CostCurve(dict(zip((1, *rows), rising, strict=True)))


def decode_cells(
    engine: Engine,
    cells: Sequence[Cell],
    items: Sequence[ReplayItem],
    store: ItemStore,
    config: GenerationConfig,
) -> Iterator[Mapping[Cell, ItemCounts]]:
    """Yield the counts of each item by cell; items in the store are not decoded again.

    Every cell decodes the first item once beforehand, uncounted, unless its outcomes are stored:
    the first pass of each size builds what later passes reuse.
    """
    if items and cells and store.get(_key(cells[0], items[0]), ItemCounts) is None:
        for cell in cells:
            _decode(engine, cell, items[0], config)
    for number, item in enumerate(items):
        engine.reset()
        found: dict[Cell, ItemCounts] = {}
        start = number % len(cells)
        for cell in (*cells[start:], *cells[:start]):
            key = _key(cell, item)
            counts = store.get(key, ItemCounts)
            if counts is None:
                counts = _decode(engine, cell, item, config)
                store.put(key, counts)
            found[cell] = counts
        yield found


def _key(cell: Cell, item: ReplayItem) -> str:
    return f"{cell.key} | {item.id}"


def _decode(engine: Engine, cell: Cell, item: ReplayItem, config: GenerationConfig) -> ItemCounts:
    # Otherwise a drafter would remember this very reply. The prompt's rows stay: they are
    # the same for all cells, and no figure has the prefill in it.
    engine.forget()
    result = engine.generate(item.prompt, cell.config(config))
    return ItemCounts(
        stats=result.stats,
        decode_s=result.decode_s,
        identical=result.token_ids == item.output,
    )
