"""Recorded replies played back several at once, with the drafts that shared passes have room for.

The budget is the engine's own, and learns within a run. Its clock is the curve: a pass of n replies
and d drafted rows takes C(n + d). Nothing is in flight, so the first token of a draft needs a row
like the others. Only passes count in which all places are taken.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akunu_py.bench.metrics import TimedPair, speedup
from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Decoding
from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.decoding.verify import verify_match
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.registry import default_num_draft_tokens
from akunu_py.protocols import Target
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft

_UNIT_S = 0.01
_NO_TOKEN = -1
"""The choice beyond the end of an output, which no draft can match."""

_WINDOW = 16
"""Passes that are resampled together for an interval."""

_COLUMNS = (
    Column("kind", "outputs"),
    Column("streams", "replies\nat once"),
    *ratio_columns("speed", "of plain", ".3f"),
    Column("drafted", "drafted\na token", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
)


@dataclass(frozen=True, slots=True)
class SharedPass:
    """A pass of all replies: their tokens, drafted rows, accepted rows, and the cost."""

    tokens: int
    drafted: int
    accepted: int
    cost: float


class _RecordedTarget(Target):
    """Chooses the tokens of a recorded output."""

    pipelined = in_flight = False

    def __init__(self, output: Sequence[int]) -> None:
        self._left = deque(output)

    def max_draft_tokens(self) -> int:
        return len(self._left)

    def choose(self, last: int, draft: Draft) -> list[int]:  # noqa: ARG002 - it is recorded
        found = list(self._left)[: 1 + len(draft)]
        return [*found, *[_NO_TOKEN] * (1 + len(draft) - len(found))]

    def commit(self, accepted: Sequence[int]) -> None:
        for _ in range(min(len(self._left), 1 + len(accepted))):
            self._left.popleft()


@dataclass(slots=True)
class _Reply:
    decoding: Decoding
    budget: Budget
    target: Target


def replay_together(
    items: Iterable[ReplayItem], curve: CostCurve, streams: int
) -> Iterator[SharedPass]:
    """Play items back with `auto`, `streams` at once; places are filled as replies end."""
    state, learned, now_s = BudgetState(), AutoState(), 0.0
    shared = SharedPasses(state.shared_costs)

    def begin(item: ReplayItem) -> _Reply:
        drafter, target = AutoDrafter(state=learned.fork()), _RecordedTarget(item.output)
        drafter.observe(item.prompt)
        budget = Budget(
            state, context=len(item.prompt), target=target, drafter=drafter, name=drafter.name,
            shared=shared,
        )  # fmt: skip
        decoding = Decoding(
            target, drafter, item.prompt[-1],
            num_draft_tokens=default_num_draft_tokens(drafter.name), max_tokens=len(item.output),
            budget=budget, position=len(item.prompt), clock=lambda: now_s,
        )  # fmt: skip
        return _Reply(decoding, budget, target)

    waiting, running = deque(items), list[_Reply]()
    while True:
        while waiting and len(running) < streams:
            running.append(begin(waiting.popleft()))
        if len(running) < streams:
            return
        shared.begin(streams, waits=True)
        wanted = [(one, *one.decoding.begin()) for one in running]
        offers = [one.budget.offer for one in running]
        sizes = iter(shared.share([offer for offer in offers if offer is not None]))
        steps = []
        for (one, last, draft), offer in zip(wanted, offers, strict=True):
            kept = one.decoding.draft = draft if offer is None else draft.first(next(sizes))
            steps.append(one.decoding.finish(verify_match(kept, one.target.choose(last, kept))))
        drafted = sum(step.stats.num_draft_tokens for step in steps)
        tokens = sum(len(step.token_ids) for step in steps)
        cost = curve.cost(streams + drafted)
        taken_s = _UNIT_S * cost
        now_s += taken_s
        shared.observe(
            seconds=taken_s, feeding_s=taken_s, drafted=drafted, tokens=tokens, steady=True
        )
        yield SharedPass(tokens, drafted, tokens - streams, cost)
        running = [one for one in running if not one.decoding.over]


def company_table(
    name: str,
    curve: CostCurve,
    kinds: Mapping[str, Sequence[ReplayItem]],
    streams: Sequence[int],
    done: Callable[[], None],
) -> Table:
    """Return a row for each kind of output and number of replies; `done` is called after each."""

    def rows() -> Iterator[dict[str, Any]]:
        for kind, items in kinds.items():
            for count in streams:
                found = list(replay_together(items, curve, count))
                tokens = sum(one.tokens for one in found)
                drafted = sum(one.drafted for one in found)
                hits = sum(one.accepted for one in found)
                yield {
                    "kind": kind,
                    "streams": count,
                    "speed": speedup(list(_windows(found, curve.cost(count), count))),
                    "drafted": drafted / tokens if tokens else None,
                    "hit_rate": hits / drafted if drafted else None,
                }
                done()

    return table_of(name, f"{name}: replies at once, with a budget", _COLUMNS, rows())


def _windows(passes: Sequence[SharedPass], plain: float, streams: int) -> Iterator[TimedPair]:
    """Yield stretches of passes, each beside as many plain passes."""
    for start in range(0, len(passes), _WINDOW):
        own = passes[start : start + _WINDOW]
        tokens, cost = sum(one.tokens for one in own), sum(one.cost for one in own)
        yield TimedPair(str(start), streams * len(own), plain * len(own), tokens, cost)
