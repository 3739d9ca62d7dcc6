"""Replays that go on where they were interrupted: finished jobs are kept in an `ItemStore`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from akunu_py.bench.record import Record
from akunu_py.bench.replay.jobs import Job, JobResult, Trace, run_jobs
from akunu_py.bench.replay.runner import ItemCounts
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.stats_record import read_stats, stats_dict
from akunu_py.cost_curve import CostCurve
from akunu_py.errors import ConfigError


def run_stored_jobs(
    jobs: Sequence[Job],
    traces: Mapping[str, Trace],
    curves: Mapping[str, CostCurve],
    store: ItemStore,
    *,
    processes: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[list[JobResult], bool]:
    """Return the results of the jobs, and whether all were done or an interrupt came before.

    Jobs that the store has are not done again. `progress` is called with jobs done and in all.
    Raises ConfigError for a stored job that is malformed.
    """
    done: list[JobResult] = []
    left: list[Job] = []
    for job in jobs:
        record = store.get(_key(job))
        if record is None:
            left.append(job)
        else:
            done.append(_read(job, Record(record, f"the finished {_key(job)}"), traces[job.trace]))
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
            store.put(_key(result.job), _record(result))
            done.append(result)
    except KeyboardInterrupt:
        return done, False
    finally:
        fresh.close()
    return done, True


def _key(job: Job) -> str:
    return json.dumps(asdict(job), sort_keys=True)


def _record(result: JobResult) -> dict[str, object]:
    return {
        "limits": list(result.limits),
        "counts": [
            [{"observe_s": item.observe_s, **stats_dict(item.stats)} for item in counts]
            for counts in result.counts
        ],
    }


def _read(job: Job, record: Record, trace: Trace) -> JobResult:
    limits = record.counts("limits")
    lists = record.values("counts")
    sizes = {len(counts) if isinstance(counts, list) else -1 for counts in lists}
    if len(lists) != len(limits) or sizes - {len(trace)}:
        raise ConfigError(f"{record.where} is not of the items of {job.trace}")
    counts = tuple(
        tuple(
            ItemCounts(read_stats(entry), entry.number("observe_s"))
            for entry in (Record(value, record.where) for value in entries)
        )
        for entries in lists
        if isinstance(entries, list)
    )
    return JobResult(job, limits, counts)
