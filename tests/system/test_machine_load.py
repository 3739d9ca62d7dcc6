"""Measurements on a busy machine: they wait, warn, and remember nothing that cannot be."""

import os
from unittest.mock import Mock

import pytest
from akunu_runs import run
from click.testing import CliRunner

from akunu_py.cli.main import cli
from akunu_py.engine.memories import Memories
from akunu_py.models.pass_times import PassTimes
from akunu_py.system import machine_load
from akunu_py.system.machine_load import busy, wait_until_quiet


@pytest.fixture
def clock(monkeypatch):
    """A clock that sleeping advances; the load is what `loads` has for its time."""
    now = [0.0]
    monkeypatch.setattr(machine_load.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(machine_load.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(machine_load, "usable_processors", lambda: 2)
    return now


@pytest.mark.parametrize(
    ("ends_at", "waited", "words"),
    [
        (0, 0, []),
        (12, 15, ["a load of 4.0 on 2 processors; waiting up to 60 s"]),
        (1e9, 60, ["waiting up to 60 s", "Warning: other programs are busy: a load of 4.0"]),
    ],
)
def test_measurements_wait_for_others_and_warn_at_last(clock, monkeypatch, ends_at, waited, words):
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0 if clock[0] < ends_at else 0.9, 0, 0))
    said = []
    wait_until_quiet(said.append)
    assert clock[0] == waited
    assert len(said) == len(words)
    assert all(word in text for word, text in zip(words, said, strict=True))


def test_an_unknown_load_is_no_reason_to_wait(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", Mock(side_effect=OSError))
    assert machine_load.machine_load() is None
    assert busy(None, 2) == busy(1.0, 2) == ""
    assert busy(1.1, 2)


def times(**passes):
    return PassTimes(64, (1.0,), {int(rows[1:]): (cost,) for rows, cost in passes.items()})


@pytest.mark.parametrize(
    ("costs", "doubt"),
    [
        (times(_1=1.0, _2=1.5, _3=1.8, _4=2.0), ""),
        # Kernels for four rows may be as fast as for three; noise is no contradiction.
        (times(_1=1.05, _2=1.0, _3=2.0, _4=2.0), ""),
        (times(_1=1.0, _3=2.5, _4=2.0), "3 rows took 2.50 plain steps, and 4 rows only 2.00"),
        (times(_1=1.0, _3=2.2, _4=2.1, _8=1.9), "3 rows took 2.20 plain steps, and 8 rows only 1.90"),
    ],
)  # fmt: skip
def test_a_pass_does_not_cost_more_than_one_with_more_rows(costs, doubt):
    assert costs.doubt == doubt


def test_tune_remembers_no_costs_that_cannot_be(tiny_gguf, monkeypatch):
    learned = []
    monkeypatch.setattr(Memories, "learn", lambda _, found: learned.append(found))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0, 0))
    for found in (times(_1=1.0, _3=2.5, _4=2.0), times(_1=1.0, _3=2.5, _4=3.0)):
        monkeypatch.setattr("akunu_py.engine.engine.measure_passes", lambda *_, f=found, **__: f)
        result = run("tune", tiny_gguf, code=0)
        assert found.doubt in result.stderr
        assert ("Nothing is remembered" in result.stderr) == bool(found.doubt)
        assert learned == ([] if found.doubt else [found])


@pytest.mark.parametrize(
    "command",
    [
        ("tune",), ("bench", "speed", "--limit", "1", "--max-tokens", "8", "--drafter", "none"),
        ("doctor", "--json"),
    ],
)  # fmt: skip
def test_commands_that_measure_say_that_the_machine_is_busy(clock, monkeypatch, command):
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 0, 0))
    asked = []

    class StopError(Exception):
        pass

    def stop(*_args, **_options):
        asked.append(1)
        raise StopError

    for name in ("cli.tune.load_engine", "cli.measuring.load_engine", "diagnosis.facts.read_facts"):
        monkeypatch.setattr(f"akunu_py.{name}", stop)

    result = CliRunner().invoke(cli, command)
    assert asked
    assert clock[0] == 60
    assert "Warning: other programs are busy: a load of 9.0 on 2 processors" in result.stderr
