"""Replays of whole traces, spread over processes: one job is one arm on one trace."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from akunu_py.bench.replay.arms import is_curve_bound, make_arm
from akunu_py.bench.replay.baseline import Baseline, baselines
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem, replay_item, sweep_item
from akunu_py.bench.worker_pool import run_tasks
from akunu_py.cost_curve import CostCurve

LIMITS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 31, 40, 64)
"""The draft lengths a baseline's best is looked for among; 0 is not to draft."""

Memory = Literal["trace", "session"]
"""How long state outlives a reply: over all items of a trace, or within a session."""

Counts = tuple[tuple[ItemCounts, ...], ...]
"""For each limit, the counts of each item of a trace."""

Trace = Sequence[ReplayItem]


@dataclass(frozen=True, slots=True)
class Job:
    """One arm on one trace; `curve` names the one a curve-bound arm drafts by.

    `limits` are the draft lengths to replay with; empty: the arm's own.
    """

    trace: str
    arm: str
    curve: str | None
    limits: tuple[int, ...]
    memory: Memory


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job came to, and with which draft lengths."""

    job: Job
    limits: tuple[int, ...]
    counts: Counts


def plan_jobs(
    traces: Mapping[str, Trace],
    arms: Sequence[str],
    curves: Sequence[str],
    *,
    memory: Memory,
    tune: bool,
) -> list[Job]:
    """Return the jobs of a comparison, the longest traces first."""
    jobs: list[tuple[int, Job]] = []
    for name, items in traces.items():
        size = sum(len(item.prompt) + len(item.output) for item in items)
        for arm in arms:
            limits = LIMITS if tune and arm in baselines() else ()
            bound = curves if is_curve_bound(arm) else (None,)
            jobs += ((size, Job(name, arm, curve, limits, memory)) for curve in bound)
    jobs.sort(key=lambda entry: -entry[0])
    return [job for _, job in jobs]


def run_jobs(
    jobs: Sequence[Job],
    traces: Mapping[str, Trace],
    curves: Mapping[str, CostCurve],
    *,
    processes: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Generator[JobResult, None, None]:
    """Yield results as they come; `progress` is called with the jobs done and those to do.

    Counts do not depend on `processes`; microseconds do where they compete for the cores.
    """
    progress(0, len(jobs))
    work = run_tasks(_run, jobs, (traces, curves), processes=processes)
    try:
        for done, (_, result) in enumerate(work, start=1):
            yield result
            progress(done, len(jobs))
    finally:
        work.close()


def _run(job: Job, data: tuple[Mapping[str, Trace], Mapping[str, CostCurve]]) -> JobResult:
    traces, curves = data
    return run_job(job, traces[job.trace], curves)


def run_job(job: Job, items: Trace, curves: Mapping[str, CostCurve]) -> JobResult:
    """Replay the items of a trace in order; state lives as long as the job's `memory` says."""
    arm = make_arm(job.arm, None if job.curve is None else curves[job.curve])
    limits = job.limits or (arm.default_limit,)
    counts: list[list[ItemCounts]] = []
    session: str | None = None
    for item in items:
        if job.memory == "session" and item.session != session:
            arm.reset()
        session = item.session
        arm.begin()
        if job.limits and isinstance(arm, Baseline):
            counts.append(sweep_item(item, arm, limits))
        else:
            counts.append([replay_item(item, arm, limits[0])])
        arm.end()
    return JobResult(job, limits, tuple(zip(*counts, strict=True)))
