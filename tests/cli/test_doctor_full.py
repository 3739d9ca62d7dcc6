"""`akunu doctor --full` as a command: options, files, exit codes; the run itself is in tests/diagnosis."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from akunu_py.cli.count_progress import share_progress
from akunu_py.cli.main import cli
from akunu_py.diagnosis.full import run as run_module
from akunu_py.diagnosis.full.parts import PARTS
from akunu_py.diagnosis.full.planning import ModelPace
from akunu_py.diagnosis.full.start import StartFigures

FIGURES = {"start": StartFigures((1.5,))}


@pytest.fixture
def parts(monkeypatch):
    """What each part does in the place of measuring, by its name."""
    does = {}

    def measure(name):
        def measured(subject, run):
            run.tell("half of it")
            if name in does:
                raise does[name]
            subject.pace = ModelPace(0.01, 0.001, 100)
            return FIGURES.get(name)

        return measured

    replaced = tuple(replace(part, measure=measure(part.name)) for part in PARTS)
    monkeypatch.setattr(run_module, "PARTS", replaced)
    return does


@pytest.fixture
def run(parts, default_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        result = CliRunner().invoke(cli, ["doctor", "--full", str(default_model), *arguments])
        assert result.exit_code == code, result.output
        return result

    return run


def test_page_and_figures_are_kept(run, tmp_path):
    result = run()
    assert "A new process gives its first token after 1.5 s." in result.stdout
    assert "note: akunu-tiny is a toy" in result.stdout
    assert "The page is akunu-doctor.md, its figures akunu-doctor.json." in result.stderr
    page = (tmp_path / "akunu-doctor.md").read_text()
    assert page.startswith("# akunu doctor --full\n")
    assert json.loads((tmp_path / "akunu-doctor.json").read_text())["limit_seconds"] == 300


def test_nothing_private_is_in_the_files(run, parts, tmp_path, monkeypatch):
    """A whole run on this machine, whose own names are known, with an error that has a path."""
    monkeypatch.setattr("getpass.getuser", lambda: "joedoe")
    monkeypatch.setattr("platform.node", lambda: "joes-studio.local")
    parts["costs"] = RuntimeError(f"joedoe on joes-studio cannot write {tmp_path}/x/y")
    run("--minutes", "1", "--output", "kept", code=1)
    kept = [(tmp_path / "kept" / f"akunu-doctor.{kind}").read_text() for kind in ("md", "json")]
    for text in kept:
        assert "(name) on (name) cannot write (path)" in text
        for private in ("joedoe", "joes-studio", str(tmp_path), f"{Path.home()}/"):
            assert private not in text


def test_json_is_the_figures_in_one_line(run, tmp_path):
    (line,) = run("--json").stdout.splitlines()
    assert line == (tmp_path / "akunu-doctor.json").read_text().strip()
    assert json.loads(line)["format"] == "akunu doctor 1"


def test_an_interrupt_ends_it_with_what_there_is(run, parts, tmp_path):
    parts["speed"] = KeyboardInterrupt()
    result = run(code=130)
    assert "Interrupted: the page has what was measured until then." in result.stderr
    record = json.loads((tmp_path / "akunu-doctor.json").read_text())
    assert record["state"] == "interrupted"
    assert record["parts"]["start"]["state"] == "measured"
    assert "**Interrupted:**" in (tmp_path / "akunu-doctor.md").read_text()


def test_a_full_disk_prints_the_page(run, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run(code=2)
    assert "# akunu doctor --full" in result.stderr
    assert "cannot write akunu-doctor.md: No space left on device" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m.gguf"], "a MODEL goes with --full"),
        (["--minutes", "3"], "--minutes goes with --full"),
        (["--output", "x"], "--output goes with --full"),
        (["--full", "--no-self-test"], "--full has no self-test"),
        (["--full", "--minutes", "0"], "is out of range; give 0.1 to 600"),
        (["--full", "no/such.gguf"], "no/such.gguf"),
    ],
)
def test_what_does_not_go_together(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["doctor", *arguments])
    assert result.exit_code == 2
    assert words in result.output
    assert list(tmp_path.iterdir()) == []


def test_progress_on_a_terminal_and_in_a_file(monkeypatch, capsys, progress_clock):
    now = iter([0.0, 1.0, 2.0, 30.0, 31.0])
    progress_clock.now = lambda: next(now)
    with share_progress() as tell:
        for text in ("loading", "loading: 1 file", "loading: 2 files", "costs"):
            tell(text, 0.25)
    # A part that begins is told at once, how it goes on every ten seconds at most.
    assert capsys.readouterr().err.splitlines() == [
        f"akunu: {text} (25% of the time)" for text in ("loading", "loading: 2 files", "costs")
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    now = iter([0.0, 100.0])
    with share_progress() as tell:
        tell("starts", 0.0)
        tell("what passes cost", 0.25)
    shown = capsys.readouterr()
    assert "what passes cost" in shown.err
    assert "about 5.0 min left" in shown.err
    assert shown.out == ""
