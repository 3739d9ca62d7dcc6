"""What a study adds to a result of `akunu bench hit-rate`, from the replies that it holds."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import json
from msgspec.structs import replace

from akunu_lab import metrics
from akunu_py.api import BenchResult, Column, DecodeStats, MeasuredReply, Table

_COMMAND = "hit-rate"
_FIGURES = (
    Column("category", "category"),
    Column("alpha", "alpha", ".0%"),
    Column("tokens_per_pass_macro", "tokens a pass,\nmacro", ".2f"),
    Column("mean_acceptance_vllm", "acceptance,\nvLLM", ".2f"),
    Column("mean_acceptance_spec_bench", "acceptance,\nSpec-Bench", ".2f"),
    Column("coverage", "coverage", ".0%"),
    *Column.ratio("normalised_speed", "normalised\nspeed", ".2f"),
)
_POSITIONS = (
    Column("position", "position"),
    Column("drafted", "drafted"),
    Column("accepted", "accepted"),
    Column("accepted_per_pass", "of passes with a draft", ".1%"),
    Column("conditional", "of those that accepted the one before", ".1%"),
)


class _Replies(NamedTuple):
    """The replies to a prompt: without drafting and with it."""

    category: str
    session: str
    num_prompt_tokens: int
    off: MeasuredReply
    on: MeasuredReply


def studied(result: BenchResult) -> BenchResult:
    """Return a result with the figures and tables of a study, where it is one of `hit-rate`.

    Figures of drafts stand where the result has its own: in `deterministic`, or in `timing` as
    "drafting". Raises ConfigError for replies that are malformed.
    """
    if result.command != _COMMAND:
        return result
    replies = [
        _Replies(
            item["category"],
            str(item.get("session", item["id"])),
            int(item.get("num_prompt_tokens", 0)),
            *(
                MeasuredReply.from_json(json.encode(item[arm]), f"{item['id']}, {arm}")
                for arm in ("off", "on")
            ),
        )
        for item in result.items
        if "off" in item and "on" in item
    ]
    if not replies:
        return result
    groups = {
        name: [reply for reply in replies if reply.category == name]
        for name in dict.fromkeys(reply.category for reply in replies)
    }
    cost = None if result.costs is None else result.costs.curve().cost
    found = {name: _figures(group) for name, group in (*groups.items(), ("all", replies))}
    speeds = {
        name: None
        if cost is None
        else metrics.normalised_speed(((one.session, one.on) for one in group), cost)
        for name, group in (*groups.items(), ("all", replies))
    }
    stats = sum((reply.on.stats for reply in replies), DecodeStats())
    records = (
        {**figures, "category": name, "normalised_speed": speeds[name]}
        for name, figures in found.items()
    )
    tables = (
        Table.of("study", "Drafts and costs", _FIGURES, records, total_rows=1),
        _positions(stats),
    )
    total = found.pop("all")
    counted: dict[str, Any] = {"total": total, "categories": found}
    in_timing = "drafting" in result.timing
    return replace(
        result,
        deterministic=_merged(result.deterministic, {} if in_timing else counted),
        timing=_merged(result.timing, {"drafting": counted} if in_timing else {}),
        tables=(*result.tables, *tables),
    )


def _figures(replies: Sequence[_Replies]) -> dict[str, Any]:
    stats = sum((reply.on.stats for reply in replies), DecodeStats())
    return {
        "alpha": stats.alpha,
        "tokens_per_pass_macro": metrics.tokens_per_pass_macro(one.on.stats for one in replies),
        "mean_acceptance_vllm": metrics.mean_acceptance_vllm(stats),
        "mean_acceptance_spec_bench": metrics.mean_acceptance_spec_bench(stats),
        "coverage": metrics.coverage(stats),
        "accepted_per_pass": list(metrics.accepted_per_pass(one.on for one in replies)),
    }


def _positions(stats: DecodeStats) -> Table:
    counts = zip(
        stats.drafted_per_position, stats.accepted_per_position,
        metrics.accepted_per_position(stats), metrics.conditional_acceptance(stats), strict=False,
    )  # fmt: skip
    rows = tuple((number, *cells) for number, cells in enumerate(counts, start=1))
    title = "Acceptance by position in the draft"
    return Table("positions", title, _POSITIONS, rows, detail=True)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested figures with further ones."""
    found = dict(old)
    for name, value in new.items():
        if isinstance(value, Mapping):
            before = found.get(name)
            found[name] = _merged(before if isinstance(before, Mapping) else {}, value)
        else:
            found[name] = value
    return found
