"""A table with a line for each source of drafted tokens."""

from collections.abc import Iterable, Sequence

from akunu_py.bench.tables import Column, Table
from akunu_py.values.decode_stats import SourceStats

_COLUMNS = (
    Column("drafter", "drafter"),
    Column("source", "source"),
    Column("drafted", "drafted"),
    Column("accepted", "accepted"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("coverage", "of the\ntext", ".1%"),
)


def source_table(counts: Iterable[tuple[str, Sequence[SourceStats], int]]) -> Table:
    """Return the table of some drafters: name, counts by source, and tokens of their replies.

    It is a detail where no drafter has several sources, since other tables have the same figures.
    """
    counts = list(counts)
    rows = tuple(
        (
            drafter, one.source, one.drafted, one.accepted, one.hit_rate,
            one.accepted / tokens if tokens else None,
        )
        for drafter, sources, tokens in counts
        for one in sources
    )  # fmt: skip
    several = any(len(sources) > 1 for _, sources, _ in counts)
    return Table("sources", "Drafted tokens by source", _COLUMNS, rows, detail=not several)
