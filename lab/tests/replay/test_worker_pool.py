"""Work in processes of its own."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from akunu_lab.replay.worker_pool import run_tasks


def add(task, data):
    return task + data


def lock_and_wait(task, folder):
    held = (Path(folder) / f"{task}.lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    (Path(folder) / f"{task}.mark").touch()
    time.sleep(600)


@pytest.mark.parametrize("processes", [1, 2])
def test_each_task_gets_the_data(processes):
    found = dict(run_tasks(add, [1, 2, 3], 10, processes=processes))
    assert found == {1: 11, 2: 12, 3: 13}


def test_processes_end_with_the_first_one_that_is_killed(tmp_path):
    script = (
        "import sys; from test_worker_pool import lock_and_wait, run_tasks\n"
        "if __name__ == '__main__':\n"
        "    list(run_tasks(lock_and_wait, [1, 2], sys.argv[1], processes=2))\n"
    )
    (tmp_path / "first.py").write_text(script)
    (tmp_path / "marks").mkdir()
    first = subprocess.Popen(
        [sys.executable, tmp_path / "first.py", tmp_path / "marks"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    try:
        _wait_for(lambda: len(list((tmp_path / "marks").glob("*.mark"))) == 2)
    finally:
        first.kill()
        first.wait()
    locks = list((tmp_path / "marks").glob("*.lock"))
    assert len(locks) == 2
    _wait_for(lambda: all(_is_free(lock) for lock in locks))


def _is_free(lock):
    """Whether the process that locked a file has ended."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
