"""The model's own plain replies, recorded once: what cells are replayed on or decoded against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from akunu_py.bench.hit_rate import encode_prompt
from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.bench.replay.traces import half_of
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.workloads import Prompt
from akunu_py.cost_curve import CostCurve
from akunu_py.engine.engine import Engine
from akunu_py.errors import AkunuError
from akunu_py.models.pass_times import ROWS
from akunu_py.types import GenerationConfig

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Recording:
    """Replies as items, and the prompts that got none."""

    items: tuple[ReplayItem, ...]
    failures: tuple[Failure, ...]


def record_replies(
    engine: Engine,
    prompts: Sequence[Prompt],
    store: ItemStore,
    config: GenerationConfig,
    *,
    progress: Progress = lambda _done, _total: None,
) -> Recording:
    """Answer each prompt without drafts, those in the store left out; what fails is named."""
    items: list[ReplayItem] = []
    failures: list[Failure] = []
    progress(0, len(prompts))
    for number, prompt in enumerate(prompts, start=1):
        try:
            ids = encode_prompt(engine, prompt)
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
    return Recording(tuple(items), tuple(failures))


def _reply(
    engine: Engine, name: str, ids: Sequence[int], store: ItemStore, config: GenerationConfig
) -> tuple[int, ...]:
    key = f"reply {name}"
    found: dict[str, Any] | None = store.get(key)
    if found is None:
        engine.reset()
        tokens = engine.generate(ids, config, drafter="none").token_ids
        store.put(key, {"token_ids": list(tokens)})
        return tokens
    return tuple(found["token_ids"])


def measured_costs(
    engine: Engine, items: Sequence[ReplayItem], store: ItemStore, *, progress: Progress
) -> Costs:
    """Measure C(m) after the prompt of median length, once for a run however often continued.

    Of a prompt that leaves no room for the longest pass the beginning is taken.
    """
    found: dict[str, Any] | None = store.get("costs")
    if found is None:
        by_length = sorted(items, key=lambda item: len(item.prompt))
        prompt = by_length[len(by_length) // 2].prompt[: max(1, engine.context - 2 * max(ROWS))]
        times = engine.tune(prompt, progress=progress)
        found = {
            "unit_s": times.unit_s,
            "costs": {str(rows): cost for rows, cost in times.costs.items()},
        }
        store.put("costs", found)
    return Costs(found["unit_s"], {int(rows): cost for rows, cost in found["costs"].items()})


def curve_of(costs: Costs) -> CostCurve:
    """Return the curve that cells are judged by: plain decoding costs 1, and nothing ever falls.

    A measured pass over one row had no step in flight, as plain decoding has; and the medians of
    neighbouring sizes can lie the wrong way round.
    """
    rows = sorted(rows for rows in costs.costs if rows > 1)
    rising = accumulate((costs.costs[size] for size in rows), max, initial=1.0)
    return CostCurve(dict(zip((1, *rows), rising, strict=True)))
