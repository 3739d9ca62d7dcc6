"""Recorded replies played back several at once, with the drafts that shared passes have room for.

The budget is the engine's own, and learns within a run. Its clock is the curve: a pass of n replies
and d drafted rows takes C(n + d). Nothing is in flight, so the first token of a draft needs a row
like the others. Only passes count in which all places are taken.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from akunu_lab.replay.runner import ReplayItem
from akunu_lab.study.values import Progress
from akunu_py.api import Column, Draft, Ratio, Table, Target
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Decoding, verify_match
from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.registry import default_num_draft_tokens
from akunu_py.values.cost_curve import CostCurve

_UNIT_S = 0.01
_NO_TOKEN = -1
"""The choice beyond the end of an output, which no draft can match."""

_WINDOW = 16
"""Passes that are resampled together for an interval."""

_COLUMNS = (
    Column("group", "outputs"),
    Column("streams", "replies\nat once"),
    *Column.ratio("speed", "of plain", ".3f"),
    Column("drafted", "drafted\na token", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
)


class SharedPass(NamedTuple):
    """A pass of all replies: their tokens, drafted rows, and its cost."""

    tokens: int
    drafted: int
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


def replay_together(
    items: Iterable[ReplayItem], curve: CostCurve, streams: int
) -> Iterator[SharedPass]:
    """Play items back with `auto`, `streams` at once; places are filled as replies end."""
    state, learned, now_s = BudgetState(), AutoState(), 0.0
    shared = SharedPasses(state.shared_costs)

    def begin(item: ReplayItem) -> tuple[Decoding, Budget, Target]:
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
        return decoding, budget, target

    waiting, running = deque(items), list[tuple[Decoding, Budget, Target]]()
    while True:
        while waiting and len(running) < streams:
            running.append(begin(waiting.popleft()))
        if len(running) < streams:
            return
        shared.begin(streams, waits=True)
        wanted = [decoding.begin() for decoding, _, _ in running]
        offers = [budget.offer for _, budget, _ in running]
        sizes = iter(shared.share([offer for offer in offers if offer is not None]))
        drafted = tokens = 0
        for (decoding, _, target), (last, draft), offer in zip(
            running, wanted, offers, strict=True
        ):
            kept = decoding.draft = draft if offer is None else draft.first(next(sizes))
            step = decoding.finish(verify_match(kept, target.choose(last, kept)))
            drafted += len(kept)
            tokens += len(step.token_ids)
        cost = curve.cost(streams + drafted)
        taken_s = _UNIT_S * cost
        now_s += taken_s
        shared.observe(
            seconds=taken_s, feeding_s=taken_s, drafted=drafted, tokens=tokens, steady=True
        )
        yield SharedPass(tokens, drafted, cost)
        running = [one for one in running if not one[0].over]


def company_tables(
    traces: Mapping[str, Sequence[ReplayItem]],
    curves: Mapping[str, CostCurve],
    streams: Sequence[int],
    *,
    by: str,
    progress: Progress,
) -> tuple[Table, ...]:
    """Return a table for each curve: a row for each group, and number of replies at once.

    Groups are by "category" or "trace"; `progress` is called with finished and all replays.
    """
    groups: dict[str, list[ReplayItem]] = {}
    for trace, items in traces.items():
        for item in items:
            groups.setdefault(item.category if by == "category" else trace, []).append(item)
    rows = [(name, group, count) for name in curves for group in groups for count in streams]
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in curves}
    for number, (name, group, count) in enumerate(rows, start=1):
        passes = list(replay_together(groups[group], curves[name], count))
        tokens, drafted = (sum(one[part] for one in passes) for part in (0, 1))
        records[name].append(
            {
                "group": group,
                "streams": count,
                "speed": Ratio.of(_windows(passes, curves[name].cost(count), count)),
                "drafted": drafted / tokens if tokens else None,
                "hit_rate": (tokens - count * len(passes)) / drafted if drafted else None,
            }
        )
        progress(number, len(rows))
    title = "replies at once, with the draft budget"
    return tuple(
        Table.of(f"streams-{name}", f"{name}: {title}", _COLUMNS, found)
        for name, found in records.items()
    )


def _windows(
    passes: Sequence[SharedPass], plain: float, streams: int
) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield stretches of passes, each beside as many plain passes."""
    for start in range(0, len(passes), _WINDOW):
        own = passes[start : start + _WINDOW]
        tokens, cost = sum(one.tokens for one in own), sum(one.cost for one in own)
        yield str(start), streams * len(own), plain * len(own), tokens, cost
