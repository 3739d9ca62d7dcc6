"""Replays of whole traces, spread over processes: one job is one arm on one trace.

Finished jobs are kept in an `ItemStore`, so that an interrupted replay can continue.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from akunu_py.bench.replay.arms import Arm, is_curve_bound, make_arm
from akunu_py.bench.replay.baseline import Baseline, baselines
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem, replay_item, sweep_item
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import Row, encode
from akunu_py.bench.worker_pool import run_tasks
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve

T = TypeVar("T")

LIMITS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 31, 40, 64)
"""The draft lengths that are tried for a baseline; 0 means no drafts."""

Memory = Literal["trace", "session"]
"""How long state is kept: over all items of a trace, or within a session."""

Trace = Sequence[ReplayItem]


class Job(Row, frozen=True):
    """One arm on one trace; `curve` names the curve for an arm that drafts by one.

    `limits` are the draft lengths to replay with; empty means the arm's own.
    """

    trace: str
    arm: str
    curve: str | None
    limits: tuple[int, ...]
    memory: Memory


class JobResult(Row, frozen=True):
    """A finished job: the draft lengths, and for each length the counts of each item."""

    job: Job
    limits: tuple[int, ...]
    counts: tuple[tuple[ItemCounts, ...], ...]


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
    """Yield results as they are finished; `progress` is called with finished and all jobs.

    Counts do not depend on `processes`; microseconds do if processes compete for the cores.
    """
    progress(0, len(jobs))
    work = run_tasks(_run, jobs, (traces, curves), processes=processes)
    try:
        for done, (_, result) in enumerate(work, start=1):
            yield result
            progress(done, len(jobs))
    finally:
        work.close()


def run_stored_jobs(
    jobs: Sequence[Job],
    traces: Mapping[str, Trace],
    curves: Mapping[str, CostCurve],
    store: ItemStore,
    *,
    processes: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[list[JobResult], bool]:
    """Return the results of the jobs, and False after an interrupt.

    Jobs in the store are not repeated. `progress` is called with finished and all jobs.
    Raises ConfigError for a stored job that is malformed.
    """
    done: list[JobResult] = []
    left: list[Job] = []
    for job in jobs:
        result = store.get(encode(job), JobResult)
        if result is None:
            left.append(job)
            continue
        if {len(counts) for counts in result.counts} != {len(traces[job.trace])} or (
            len(result.limits) != len(result.counts)
        ):
            raise ConfigError(f"the finished {encode(job)} is not of the items of {job.trace}")
        done.append(result)
    before = len(done)
    fresh = run_jobs(
        left,
        traces,
        curves,
        processes=processes,
        progress=lambda count, _total: progress(before + count, len(jobs)),
    )
    try:
        for result in fresh:
            store.put(encode(result.job), result)
            done.append(result)
    except KeyboardInterrupt:
        return done, False
    finally:
        fresh.close()
    return done, True


def _run(job: Job, data: tuple[Mapping[str, Trace], Mapping[str, CostCurve]]) -> JobResult:
    traces, curves = data
    return run_job(job, traces[job.trace], curves)


def run_job(job: Job, items: Trace, curves: Mapping[str, CostCurve]) -> JobResult:
    """Replay the items of a trace in order; the job's `memory` decides how long state is kept."""
    arm = make_arm(job.arm, None if job.curve is None else curves[job.curve])
    limits = job.limits or (arm.default_limit,)

    def replay(item: ReplayItem) -> list[ItemCounts]:
        if job.limits and isinstance(arm, Baseline):
            return sweep_item(item, arm, limits)
        return [replay_item(item, arm, limits[0])]

    counts = list(over_trace(arm, items, job.memory, replay))
    return JobResult(job, limits, tuple(zip(*counts, strict=True)))


def over_trace(
    arm: Arm, items: Trace, memory: Memory, replay: Callable[[ReplayItem], T]
) -> Iterator[T]:
    """Yield the result of `replay` for each item; the arm is told when replies begin and end."""
    session: str | None = None
    for item in items:
        if memory == "session" and item.session != session:
            arm.reset()
        session = item.session
        arm.begin()
        yield replay(item)
        arm.end()
