"""`akunu bench machine` as a command: files and exit codes; the run itself is tested beside."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from machine_reports import MAC, PROGRAMS

from akunu_lab.commands.machine import machine
from akunu_lab.machine import facts
from akunu_lab.machine import run as run_module
from akunu_lab.machine.facts import published
from akunu_lab.machine.parts import PARTS
from akunu_lab.machine.planning import ModelPace
from akunu_lab.machine.start import StartFigures

FIGURES = {"start": StartFigures((1.5,))}


@pytest.fixture
def parts(monkeypatch):
    """What each part does in the place of measuring, by its name."""
    does = {}

    def measure(name):
        def measured(subject, run):
            run.tell()
            if name in does:
                raise does[name]
            subject.pace = ModelPace(0.01, 0.001, 100)
            return FIGURES.get(name)

        return measured

    replaced = tuple(replace(part, measure=measure(part.name)) for part in PARTS)
    monkeypatch.setattr(run_module, "PARTS", replaced)
    monkeypatch.setattr(facts, "read_facts", lambda privacy: published(MAC, privacy, PROGRAMS))
    return does


@pytest.fixture
def run(parts, default_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        result = CliRunner().invoke(machine, [str(default_model), *arguments])
        assert result.exit_code == code, result.output
        return result

    return run


def test_page_and_figures_are_kept(run, tmp_path):
    result = run()
    assert "A new process gives its first token after 1.5 s." in result.stdout
    assert "note: Metal recommends 22.9 GB\n  Know it.\n" in result.stdout
    assert "The page is akunu-machine.md, its figures akunu-machine.json." in result.stderr
    page = (tmp_path / "akunu-machine.md").read_text()
    assert page.startswith("# akunu bench machine\n")
    assert json.loads((tmp_path / "akunu-machine.json").read_text())["limit_seconds"] == 300


def test_nothing_private_is_in_the_files(run, parts, tmp_path, monkeypatch):
    """A whole run on this machine, whose own names are known, with an error that has a path."""
    monkeypatch.setattr("getpass.getuser", lambda: "joedoe")
    monkeypatch.setattr("platform.node", lambda: "joes-studio.local")
    parts["costs"] = RuntimeError(f"joedoe on joes-studio cannot write {tmp_path}/x/y")
    run("--minutes", "1", "--output", "kept", code=1)
    kept = [(tmp_path / "kept" / f"akunu-machine.{kind}").read_text() for kind in ("md", "json")]
    for text in kept:
        assert "(name) on (name) cannot write (path)" in text
        for private in ("joedoe", "joes-studio", str(tmp_path), f"{Path.home()}/"):
            assert private not in text


def test_json_is_the_figures_in_one_line(run, tmp_path):
    (line,) = run("--json").stdout.splitlines()
    assert line == (tmp_path / "akunu-machine.json").read_text().strip()
    assert json.loads(line)["format"] == "akunu bench machine 1"


def test_an_interrupt_ends_it_with_what_there_is(run, parts, tmp_path):
    parts["speed"] = KeyboardInterrupt()
    result = run(code=130)
    assert "Interrupted: the page has what was measured until then." in result.stderr
    record = json.loads((tmp_path / "akunu-machine.json").read_text())
    assert record["state"] == "interrupted"
    assert record["parts"]["start"]["state"] == "measured"
    assert "**Interrupted:**" in (tmp_path / "akunu-machine.md").read_text()


def test_a_full_disk_prints_the_page(run, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = run(code=1)
    assert "# akunu bench machine" in result.stderr
    assert "cannot write akunu-machine.md: No space left on device" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--minutes", "0"], "range"), (["no/such.gguf"], "no/such.gguf")],
)
def test_what_is_refused_leaves_no_file(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(machine, arguments)
    assert words in f"{result.output}{result.exception}"
    assert list(tmp_path.iterdir()) == []
