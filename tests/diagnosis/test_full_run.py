"""The run of `akunu doctor --full`: time, failures, interrupts, and what is kept meanwhile."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from full_reports import FIGURES, MODEL, a_mac
from machines import FOLDERS

from akunu_py.diagnosis.facts import read_facts
from akunu_py.diagnosis.full import run as run_module
from akunu_py.diagnosis.full.kept import KeptReport
from akunu_py.diagnosis.full.measure import CannotBeMeasuredError, Pace, PartInterruptedError
from akunu_py.diagnosis.full.privacy import Privacy
from akunu_py.diagnosis.full.report import NO_TIME
from akunu_py.diagnosis.full.run import PLANS, Plan, run_full
from akunu_py.system.errors import ConfigError

PATH = Path("/Users/joe/model.gguf")


class Parts:
    """Stands for all parts: each takes `takes` seconds of the clock, or does what `does` says."""

    def __init__(self, monkeypatch, *, takes=1.0, **does):
        self.now = 1000.0
        self.turns = {}
        self.kept = []
        self.told = []
        self.takes, self.does = takes, does
        plans = tuple(
            Plan(plan.name, plan.title, plan.share, self.measure(plan.name), plan.needs_model)
            for plan in PLANS
        )
        monkeypatch.setattr(run_module, "PLANS", plans)

    def measure(self, name):
        def measured(bench, turn):
            self.turns[name] = turn.seconds
            self.now += self.takes
            does = self.does.get(name)
            if isinstance(does, BaseException):
                raise does
            if name == "memory":
                bench.model = MODEL
            if name == "load":
                bench.pace = Pace(0.01, 0.001, 100)
            turn.tell("half of it")
            if does is not None:
                does(turn)
            return FIGURES[name]

        return measured

    def run(self, seconds=100.0):
        system = a_mac()
        return run_full(
            PATH, read_facts(system, "1", FOLDERS), system,
            privacy=Privacy([PATH.parent], ["joe"]), seconds=seconds,
            keep=lambda report: self.kept.append(json.loads(json.dumps(report.to_dict()))),
            tell=lambda text, share: self.told.append((text, share)), clock=lambda: self.now,
        )  # fmt: skip


def states(report):
    return {name: part.state for name, part in report.parts.items()}


def test_all_parts_are_measured_in_their_order(monkeypatch):
    parts = Parts(monkeypatch)
    report = parts.run()
    assert list(parts.turns) == [plan.name for plan in PLANS]
    assert set(states(report).values()) == {"measured"}
    assert (report.state, report.seconds, report.limit_s) == ("finished", 10.0, 100.0)
    assert report.parts["speed"].figures == FIGURES["speed"]
    assert report.model.name == MODEL.name
    # Once before each part and at the end: a process that is killed leaves what it was doing.
    assert len(parts.kept) == len(PLANS) + 1
    assert parts.kept[4]["state"] == "unfinished"
    assert [part["state"] for part in parts.kept[4]["parts"].values()] == [
        *["measured"] * 4, "running", *["waiting"] * 5,
    ]  # fmt: skip
    assert parts.kept[-1]["state"] == "finished"
    assert parts.told[0] == ("memory the model needs", 0.0)
    assert ("what passes cost: half of it", 0.06) in parts.told


def test_time_that_is_left_goes_to_later_parts(monkeypatch):
    shares = {plan.name: plan.share for plan in PLANS}
    total = sum(shares.values())
    parts = Parts(monkeypatch, takes=0.0)
    report = parts.run(seconds=total)
    assert parts.turns["memory"] == pytest.approx(shares["memory"])
    # Nobody used anything, so the last one may have all.
    assert parts.turns["sampled"] == pytest.approx(total)
    assert report.parts["sampled"].budget_s == pytest.approx(total)

    def load(_turn):
        slow.now += 60

    slow = Parts(monkeypatch, takes=0.0, load=load)
    slow.run(seconds=total)
    later = total - sum(shares[name] for name in ("memory", "start", "load"))
    assert slow.turns["speed"] < parts.turns["speed"] - 20
    assert slow.turns["rows"] == pytest.approx((total - 60) * shares["rows"] / later)


def test_a_slow_machine_leaves_parts_out(monkeypatch):
    report = Parts(monkeypatch, takes=30.0).run(seconds=100)
    found = states(report)
    assert [name for name, state in found.items() if state == "measured"] == [
        "memory", "start", "load", "rows",
    ]  # fmt: skip
    assert {report.parts[name].note for name, state in found.items() if state == "skipped"} == {
        NO_TIME
    }
    assert report.state == "finished"
    assert any("there was no time left for" in finding.text for finding in report.findings)


def test_even_then_the_model_is_loaded(monkeypatch):
    """Without it there would be nothing to tell."""
    report = Parts(monkeypatch, takes=60.0).run(seconds=100)
    assert states(report)["load"] == "measured"
    assert states(report)["rows"] == "skipped"


@pytest.mark.parametrize(
    ("error", "note", "refused", "severity"),
    [
        (RuntimeError("[METAL] out of memory at /Users/joe/x"),
         "RuntimeError: [METAL] out of memory at (path)/x", False, "error"),
        (ConfigError("no prompt of joe fits"), "no prompt of (name) fits", True, "warning"),
        (MemoryError(), "MemoryError: ", False, "error"),
        (AssertionError("odd"), "AssertionError: odd", False, "error"),
    ],
)  # fmt: skip
def test_a_part_that_fails_is_a_finding_and_the_others_go_on(
    monkeypatch, error, note, refused, severity
):
    report = Parts(monkeypatch, costs=error).run()
    part = report.parts["costs"]
    assert (part.state, part.note, part.refused, part.figures) == ("failed", note, refused, None)
    assert sorted(states(report).values()) == sorted(["failed", *["measured"] * 9])
    assert report.state == "finished"
    (found,) = [one for one in report.findings if "could not be measured" in one.text]
    assert found.severity == severity
    assert "joe" not in found.text


def test_without_the_model_what_needs_it_is_skipped(monkeypatch):
    report = Parts(monkeypatch, memory=ConfigError("no such type")).run()
    assert states(report)["start"] == states(report)["load"] == "measured"
    report = Parts(monkeypatch, load=ConfigError("cut off")).run()
    assert states(report)["load"] == "failed"
    skipped = [part.note for part in report.parts.values() if part.state == "skipped"]
    assert skipped == ["the model was not loaded"] * 7
    assert ("error", "loading the model could not be measured: cut off") in [
        (one.severity, one.text) for one in report.findings
    ]


def test_a_part_that_does_not_apply(monkeypatch):
    report = Parts(monkeypatch, greedy=CannotBeMeasuredError("nothing is drafted")).run()
    part = report.parts["greedy"]
    assert (part.state, part.note) == ("skipped", "nothing is drafted")
    assert "greedy" not in " ".join(finding.text for finding in report.findings)


@pytest.mark.parametrize("figures", [None, FIGURES["speed"]])
def test_an_interrupt_keeps_what_there_is(monkeypatch, figures):
    stop = KeyboardInterrupt() if figures is None else PartInterruptedError(figures)
    parts = Parts(monkeypatch, speed=stop)
    report = parts.run()
    assert report.state == "interrupted"
    assert report.parts["speed"].state == "interrupted"
    assert report.parts["speed"].figures == figures
    assert states(report)["greedy"] == "measured"
    assert states(report)["sampled"] == "skipped"
    assert "sampled" not in parts.turns
    assert parts.kept[-1]["state"] == "interrupted"


def test_an_interrupt_between_parts(monkeypatch):
    parts = Parts(monkeypatch)
    system = a_mac()

    def keep(report):
        parts.kept.append(report.state)
        if len(parts.kept) == 4:
            raise KeyboardInterrupt

    report = run_full(
        PATH, read_facts(system, "1", {}), system, privacy=Privacy([], []), keep=keep,
        clock=lambda: parts.now,
    )  # fmt: skip
    assert report.state == parts.kept[-1] == "interrupted"
    assert "waiting" not in states(report).values()


def test_the_toy_is_called_one(monkeypatch, default_model):
    parts = Parts(monkeypatch)
    system = a_mac()
    report = run_full(
        default_model, read_facts(system, "1", {}), system, privacy=Privacy([], []),
        keep=lambda report: None, clock=lambda: parts.now,
    )  # fmt: skip
    assert "akunu-tiny is a toy" in " ".join(finding.text for finding in report.findings)


def test_files_are_never_written_over(tmp_path, monkeypatch):
    report = Parts(monkeypatch).run()
    folder = tmp_path / "new" / "folder"
    first = KeptReport(folder)
    first.write(report)
    # One name of the second pair is taken.
    (folder / "akunu-doctor-2.json").write_text("mine")
    second = KeptReport(folder)
    second.write(report)
    second.write(report)
    assert sorted(path.name for path in folder.iterdir()) == [
        "akunu-doctor-2.json", "akunu-doctor-3.json", "akunu-doctor-3.md", "akunu-doctor.json", "akunu-doctor.md",
    ]  # fmt: skip
    assert (folder / "akunu-doctor-2.json").read_text() == "mine"
    assert first.page.read_text() == second.page.read_text()
    assert json.loads(second.record.read_text())["state"] == "finished"


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*; give --output another folder"):
        KeptReport(tmp_path / "file")


def test_a_full_disk(tmp_path, monkeypatch):
    report = Parts(monkeypatch).run()
    kept = KeptReport(tmp_path)

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("akunu_py.diagnosis.full.kept.replace_file", full)
    with pytest.raises(ConfigError, match="No space left"):
        kept.write(report)


def test_what_a_clock_is_for():
    """A turn that took too long has a time left below zero, and is over."""
    clock = SimpleNamespace(now=5.0)
    turn = run_module.Turn(2.0, clock=lambda: clock.now)
    assert (turn.left, turn.is_over()) == (2.0, False)
    clock.now = 8.0
    assert (turn.left, turn.is_over()) == (-1.0, True)
