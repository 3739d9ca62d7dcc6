"""akunu's decoding speed next to mlx-lm's: the same model and the same ids, in one run.

Arms share the rows of a prompt as far as each keeps its own, and prefill is not timed.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from akunu_py.bench.engine_arm import EngineArm, measure_costs
from akunu_py.bench.figures import Part, arm_figures, identity, ratio
from akunu_py.bench.metrics import median_speedup
from akunu_py.bench.mlx_lm_arm import MlxLmArm
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import plain
from akunu_py.bench.run import Findings
from akunu_py.bench.runner import Arm, Item, ItemReplies, Progress, check_fits, run_arms
from akunu_py.bench.source_table import source_table
from akunu_py.bench.tables import Column, ratio_columns, table_of
from akunu_py.engine.engine import Engine
from akunu_py.models.mlx_lm_loop import LoopPass, PlainLoop
from akunu_py.models.pass_times import PassTimes
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.values.decode_stats import source_figures
from akunu_py.values.types import GenerationConfig

BASELINE = "mlx-lm"

_COLUMNS = (
    Column("arm", "arm"),
    *ratio_columns("median_ratio", "of mlx-lm,\nmedian", ".3f"),
    *ratio_columns("ratio", "of mlx-lm", ".3f", detail=True),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("outside", "outside", ".1%"),
    Column("peak_megabytes", "peak\nMB", ".0f"),
    Column("identical", "same"),
)
_STREAMS_COLUMNS = (
    Column("arm", "arm"),
    *ratio_columns("ratio", "of the first\nnumber", ".2f"),
    *ratio_columns("beside", "of the first\ndrafter", ".2f"),
    Column("tokens_per_cpu_s", "tokens/\nCPU s", ".1f"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("identical", "same"),
)


_KIND_COLUMNS = (
    Column("kind", "text"),
    Column("arm", "arm"),
    Column("tokens_per_cpu_s", "tokens/\nCPU s", ".1f"),
    *ratio_columns("beside", "of the first\ndrafter", ".3f"),
)


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """The replies of all arms, of which mlx-lm's comes first.

    `times` are the costs of passes, None if the context has no room to measure them. Where several
    replies are made at once, ratios are of tokens per processor second: to the arm of `against`,
    and to that of `beside`.
    """

    arms: tuple[str, ...]
    runs: tuple[ItemReplies, ...]
    times: PassTimes | None
    failures: tuple[Failure, ...] = ()
    finished: bool = True
    against: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)

    def of_category(self, category: str) -> "SpeedReport":
        """Return the report of one category."""
        runs = tuple(run for run in self.runs if run.item.category == category)
        return replace(self, runs=runs)

    def figures(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of each arm that answered anything."""
        part: Part = "processor" if self.beside else "decoding"
        for name in self.arms:
            other = self.against.get(name, BASELINE)
            arm, same = arm_figures(self.runs, name), identity(self.runs, name, other)
            if not arm.replies:
                continue
            peak = arm.peak_memory_bytes
            yield {
                "arm": name,
                "pairs": same.pairs,
                "identical": same.identical,
                "token_hash": arm.digest,
                "tokens_per_s": arm.tokens_per_s,
                "tokens_per_pass": arm.stats.tokens_per_pass,
                "hit_rate": arm.stats.hit_rate,
                "outside": arm.outside,
                "peak_memory_bytes": peak,
                "peak_megabytes": None if peak is None else peak / 1e6,
                "tokens_per_cpu_s": arm.tokens_per_cpu_s,
                "ratio": ratio(self.runs, name, other, part),
                "median_ratio": ratio(self.runs, name, other, part, of=median_speedup),
                "beside": ratio(self.runs, name, self.beside.get(name, other), part),
                "sources": arm.stats.sources,
                "tokens": arm.tokens,
            }


def run_speed(
    engine: Engine,
    items: Sequence[Item],
    *,
    drafters: Sequence[str] = ("none", "ngram", "auto"),
    num_draft_tokens: int | None = None,
    max_tokens: int = 96,
    rounds: int = 1,
    with_costs: bool = True,
    store: ItemStore | None = None,
    progress: Progress | None = None,
    until: Callable[[], bool] = lambda: False,
) -> SpeedReport:
    """Answer each item with mlx-lm and with each drafter, greedily, `rounds` times.

    The cost of passes is measured first, and the budgets of all arms get it. `num_draft_tokens`
    bounds all drafters; with None each uses its own default. An item that does not fit into the
    context becomes a failure. `store`, `progress` and `until` are as in `run_arms`.

    Raises ConfigError without items or if none fits, for an unknown drafter, and for a draft model
    or a head that the engine lacks.
    """
    fitting, failures = fitting_items(engine, items, max_tokens)
    config = GenerationConfig(max_tokens=max_tokens, seed=0, num_draft_tokens=num_draft_tokens)
    configs = {name: replace(config, drafter=name) for name in dict.fromkeys(drafters)}
    for one in configs.values():
        # Nothing runs, but a drafter is made.
        with engine.stream(fitting[0].prompt, one):
            pass
    arms: list[Arm] = [
        MlxLmArm(
            BASELINE, _lent_loop(engine), max_tokens=max_tokens, plain=BASELINE,
            end_ids=engine.tokenizer.end_ids,
        ),
        *(
            EngineArm(name, engine, one, plain="none", keeps_prompt=True)
            for name, one in configs.items()
        ),
    ]  # fmt: skip
    times = measure_costs(engine, fitting[0].prompt, repeats=5) if with_costs else None
    done = run_arms(
        arms,
        fitting,
        ItemStore(None, {}) if store is None else store,
        rounds=rounds,
        progress=progress,
        until=until,
    )
    names = tuple(arm.name for arm in arms)
    return SpeedReport(names, done.items, times, (*failures, *done.failures), done.finished)


def fitting_items(
    engine: Engine, items: Sequence[Item], max_tokens: int
) -> tuple[list[Item], list[Failure]]:
    """Return the items that fit into the context, and failures of the others.

    Raises ConfigError if there are none.
    """
    if not items:
        raise ConfigError("there is nothing to measure with; give prompts or a trace with items")
    failures: list[Failure] = []
    fitting: list[Item] = []
    for item in items:
        try:
            # mlx-lm queues a pass behind the last token.
            check_fits(item.id, item.category, len(item.prompt), engine.context, max_tokens + 1)
        except AkunuError as error:
            failures.append(Failure(item.id, str(error)))
        else:
            fitting.append(item)
    if not fitting:
        raise ConfigError(f"nothing can be measured: {failures[0].error}")
    return fitting, failures


def _lent_loop(engine: Engine) -> Callable[..., Generator[LoopPass, None, None]]:
    """Return mlx-lm's loop over an engine's model, which is lent for each reply."""
    loops: list[PlainLoop] = []

    def passes(*arguments: Any) -> Generator[LoopPass, None, None]:
        with engine.lend("this reply was ended by a measurement on the same engine") as lent:
            if not loops:
                loops.append(PlainLoop(lent.model, keeps_prompt=True))
            yield from loops[0].passes(*arguments)

    return passes


def speed_findings(report: SpeedReport, failures: Sequence[Failure] = ()) -> Findings:
    """Return the figures, tables and rows; `failures` are those from before the run.

    Drafts depend on the measured cost of passes, so only the texts are deterministic.
    """
    arms = list(report.figures())
    times = report.times
    traffic = None if times is None else times.traffic
    rows = ({**arm, "identical": f"{arm['identical']}/{arm['pairs']}"} for arm in arms)
    title, columns = "Decoding next to mlx-lm", _COLUMNS
    if report.beside:
        title, columns = "Replies at once, by tokens per processor second", _STREAMS_COLUMNS
    table = table_of("speed", title, columns, rows)
    tables = [table]
    if report.beside:
        kinds = dict.fromkeys(run.item.category for run in report.runs)
        of_kinds = (
            {**arm, "kind": kind}
            for kind in kinds
            for arm in report.of_category(kind).figures()
            if report.beside[arm["arm"]] != arm["arm"]
        )
        tables.append(table_of("kinds", "By kind of text", _KIND_COLUMNS, of_kinds))
    sources = source_table((arm["arm"], arm["sources"], arm["tokens"]) for arm in arms)
    fixed = ("pairs", "identical", "token_hash")
    varying = (
        "tokens_per_s",
        "tokens_per_pass",
        "hit_rate",
        "outside",
        "peak_memory_bytes",
        "tokens_per_cpu_s",
        "ratio",
        "beside",
    )
    return Findings(
        deterministic={"arms": {arm["arm"]: {name: arm[name] for name in fixed} for arm in arms}},
        timing={
            "ratios": {arm["arm"]: arm["median_ratio"] for arm in arms if arm["arm"] != BASELINE},
            "arms": {
                arm["arm"]: {
                    **{name: arm[name] for name in varying},
                    "sources": source_figures(arm["sources"]),
                }
                for arm in arms
            },
            "traffic": None if traffic is None else traffic.to_dict(),
        },
        tables=(*tables, sources) if arms else (),
        items=tuple(_items(report.runs)),
        failures=(*failures, *report.failures),
        costs=None if times is None else Costs(times.unit_s, times.costs),
        finished=report.finished,
    )


def _items(runs: Sequence[ItemReplies]) -> Iterator[dict[str, object]]:
    rounds: dict[str, int] = {}
    for run in runs:
        item = run.item
        number = rounds[item.id] = rounds.get(item.id, 0) + 1
        for arm, reply in run.replies.items():
            yield {
                "id": f"{item.id} by {arm}" + (f", round {number}" if number > 1 else ""),
                "category": item.category,
                "case": item.id,
                "arm": arm,
                "session": item.session,
                **plain(reply),
            }


def content_hash(items: Sequence[Item]) -> str:
    """Return the SHA-256 of the token ids of items."""
    content = [[item.id, item.session, item.prompt, item.text] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
