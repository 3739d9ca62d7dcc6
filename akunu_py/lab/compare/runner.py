"""Every item by every arm, in turns; what fails is noted, and the run goes on."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from akunu_py.bench.record import Record
from akunu_py.bench.resume import ItemStore
from akunu_py.lab.compare.arm import Arm, Decoded


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt in token ids, which every arm gets; items of one session are alike."""

    id: str
    category: str
    session: str
    prompt: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ItemRun:
    """An item's replies by arm, what the other arms failed with, and the seconds all took."""

    item: Item
    replies: Mapping[str, Decoded]
    errors: Mapping[str, str]
    took_s: float

    def to_dict(self) -> dict[str, object]:
        """Return what came out as JSON-ready values."""
        return {
            "replies": {name: reply.to_dict() for name, reply in self.replies.items()},
            "errors": dict(self.errors),
            "took_s": self.took_s,
        }

    @classmethod
    def from_dict(cls, item: Item, value: object) -> "ItemRun":
        """Return an item's run that was kept; raises ConfigError saying what is wrong with it."""
        record = Record(value, f"the kept item {item.id}")
        replies, errors = record.record("replies"), record.record("errors")
        run = cls(
            item,
            {n: Decoded.from_dict(replies.record(n)) for n in record.mapping("replies")},
            {name: errors.text(name) for name in record.mapping("errors")},
            record.number("took_s"),
        )
        record.end()
        return run


@dataclass(frozen=True, slots=True)
class Runs:
    """Items in their order; `finished` is False after an interrupt, `resumed` were kept before."""

    items: tuple[ItemRun, ...]
    finished: bool
    resumed: int


def run_items(
    arms: Sequence[Arm],
    items: Sequence[Item],
    store: ItemStore,
    *,
    max_tokens: int,
    end_ids: frozenset[int],
    progress: Callable[[int, int], None] | None = None,
) -> Runs:
    """Decode each item by each arm, greedily, another arm first each time.

    The first item that is not in `store` is decoded once beforehand and not counted: kernels are
    compiled and buffers made at first use. An interrupt (KeyboardInterrupt) ends the run after the
    items that are finished. `progress` is called with replies made and to make.

    Raises ConfigError where the store cannot be written or holds something else.
    """
    report = progress or (lambda _done, _total: None)
    done: list[ItemRun] = []
    resumed = 0
    warm = False
    total = len(items) * len(arms)
    try:
        for number, item in enumerate(items):
            made = number * len(arms)
            report(made, total)
            kept = store.get(item.id)
            if kept is not None:
                done.append(ItemRun.from_dict(item, kept))
                resumed += 1
                continue
            if not warm:
                for arm in arms:
                    _decode(arm, item, max_tokens, end_ids)
                warm = True
            replies: dict[str, Decoded] = {}
            errors: dict[str, str] = {}
            started = time.perf_counter()
            for arm in turned(arms, number):
                result = _decode(arm, item, max_tokens, end_ids)
                if isinstance(result, Decoded):
                    replies[arm.name] = result
                else:
                    errors[arm.name] = result
                report(made + len(replies) + len(errors), total)
            run = ItemRun(item, replies, errors, time.perf_counter() - started)
            store.put(item.id, run.to_dict())
            done.append(run)
    except KeyboardInterrupt:
        return Runs(tuple(done), finished=False, resumed=resumed)
    return Runs(tuple(done), finished=True, resumed=resumed)


def turned(arms: Sequence[Arm], number: int) -> list[Arm]:
    """Return the arms, another one first each time, and in either direction."""
    start = number // 2 % len(arms)
    order = [*arms[start:], *arms[:start]]
    return order[::-1] if number % 2 else order


def _decode(arm: Arm, item: Item, max_tokens: int, end_ids: frozenset[int]) -> Decoded | str:
    """Return an arm's reply, or what it failed with."""
    try:
        return arm.decode(item.prompt, max_tokens, end_ids)
    except Exception as error:  # noqa: BLE001 - whatever another program raises
        return f"{type(error).__name__}: {error}"
