"""What a run of `akunu bench speed` came to: speeds, ratios in pairs, intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from akunu_py.bench.bootstrap import Interval, interval, session_weights
from akunu_py.bench.environment import Environment
from akunu_py.bench.report import Model
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


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over all cases. `ratio` is its tokens a second over the baseline's, of all tokens.

    `median_ratio` is over the pairs, which a machine that stalls hardly moves; `interval` is that
    of the median, 95 %, from resampled sessions. `outside` is the share of the time spent outside
    passes, `identical` how many replies are the baseline's, of `pairs`.
    """

    arm: str
    tokens_per_s: float
    ratio: float
    median_ratio: float
    interval: Interval
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
    environment: Environment
    forced: bool
    num_draft_tokens: int | None
    max_tokens: int

    @property
    def arms(self) -> tuple[ArmSummary, ...]:
        """The arms, the baseline first."""
        by_arm: dict[str, list[Run]] = {BASELINE: []}
        for run in self.runs:
            by_arm.setdefault(run.arm, []).append(run)
        return tuple(summary(runs, by_arm[BASELINE]) for runs in by_arm.values())

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values; seconds are in fields that end in `_s`."""
        runs = [asdict(run) for run in self.runs]
        for run in runs:
            run["token_ids"] = len(run["token_ids"])
        return {
            "forced": self.forced,
            "num_draft_tokens": self.num_draft_tokens,
            "max_tokens": self.max_tokens,
            "model": self.model.to_dict(),
            "environment": self.environment.to_dict(),
            "costs": {str(rows): cost for rows, cost in self.times.costs.items()},
            "plain_step_s": self.times.unit_s,
            "arms": [asdict(arm) for arm in self.arms],
            "runs": runs,
        }


def summary(runs: Sequence[Run], baseline: Sequence[Run]) -> ArmSummary:
    """Compare an arm's runs with the baseline's, case by case in the order they were made."""
    pairs = list(zip(_by_case(runs), _by_case(baseline), strict=True))
    tokens, seconds, their_tokens, their_seconds = (
        np.array(values, dtype=np.float64)
        for values in zip(
            *(
                (ours.num_timed_tokens, ours.decode_s, theirs.num_timed_tokens, theirs.decode_s)
                for ours, theirs in pairs
            ),
            strict=True,
        )
    )
    ratios = (tokens / seconds) / (their_tokens / their_seconds)
    weights = session_weights([ours.session for ours, _ in pairs], name="speed").astype(np.int64)
    medians = np.array([np.median(np.repeat(ratios, counts)) for counts in weights])
    passes = [run.num_passes for run in runs if run.num_passes is not None]
    drafted = sum(run.num_drafted for run in runs)
    target_s = [run.target_s for run in runs if run.target_s is not None]
    timed = float(seconds.sum())
    return ArmSummary(
        arm=runs[0].arm,
        tokens_per_s=float(tokens.sum() / timed),
        ratio=float(tokens.sum() / timed / (their_tokens.sum() / their_seconds.sum())),
        median_ratio=float(medians[0]),
        interval=interval(medians),
        tokens_per_pass=float(tokens.sum()) / sum(passes) if sum(passes) else None,
        hit_rate=sum(run.num_accepted for run in runs) / drafted if drafted else None,
        outside=1 - sum(target_s) / timed if target_s else None,
        peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
        identical=sum(ours.token_ids == theirs.token_ids for ours, theirs in pairs),
        pairs=len(pairs),
    )


def _by_case(runs: Sequence[Run]) -> list[Run]:
    """Return runs by case, each case's in the order they were made."""
    return sorted(runs, key=lambda run: run.case)
