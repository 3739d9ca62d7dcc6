"""What a run of `akunu bench speed` came to: speeds, ratios in pairs, intervals."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.metrics import Speedup, TimedPair, median_speedup, speedup
from akunu_py.bench.record import Record
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.tables import Column, Table
from akunu_py.models.pass_times import PassTimes

BASELINE = "mlx-lm"


@dataclass(frozen=True, slots=True)
class Run:
    """One case decoded by one arm. Timed is what came after the first step.

    `target_s` are the seconds of passes, up to the transfer of the chosen ids; they are known for
    akunu's arms alone.
    """

    arm: str
    case: str
    session: str
    token_ids: tuple[int, ...]
    num_timed_tokens: int
    decode_s: float
    peak_memory_bytes: int
    num_passes: int | None = None
    num_drafted: int = 0
    num_accepted: int = 0
    target_s: float | None = None

    @classmethod
    def from_dict(cls, record: Record) -> "Run":
        """Return the run of a JSON object; raises ConfigError saying what is wrong with it."""
        return cls(
            arm=record.text("arm"),
            case=record.text("case"),
            session=record.text("session"),
            token_ids=record.counts("token_ids"),
            num_timed_tokens=record.count("num_timed_tokens"),
            decode_s=record.number("decode_s"),
            peak_memory_bytes=record.count("peak_memory_bytes"),
            num_passes=None if record.is_null("num_passes") else record.count("num_passes"),
            num_drafted=record.count("num_drafted"),
            num_accepted=record.count("num_accepted"),
            target_s=None if record.is_null("target_s") else record.number("target_s"),
        )


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over all cases. `ratio` is its tokens a second over the baseline's, of all tokens.

    `median_ratio` is over the pairs, which a machine that stalls hardly moves. `outside` is the
    share of the time spent outside passes, `identical` how many replies are the baseline's, of
    `pairs`.
    """

    arm: str
    tokens_per_s: float
    ratio: Speedup
    median_ratio: Speedup
    tokens_per_pass: float | None
    hit_rate: float | None
    outside: float | None
    peak_memory_bytes: int
    identical: int
    pairs: int


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """All runs, in the order they were made; `forced`: the choices were a recorded text's."""

    runs: tuple[Run, ...]
    times: PassTimes
    model: Model
    draft_model: Model | None
    environment: Environment
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

    def result(
        self,
        arguments: Mapping[str, object],
        *,
        started: str,
        seconds: float,
        failures: tuple[Failure, ...] = (),
    ) -> BenchResult:
        """Return the report as a result; `arguments` are the command's settled options.

        `failures` are those from before the run, of items that could not be read.

        What is drafted depends on what passes cost, so the texts alone are deterministic.
        """
        arms = self.arms
        return BenchResult(
            command="speed",
            arguments=arguments,
            environment=self.environment,
            model=self.model,
            draft_model=self.draft_model,
            costs=Costs(self.times.unit_s, self.times.costs),
            deterministic={
                "arms": {
                    arm.arm: {
                        "pairs": arm.pairs,
                        "identical": arm.identical,
                        "token_hash": _token_hash(self.runs, arm.arm),
                    }
                    for arm in arms
                }
            },
            timing={
                "ratios": {
                    arm.arm: arm.median_ratio.to_dict() for arm in arms if arm.arm != BASELINE
                },
                "arms": {arm.arm: _timing(arm) for arm in arms},
                "traffic": None if self.times.traffic is None else self.times.traffic.to_dict(),
            },
            tables=(_table(arms),) if arms else (),
            items=tuple(_items(self.runs)),
            failures=failures + self.failures,
            started=started,
            seconds=seconds,
            finished=self.finished,
        )


_COLUMNS = (
    Column("arm", "arm"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("ratio", "of\nmlx-lm", ".3f", detail=True),
    Column("ratio_interval", "95 %", detail=True),
    Column("median_ratio", "of mlx-lm,\nmedian", ".3f"),
    Column("interval", "95 %"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("outside", "outside", ".1%"),
    Column("peak_megabytes", "peak\nMB", ".0f"),
    Column("identical", "same"),
)


def _table(arms: Sequence["ArmSummary"]) -> Table:
    rows = tuple(
        (
            arm.arm,
            arm.tokens_per_s,
            arm.ratio.ratio,
            arm.ratio.range_text(".3f"),
            arm.median_ratio.ratio,
            arm.median_ratio.range_text(".3f"),
            arm.tokens_per_pass,
            arm.hit_rate,
            arm.outside,
            arm.peak_memory_bytes / 1e6,
            f"{arm.identical}/{arm.pairs}",
        )
        for arm in arms
    )
    return Table("speed", "Decoding next to mlx-lm", _COLUMNS, rows)


def _timing(arm: ArmSummary) -> dict[str, object]:
    names = ("tokens_per_s", "tokens_per_pass", "hit_rate", "outside", "peak_memory_bytes")
    return {**{name: getattr(arm, name) for name in names}, "ratio": arm.ratio.to_dict()}


def _items(runs: Sequence[Run]) -> Iterator[dict[str, object]]:
    rounds: Counter[str] = Counter()
    for run in runs:
        name = f"{run.case} by {run.arm}"
        rounds[name] += 1
        again = f", round {rounds[name]}" if rounds[name] > 1 else ""
        record = asdict(run)
        record["tokens"] = len(record.pop("token_ids"))
        yield {"id": f"{name}{again}", "category": run.case.partition("/")[0], **record}


def _token_hash(runs: Sequence[Run], arm: str) -> str:
    replies = sorted([run.case, list(run.token_ids)] for run in runs if run.arm == arm)
    return hashlib.sha256(json.dumps(replies).encode()).hexdigest()


def summary(runs: Sequence[Run], baseline: Sequence[Run]) -> ArmSummary:
    """Compare an arm's runs with the baseline's, case by case in the order they were made."""
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
    )


def _by_case(runs: Sequence[Run]) -> list[Run]:
    """Return runs by case, each case's in the order they were made."""
    return sorted(runs, key=lambda run: run.case)
