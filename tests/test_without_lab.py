"""akunu where its laboratory is not installed, and commands that other packages add."""

import shutil
from pathlib import Path

import pytest
from programs import python

import akunu_py

PACKAGE = Path(akunu_py.__file__).parent


ALONE = "import sys; sys.modules['akunu_lab'] = None; from akunu_py.__main__ import main; main()"
"""Runs akunu where nothing of the laboratory can be imported, though its entry points may be there."""


def akunu(*arguments, folder=None):
    started = ["-m", "akunu_py"] if folder else ["-c", ALONE]
    variables = {"PYTHONPATH": str(folder or PACKAGE.parent)}
    done = python(*started, *arguments, code=None, variables=variables)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_help_shows_the_engines_commands():
    code, said = akunu("--help")
    assert code == 0
    assert {"bench", "chat", "doctor", "generate", "models", "tune"} <= set(said.split())
    assert "corpus" not in said
    code, said = akunu("bench", "--help")
    assert code == 0
    assert {"hit-rate", "speed"} <= set(said.split())
    assert "sweep" not in said
    code, said = akunu("bench", "sweep")
    assert code == 2
    assert "No such command 'sweep'" in said


@pytest.mark.slow
def test_it_drafts_and_says_what_it_has_not(tiny_gguf):
    command = ("generate", tiny_gguf, "-p", "hello world hello", "--max-tokens", 8)
    assert akunu(*command, "--drafter", "auto")[0] == 0
    code, said = akunu(*command, "--drafter", "tree")
    assert code == 2
    assert "there is no drafter named 'tree'; choose from auto, ngram, ngram-window, lookup" in said
    code, said = akunu(*command, "--draft-sampling", "rejection")
    assert code == 2
    assert "No such option '--draft-sampling'" in said
    assert "akunu's laboratory (pip install ./lab in a checkout)" in said


@pytest.mark.slow
def test_commands_of_other_packages(tmp_path):
    (tmp_path / "my_commands.py").write_text(
        "import click\n\n\n@click.command()\ndef mine():\n    click.echo('mine it is')\n"
    )
    info = tmp_path / "my_commands-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-commands\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[akunu.commands]\nmine = my_commands:mine\nbench.mine = my_commands:mine\n"
        "bench.gone = no_such_module:gone\n"
    )
    shutil.copytree(PACKAGE, tmp_path / "akunu_py", ignore=shutil.ignore_patterns("*.pyc"))
    assert "mine" in akunu("--help", folder=tmp_path)[1].split()
    assert akunu("mine", folder=tmp_path) == (0, "mine it is")
    assert akunu("bench", "mine", folder=tmp_path) == (0, "mine it is")
    code, said = akunu("bench", "--help", folder=tmp_path)
    assert "gone" not in said.split()
    assert "No such command 'gone'" in akunu("bench", "gone", folder=tmp_path)[1]
