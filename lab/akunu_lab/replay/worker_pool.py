"""Runs one function on many tasks, in processes that each get the data once."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

Task = TypeVar("Task")
Data = TypeVar("Data")
Result = TypeVar("Result")

_data: list[Any] = []


def run_tasks(
    work: Callable[[Task, Data], Result],
    tasks: Sequence[Task],
    data: Data,
    *,
    processes: int,
) -> Generator[tuple[Task, Result], None, None]:
    """Yield each task with the result of `work(task, data)`, in order of completion.

    With one process the tasks run in this process, in order. `work` is a function of a module. When
    the iterator is closed, as by an interrupt, tasks that have not begun are dropped. The processes
    end with this one, even if it is killed.
    """
    if processes == 1:
        for task in tasks:
            yield task, work(task, data)
        return
    # A fork of a process whose threads hold locks can hang; spawn starts a fresh one.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_set_up, initargs=(data,))
    try:
        futures = {pool.submit(_run, work, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _set_up(data: object) -> None:
    # Ctrl-C reaches all processes of a terminal; the first process decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Trees have millions of nodes without cycles: searching them for garbage takes a third of the
    # time, and there is none.
    gc.disable()
    _data.append(data)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the first process has ended: a killed process cannot end its children."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(work: Callable[[Task, Any], Result], task: Task) -> Result:
    return work(task, _data[0])
