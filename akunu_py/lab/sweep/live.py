"""Cells really decoded: for drafters that ask a model, or learn from the target's logits.

Of each item all cells are decoded in turn, the order moved on by one from item to item, so that a
machine that gets other work slows all alike. Nothing is remembered from reply to reply.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.bench.resume import ItemStore
from akunu_py.engine.engine import Engine
from akunu_py.lab.sweep.grid import Cell
from akunu_py.lab.sweep.outcomes import ItemOutcome
from akunu_py.lab.sweep.settings import cell_config
from akunu_py.types import GenerationConfig


def decode_cells(
    engine: Engine,
    cells: Sequence[Cell],
    items: Sequence[ReplayItem],
    store: ItemStore,
    config: GenerationConfig,
) -> Iterator[Mapping[Cell, ItemOutcome]]:
    """Yield for each item what the cells came to; what is in the store is not decoded again.

    The first item is decoded once with every cell beforehand and not counted, unless its outcomes
    are there: the first passes of each size build what later ones reuse.
    """
    if items and cells and store.get(_key(cells[0], items[0])) is None:
        for cell in cells:
            _decode(engine, cell, items[0], config)
    for number, item in enumerate(items):
        engine.reset()
        found: dict[Cell, ItemOutcome] = {}
        start = number % len(cells)
        for cell in (*cells[start:], *cells[:start]):
            key = _key(cell, item)
            kept: dict[str, Any] | None = store.get(key)
            if kept is None:
                found[cell] = _decode(engine, cell, item, config)
                store.put(key, found[cell].to_dict())
            else:
                found[cell] = ItemOutcome.from_dict(kept)
        yield found


def _key(cell: Cell, item: ReplayItem) -> str:
    return f"{cell.key} | {item.id}"


def _decode(engine: Engine, cell: Cell, item: ReplayItem, config: GenerationConfig) -> ItemOutcome:
    # Otherwise a drafter's memory would hold this very reply. The prompt's rows stay: they are
    # the same for all cells, and no figure has the prefill in it.
    engine.forget()
    result = engine.generate(item.prompt, cell_config(cell, config))
    return ItemOutcome(
        stats=result.stats,
        drafter_s=result.stats.propose_s,
        decode_s=result.decode_s,
        identical=result.token_ids == item.output,
    )
