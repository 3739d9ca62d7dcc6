"""akunu's decoding speed next to mlx-lm's: the same model and the same ids, in one run.

Arms share the rows of a prompt as far as each keeps its own, and prefill is not timed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from akunu_py.bench.engine_arm import EngineArm, measure_costs
from akunu_py.bench.figures import ArmFigures
from akunu_py.bench.mlx_lm_arm import MlxLmArm
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.rows import plain
from akunu_py.bench.run import Findings
from akunu_py.bench.runner import Arm, FinishedItems, Item, ItemReplies, Progress, run_arms
from akunu_py.bench.source_table import source_table
from akunu_py.bench.tables import Column, Table
from akunu_py.bench.workloads import check_fits
from akunu_py.engine.engine import Engine
from akunu_py.models.pass_times import PassTimes
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.values.decode_stats import source_figures
from akunu_py.values.types import GenerationConfig

BASELINE = "mlx-lm"

_COLUMNS = (
    Column("arm", "arm"),
    *Column.ratio("median_ratio", "of mlx-lm,\nmedian", ".3f"),
    *Column.ratio("ratio", "of mlx-lm", ".3f", detail=True),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("outside", "outside", ".1%"),
    Column("peak_megabytes", "peak\nMB", ".0f"),
    Column("identical", "same"),
)


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """The replies of all arms, of which mlx-lm's comes first.

    `times` are the costs of passes, None if the context has no room to measure them.
    """

    arms: tuple[str, ...]
    runs: tuple[ItemReplies, ...]
    times: PassTimes | None
    failures: tuple[Failure, ...] = ()
    finished: bool = True

    def of_category(self, category: str) -> "SpeedReport":
        """Return the report of one category."""
        runs = tuple(run for run in self.runs if run.item.category == category)
        return replace(self, runs=runs)

    def figures(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of each arm that answered anything."""
        for name in self.arms:
            arm = ArmFigures.of(self.runs, name)
            same = arm.identity(BASELINE)
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
                "ratio": arm.over(BASELINE),
                "median_ratio": arm.over(BASELINE, median=True),
                "sources": arm.stats.sources,
                "tokens": arm.tokens,
            }

    def head(
        self, result: BenchResult, choices: str, *, max_tokens: int, num_draft_tokens: int | None
    ) -> str:
        """Return the lines above the tables: model, whose choices, sizes, costs of passes."""
        most = "each drafter's own number" if num_draft_tokens is None else num_draft_tokens
        how = f"choices: {choices}; {max_tokens} tokens a reply, up to {most} drafted"
        head = f"{result.model_line()}\n{how}"
        if (times := self.times) is None:
            return head
        costs = ", ".join(f"{rows}: {cost:.2f}" for rows, cost in times.costs.items())
        step = f"a plain step takes {times.unit_s * 1e3:.2f} ms"
        return f"{head}\n{step}; rows and costs: {costs}"

    def findings(self, failures: Sequence[Failure] = ()) -> Findings:
        """Return the figures, tables and rows; `failures` are those from before the run.

        Drafts depend on the measured cost of passes, so only the texts are deterministic.
        """
        arms = list(self.figures())
        times = self.times
        rows = ({**arm, "identical": f"{arm['identical']}/{arm['pairs']}"} for arm in arms)
        table = Table.of("speed", "Decoding next to mlx-lm", _COLUMNS, rows)
        sources = source_table((arm["arm"], arm["sources"], arm["tokens"]) for arm in arms)
        fixed = ("pairs", "identical", "token_hash")
        varying = (
            "tokens_per_s",
            "tokens_per_pass",
            "hit_rate",
            "outside",
            "peak_memory_bytes",
            "ratio",
        )
        return Findings(
            deterministic={
                "arms": {arm["arm"]: {name: arm[name] for name in fixed} for arm in arms}
            },
            timing={
                "ratios": {
                    arm["arm"]: arm["median_ratio"] for arm in arms if arm["arm"] != BASELINE
                },
                "arms": {
                    arm["arm"]: {
                        **{name: arm[name] for name in varying},
                        "sources": source_figures(arm["sources"]),
                    }
                    for arm in arms
                },
            },
            tables=(table, sources) if arms else (),
            items=tuple(_items(self.runs)),
            failures=(*failures, *self.failures),
            costs=None if times is None else Costs(times.unit_s, times.costs),
            finished=self.finished,
        )


def run_speed(
    engine: Engine,
    items: Sequence[Item],
    *,
    drafters: Sequence[str] = ("none", "ngram", "auto"),
    num_draft_tokens: int | None = None,
    max_tokens: int = 96,
    rounds: int = 1,
    with_costs: bool = True,
    store: FinishedItems | None = None,
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
            BASELINE, engine, max_tokens=max_tokens, keeps_prompt=True
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
        store=store,
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
