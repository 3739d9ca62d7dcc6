"""Counts of decoding as JSON, and back."""

from akunu_py.bench.record import Record
from akunu_py.types import DecodeStats

_FIELDS = (
    "steps", "steps_with_draft", "drafted", "accepted", "tested", "output_tokens",
    "drafted_per_position", "accepted_per_position", "propose_s", "target_s", "commit_s",
)  # fmt: skip


def stats_dict(stats: DecodeStats) -> dict[str, object]:
    """Return counts and seconds as JSON-ready values, without the rates."""
    record = stats.to_dict()
    return {name: record[name] for name in _FIELDS}


def read_stats(record: Record) -> DecodeStats:
    """Return what `stats_dict` wrote; raises ConfigError saying what is wrong with it."""
    return DecodeStats(
        steps=record.count("steps"),
        steps_with_draft=record.count("steps_with_draft"),
        drafted=record.count("drafted"),
        accepted=record.count("accepted"),
        tested=record.count("tested"),
        output_tokens=record.count("output_tokens"),
        drafted_per_position=record.counts("drafted_per_position"),
        accepted_per_position=record.counts("accepted_per_position"),
        propose_s=record.number("propose_s"),
        target_s=record.number("target_s"),
        commit_s=record.number("commit_s"),
    )
