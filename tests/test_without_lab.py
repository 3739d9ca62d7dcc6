"""The engine with its laboratory taken away, and commands that other packages add.

`scripts/test --without-lab` runs the engine's fast tests in such a copy.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import akunu_py

PACKAGE = Path(akunu_py.__file__).parent


def akunu(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "akunu_py", *map(str, arguments)],
        # The installed package has the entry points of the laboratory all the same.
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def without_lab(tmp_path_factory):
    """A folder with the package, but for akunu_py/lab."""
    folder = tmp_path_factory.mktemp("without-lab")
    shutil.copytree(PACKAGE, folder / "akunu_py", ignore=shutil.ignore_patterns("lab", "*.pyc"))
    return folder


def test_help_shows_the_engines_commands(without_lab):
    code, said = akunu(without_lab, "--help")
    assert code == 0
    assert {"bench", "chat", "doctor", "generate", "models", "tune"} <= set(said.split())
    assert "corpus" not in said
    code, said = akunu(without_lab, "bench", "--help")
    assert code == 0
    assert {"hit-rate", "replay", "speed"} <= set(said.split())
    assert "sweep" not in said
    code, said = akunu(without_lab, "bench", "sweep")
    assert code == 2
    assert "No such command 'sweep'" in said


@pytest.mark.slow
def test_it_drafts_and_says_what_it_has_not(without_lab, tiny_gguf):
    command = ("generate", tiny_gguf, "-p", "hello world hello", "--max-tokens", 8)
    assert akunu(without_lab, *command, "--drafter", "auto")[0] == 0
    code, said = akunu(without_lab, *command, "--drafter", "tree")
    assert code == 2
    assert "there is no drafter named 'tree'; choose from auto, ngram, ngram-window, lookup" in said
    code, said = akunu(without_lab, *command, "--draft-sampling", "rejection")
    assert code == 2
    assert "no installed package offers the verifier 'rejection'" in said


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
    assert "mine" in akunu(tmp_path, "--help")[1].split()
    assert akunu(tmp_path, "mine") == (0, "mine it is")
    assert akunu(tmp_path, "bench", "mine") == (0, "mine it is")
    code, said = akunu(tmp_path, "bench", "--help")
    assert "gone" not in said.split()
    assert "No such command 'gone'" in akunu(tmp_path, "bench", "gone")[1]
