"""The example of a drafter in docs/example-drafter, as a package that somebody installed."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-drafter"
MODULE = EXAMPLE / "akunu_brackets.py"


@pytest.fixture
def installed(tmp_path):
    """A folder as pip leaves it: the module, and a .dist-info with its entry points."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copy(MODULE, tmp_path)
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def akunu(installed, *arguments):
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "akunu_py", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.slow
def test_an_installed_drafter_drafts_and_changes_nothing(installed, default_model):
    command = ("generate", default_model, "--raw", "-p", "print(sorted([f(x), g(", "--json")
    options = ("--max-tokens", "24", "--draft-budget", "always")
    drafted = akunu(installed, *command, *options, "--drafter", "brackets")
    plain = akunu(installed, *command, *options, "--drafter", "none")
    assert drafted.returncode == plain.returncode == 0, drafted.stderr + plain.stderr
    drafted, plain = json.loads(drafted.stdout), json.loads(plain.stdout)
    assert drafted["text"] == plain["text"]
    assert drafted["stats"]["drafted"] > 0
    unknown = akunu(installed, "generate", "-p", "x", "--drafter", "braket")
    assert "did you mean 'brackets'" in " ".join(unknown.stderr.split())


def test_it_is_short_and_uses_public_names():
    source = MODULE.read_text()
    assert len(source.splitlines()) < 70
    imported = {
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }
    assert {name for name in imported if name.startswith("akunu")} == {"akunu_py.api"}
