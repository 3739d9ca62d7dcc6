"""Recorded replies played back several at once, with the drafts that shared passes have room for.

`akunu_py.testing.play_together` says how they are played.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from akunu_lab.replay.runner import ReplayItem
from akunu_lab.study.values import Progress
from akunu_py.api import Column, CostCurve, Ratio, Table
from akunu_py.testing import SharedPass, play_together

_WINDOW = 16
"""Passes that are resampled together for an interval."""

_COLUMNS = (
    Column("group", "outputs"),
    Column("streams", "replies\nat once"),
    *Column.ratio("speed", "of plain", ".3f"),
    Column("drafted", "drafted\na token", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
)


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
        passes = list(
            play_together(
                ((item.prompt, item.output) for item in groups[group]), curves[name], count
            )
        )
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
