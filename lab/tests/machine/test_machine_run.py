"""The run of `akunu bench machine`: time, failures, interrupts, and what is kept meanwhile."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from machine_reports import FIGURES, MAC, MODEL, PROGRAMS

from akunu_lab.machine import run as run_module
from akunu_lab.machine.facts import published
from akunu_lab.machine.page import KeptReport
from akunu_lab.machine.parts import PARTS
from akunu_lab.machine.planning import CannotBeMeasuredError, ModelPace, PartRun
from akunu_lab.machine.privacy import Privacy
from akunu_lab.machine.report import NO_TIME
from akunu_lab.machine.run import run_full
from akunu_py.api import ConfigError

PATH = Path("/Users/joe/model.gguf")


class Parts:
    """Stands for all parts: each takes `takes` seconds of the clock, or does what `does` says."""

    def __init__(self, monkeypatch, *, takes=1.0, **does):
        self.now = 1000.0
        self.times = {}
        self.kept = []
        self.told = []
        self.model = MODEL
        self.takes, self.does = takes, does
        parts = tuple(replace(part, measure=self.measure(part.name)) for part in PARTS)
        monkeypatch.setattr(run_module, "PARTS", parts)

    def measure(self, name):
        def measured(subject, run):
            self.times[name] = run.seconds
            self.now += self.takes
            does = self.does.get(name)
            if isinstance(does, BaseException):
                raise does
            if name == "memory":
                subject.facts = self.model
            if name == "load":
                subject.pace = ModelPace(0.01, 0.001, 100)
            run.tell()
            if does is not None:
                does(run)
            return FIGURES[name]

        return measured

    def keep(self, report):
        self.kept.append(json.loads(json.dumps(report.to_dict())))

    def run(self, seconds=100.0, keep=None):
        privacy = Privacy([PATH.parent], ["joe"])
        return run_full(
            PATH, published(MAC, privacy, PROGRAMS), privacy=privacy, seconds=seconds,
            keep=keep or self.keep, tell=self.told.append, clock=lambda: self.now,
        )  # fmt: skip


def states(report):
    return {name: part.state for name, part in report.parts.items()}


def test_all_parts_are_measured_in_their_order(monkeypatch):
    parts = Parts(monkeypatch)
    report = parts.run()
    assert list(parts.times) == [plan.name for plan in PARTS]
    assert set(states(report).values()) == {"measured"}
    assert (report.state, report.seconds, report.limit_s) == ("finished", len(PARTS), 100.0)
    assert report.parts["speed"].figures == FIGURES["speed"]
    assert report.model.name == MODEL.name
    # Once before each part and at the end: a process that is killed leaves what it was doing.
    assert len(parts.kept) == len(PARTS) + 1
    assert parts.kept[4]["state"] == "unfinished"
    assert [part["state"] for part in parts.kept[4]["parts"].values()] == [
        *["measured"] * 4, "running", *["waiting"] * (len(PARTS) - 5),
    ]  # fmt: skip
    assert parts.kept[-1]["state"] == "finished"
    assert parts.told == [float(number // 2 + number % 2) for number in range(2 * len(PARTS))]


def test_time_that_is_left_goes_to_later_parts(monkeypatch):
    shares = {plan.name: plan.share for plan in PARTS}
    total = sum(shares.values())
    parts = Parts(monkeypatch, takes=0.0)
    report = parts.run(seconds=total)
    assert parts.times["memory"] == pytest.approx(shares["memory"])
    # Nobody used anything, so the last one may have all.
    assert parts.times["reproducible"] == pytest.approx(total)
    assert report.parts["reproducible"].budget_s == pytest.approx(total)

    def load(_run):
        slow.now += 60

    slow = Parts(monkeypatch, takes=0.0, load=load)
    slow.run(seconds=total)
    later = total - sum(shares[name] for name in ("memory", "tests", "peers", "start", "load"))
    assert slow.times["rows"] == pytest.approx((total - 60) * shares["rows"] / later)


@pytest.mark.parametrize(("takes", "measured"), [(19.0, 6), (60.0, 5)])
def test_a_slow_machine_leaves_parts_out_but_loads_the_model(monkeypatch, takes, measured):
    """Without it there would be nothing to tell."""
    report = Parts(monkeypatch, takes=takes).run(seconds=100)
    skipped = len(PARTS) - measured
    assert list(states(report).values()) == ["measured"] * measured + ["skipped"] * skipped
    assert {part.note for part in report.parts.values() if part.state == "skipped"} == {NO_TIME}
    assert report.state == "finished"
    assert any("there was no time left for" in finding.text for finding in report.findings)


@pytest.mark.parametrize(
    ("error", "note", "refused", "severity"),
    [
        (RuntimeError("[METAL] out of memory at /Users/joe/x"),
         "RuntimeError: [METAL] out of memory at (path)/x", False, "error"),
        (ConfigError("no prompt of joe fits"), "no prompt of (name) fits", True, "warning"),
        (MemoryError(), "MemoryError: ", False, "error"),
    ],
)  # fmt: skip
def test_a_part_that_fails_is_a_finding_and_the_others_go_on(
    monkeypatch, error, note, refused, severity
):
    report = Parts(monkeypatch, costs=error).run()
    part = report.parts["costs"]
    assert (part.state, part.note, part.refused, part.figures) == ("failed", note, refused, None)
    assert sorted(states(report).values()) == sorted(["failed", *["measured"] * (len(PARTS) - 1)])
    assert report.state == "finished"
    (found,) = [one for one in report.findings if "could not be measured" in one.text]
    assert found.severity == severity
    assert "joe" not in found.text


def test_without_the_model_what_needs_it_is_skipped(monkeypatch):
    report = Parts(monkeypatch, memory=ConfigError("bad"), load=ConfigError("cut off")).run()
    assert list(states(report).values()) == [
        "failed", *["measured"] * 3, "failed", *["skipped"] * 7,
    ]  # fmt: skip
    notes = {part.note for part in report.parts.values() if part.state == "skipped"}
    assert notes == {"the model was not loaded"}
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
    def stop(run):
        run.so_far = figures
        raise KeyboardInterrupt

    parts = Parts(monkeypatch, speed=stop)
    report = parts.run()
    assert report.state == parts.kept[-1]["state"] == "interrupted"
    assert states(report)["speed"] == "interrupted"
    assert report.parts["speed"].figures == figures
    assert states(report)["greedy"] == "measured"
    assert states(report)["sampled"] == "skipped"
    assert "sampled" not in parts.times


def test_an_interrupt_between_parts(monkeypatch):
    kept = []

    def keep(report):
        kept.append(report.state)
        if len(kept) == 4:
            raise KeyboardInterrupt

    report = Parts(monkeypatch).run(keep=keep)
    assert report.state == kept[-1] == "interrupted"
    assert "waiting" not in states(report).values()


def test_the_toy_is_called_one(monkeypatch):
    parts = Parts(monkeypatch)
    parts.model = replace(MODEL, name="akunu-tiny")
    assert "akunu-tiny is a toy" in " ".join(finding.text for finding in parts.run().findings)


def test_files_are_never_written_over(tmp_path, monkeypatch):
    report = Parts(monkeypatch).run()
    folder = tmp_path / "new" / "folder"
    first = KeptReport(folder)
    first.write(report)
    # One name of the second pair is taken.
    (folder / "akunu-machine-2.json").write_text("mine")
    second = KeptReport(folder)
    second.write(report)
    second.write(report)
    assert sorted(path.name for path in folder.iterdir()) == [
        "akunu-machine-2.json", "akunu-machine-3.json", "akunu-machine-3.md", "akunu-machine.json",
        "akunu-machine.md",
    ]  # fmt: skip
    assert (folder / "akunu-machine-2.json").read_text() == "mine"
    assert first.page.read_text() == second.page.read_text()
    assert json.loads(second.record.read_text())["state"] == "finished"


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*; give --output another folder"):
        KeptReport(tmp_path / "file")


def test_a_run_that_took_too_long_is_over():
    clock = SimpleNamespace(now=5.0)
    run = PartRun(2.0, clock=lambda: clock.now)
    assert (run.left, run.is_over()) == (2.0, False)
    clock.now = 8.0
    assert (run.left, run.is_over()) == (-1.0, True)
