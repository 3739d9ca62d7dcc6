"""Work in processes of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from akunu_py.bench.worker_pool import run_tasks


def add(task, data):
    return task + data


def report_and_wait(task, folder):
    (Path(folder) / f"{task}-{os.getpid()}").touch()
    time.sleep(600)


@pytest.mark.parametrize("processes", [1, 2])
def test_each_task_gets_the_data(processes):
    found = dict(run_tasks(add, [1, 2, 3], 10, processes=processes))
    assert found == {1: 11, 2: 12, 3: 13}


def test_processes_end_with_the_first_one_that_is_killed(tmp_path):
    script = (
        "import sys; from test_worker_pool import report_and_wait, run_tasks\n"
        "if __name__ == '__main__':\n"
        "    list(run_tasks(report_and_wait, [1, 2], sys.argv[1], processes=2))\n"
    )
    (tmp_path / "first.py").write_text(script)
    (tmp_path / "marks").mkdir()
    first = subprocess.Popen(
        [sys.executable, tmp_path / "first.py", tmp_path / "marks"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    try:
        _wait_for(lambda: len(list((tmp_path / "marks").iterdir())) == 2)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    pids = [int(mark.name.split("-")[1]) for mark in (tmp_path / "marks").iterdir()]
    _wait_for(lambda: not any(_is_running(pid) for pid in pids))


def _is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # What nobody waits for stays behind as a zombie where the first process does not.
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip() not in {"", "Z"}


def _wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
