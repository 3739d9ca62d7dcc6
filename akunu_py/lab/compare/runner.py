"""Decodes every item by every arm, in turn; errors are recorded, and the run continues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import Count, Row
from akunu_py.bench.run import turned
from akunu_py.lab.compare.arm import Arm, Decoded


class Item(Row, frozen=True):
    """A prompt in token ids for every arm; items of a session are resampled together."""

    id: str
    category: str
    session: str
    prompt: tuple[Count, ...]


class ItemRun(Row, frozen=True):
    """An item's replies by arm, and the errors of arms without one."""

    item: Item
    replies: dict[str, Decoded]
    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Runs:
    """Items in their order; `finished` is False after an interrupt."""

    items: tuple[ItemRun, ...]
    finished: bool


def run_items(
    arms: Sequence[Arm],
    items: Sequence[Item],
    store: ItemStore,
    *,
    max_tokens: int,
    end_ids: frozenset[int],
    progress: Callable[[int, int], None] | None = None,
) -> Runs:
    """Decode each item by each arm, greedily, with another arm first each time.

    The first item that is not in `store` is decoded once beforehand, uncounted: kernels are
    compiled and buffers made at their first use. After an interrupt (KeyboardInterrupt) the result
    has the finished items. `progress` is called with finished and all replies.

    Raises ConfigError if the store cannot be written or has other content.
    """
    report = progress or (lambda _done, _total: None)
    done: list[ItemRun] = []
    warm = False
    total = len(items) * len(arms)
    try:
        for number, item in enumerate(items):
            made = number * len(arms)
            report(made, total)
            kept = store.get(item.id, ItemRun)
            # A file of prompts may have changed since then.
            if kept is not None and kept.item == item:
                done.append(kept)
                continue
            if not warm:
                for arm in arms:
                    _decode(arm, item, max_tokens, end_ids)
                warm = True
            replies: dict[str, Decoded] = {}
            errors: dict[str, str] = {}
            for arm in turned(arms, number):
                result = _decode(arm, item, max_tokens, end_ids)
                if isinstance(result, Decoded):
                    replies[arm.name] = result
                else:
                    errors[arm.name] = result
                report(made + len(replies) + len(errors), total)
            run = ItemRun(item, replies, errors)
            store.put(item.id, run)
            done.append(run)
    except KeyboardInterrupt:
        return Runs(tuple(done), finished=False)
    return Runs(tuple(done), finished=True)


def _decode(arm: Arm, item: Item, max_tokens: int, end_ids: frozenset[int]) -> Decoded | str:
    """Return an arm's reply, or its error."""
    try:
        return arm.decode(item.prompt, max_tokens, end_ids)
    except Exception as error:  # noqa: BLE001 - whatever another program raises
        return f"{type(error).__name__}: {error}"
