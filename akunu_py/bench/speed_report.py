"""Results of `akunu bench speed`: speeds, paired ratios, intervals."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.metrics import TimedPair, median_speedup, speedup
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.rows import Count, Number, Row, plain
from akunu_py.bench.run import Findings
from akunu_py.bench.source_table import source_table
from akunu_py.bench.tables import Column, ratio_columns, table_of
from akunu_py.models.pass_times import PassTimes
from akunu_py.values.decode_stats import SourceStats, source_figures, sum_sources

BASELINE = "mlx-lm"


class Run(Row, frozen=True):
    """One case decoded by one arm, timed after the first step.

    `target_s` is the time of passes in seconds, up to the transfer of the chosen ids; it is known
    only for akunu's arms.
    """

    arm: str
    case: str
    session: str
    token_ids: tuple[Count, ...]
    num_timed_tokens: Count
    decode_s: Number
    peak_memory_bytes: Count
    num_passes: Count | None = None
    num_drafted: Count = 0
    num_accepted: Count = 0
    target_s: Number | None = None
    sources: tuple[SourceStats, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over all cases. `ratio` is its tokens a second over the baseline's, of all tokens.

    `median_ratio` is the median of the pairs' ratios, which is robust to stalls. `outside` is the
    share of the time spent outside passes. `identical` of `pairs` replies equal the baseline's.
    `sources` counts drafted tokens by where they come from, over `num_timed_tokens`.
    """

    arm: str
    tokens_per_s: float
    ratio: Ratio
    median_ratio: Ratio
    tokens_per_pass: float | None
    hit_rate: float | None
    outside: float | None
    peak_memory_bytes: int
    identical: int
    pairs: int
    sources: tuple[SourceStats, ...]
    num_timed_tokens: int


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """All runs in their order; `forced`: whether choices were forced to a recorded text."""

    runs: tuple[Run, ...]
    times: PassTimes
    forced: bool
    num_draft_tokens: int | None
    max_tokens: int
    failures: tuple[Failure, ...] = ()
    finished: bool = True

    @property
    def arms(self) -> tuple[ArmSummary, ...]:
        """The arms, the baseline first."""
        if not self.runs:
            return ()
        by_arm: dict[str, list[Run]] = {BASELINE: []}
        for run in self.runs:
            by_arm.setdefault(run.arm, []).append(run)
        return tuple(summary(runs, by_arm[BASELINE]) for runs in by_arm.values())

    def findings(self, failures: Sequence[Failure] = ()) -> Findings:
        """Return the figures, tables and rows; `failures` are those from before the run.

        Drafts depend on the measured cost of passes, so only the texts are deterministic.
        """
        arms = self.arms
        traffic = self.times.traffic
        deterministic = {
            arm.arm: {
                "pairs": arm.pairs,
                "identical": arm.identical,
                "token_hash": _token_hash(self.runs, arm.arm),
            }
            for arm in arms
        }
        table = table_of("speed", "Decoding next to mlx-lm", _COLUMNS, map(_record, arms))
        sources = source_table((arm.arm, arm.sources, arm.num_timed_tokens) for arm in arms)
        return Findings(
            deterministic={"arms": deterministic},
            timing={
                "ratios": {arm.arm: arm.median_ratio for arm in arms if arm.arm != BASELINE},
                "arms": {arm.arm: _timing(arm) for arm in arms},
                "traffic": None if traffic is None else traffic.to_dict(),
            },
            tables=(table, sources) if arms else (),
            items=tuple(_items(self.runs)),
            failures=(*failures, *self.failures),
            costs=Costs(self.times.unit_s, self.times.costs),
            finished=self.finished,
        )


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


def _record(arm: ArmSummary) -> dict[str, object]:
    return {
        **asdict(arm),
        "peak_megabytes": arm.peak_memory_bytes / 1e6,
        "identical": f"{arm.identical}/{arm.pairs}",
    }


def _timing(arm: ArmSummary) -> dict[str, object]:
    names = ("tokens_per_s", "tokens_per_pass", "hit_rate", "outside", "peak_memory_bytes")
    return {
        **{name: getattr(arm, name) for name in names},
        "ratio": arm.ratio,
        "sources": source_figures(arm.sources),
    }


def _items(runs: Sequence[Run]) -> Iterator[dict[str, object]]:
    rounds: Counter[str] = Counter()
    for run in runs:
        name = f"{run.case} by {run.arm}"
        rounds[name] += 1
        again = f", round {rounds[name]}" if rounds[name] > 1 else ""
        yield {"id": f"{name}{again}", "category": run.case.partition("/")[0], **plain(run)}


def _token_hash(runs: Sequence[Run], arm: str) -> str:
    replies = sorted([run.case, list(run.token_ids)] for run in runs if run.arm == arm)
    return hashlib.sha256(json.dumps(replies).encode()).hexdigest()


def summary(runs: Sequence[Run], baseline: Sequence[Run]) -> ArmSummary:
    """Compare an arm's runs with the baseline's, case by case in their order."""
    matched = list(zip(_by_case(runs), _by_case(baseline), strict=True))
    pairs = [
        TimedPair(
            ours.session,
            theirs.num_timed_tokens,
            theirs.decode_s,
            ours.num_timed_tokens,
            ours.decode_s,
        )
        for ours, theirs in matched
    ]
    passes = [run.num_passes for run in runs if run.num_passes is not None]
    drafted = sum(run.num_drafted for run in runs)
    target_s = [run.target_s for run in runs if run.target_s is not None]
    tokens, seconds = sum(run.num_timed_tokens for run in runs), sum(run.decode_s for run in runs)
    return ArmSummary(
        arm=runs[0].arm,
        tokens_per_s=tokens / seconds,
        ratio=speedup(pairs),
        median_ratio=median_speedup(pairs),
        tokens_per_pass=tokens / sum(passes) if sum(passes) else None,
        hit_rate=sum(run.num_accepted for run in runs) / drafted if drafted else None,
        outside=1 - sum(target_s) / seconds if target_s else None,
        peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
        identical=sum(ours.token_ids == theirs.token_ids for ours, theirs in matched),
        pairs=len(pairs),
        sources=sum_sources(run.sources for run in runs),
        num_timed_tokens=tokens,
    )


def _by_case(runs: Sequence[Run]) -> list[Run]:
    """Return runs by case, in their order."""
    return sorted(runs, key=lambda run: run.case)
