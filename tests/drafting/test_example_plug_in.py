"""The example of a drafter in docs/example-drafter, as a package that somebody installed."""

import ast
import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest
from programs import python

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


def akunu(installed, *arguments, **variables):
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    variables = {"PYTHONPATH": path, "AKUNU_DRAFT_BUDGET": "always"} | variables
    return python("-m", "akunu_py", *arguments, code=None, variables=variables)


@pytest.mark.slow
def test_an_installed_drafter_drafts_and_changes_nothing(installed, default_model):
    command = ("generate", default_model, "--raw", "-p", "print(sorted([f(x), g(", "--json")
    options = ("--max-tokens", "24")
    drafted = akunu(installed, *command, *options, "--drafter", "brackets")
    plain = akunu(installed, *command, *options, "--drafter", "none")
    assert drafted.returncode == plain.returncode == 0, drafted.stderr + plain.stderr
    drafted, plain = json.loads(drafted.stdout), json.loads(plain.stdout)
    assert drafted["text"] == plain["text"]
    assert drafted["stats"]["drafted"] > 0
    help_text = akunu(installed, "generate", "--help-all").stdout
    assert "--bracket-odds P" in help_text
    assert "Take a bracket to be right with probability P." in " ".join(help_text.split())
    for odds, said in (("2", "--bracket-odds is 2.0; give 0 to 1"), ("0.9", "")):
        told = akunu(installed, *command, *options, "--drafter", "brackets", "--bracket-odds", odds)
        assert told.returncode == (2 if said else 0)
        assert said in told.stderr
    settings = installed / "config.toml"
    for content, of in (("bracket-odds = 2", ""), ("[generate]\nbracket-odds = 2", "[generate] ")):
        settings.write_text(content)
        said = akunu(installed, *command, "--drafter", "brackets", AKUNU_CONFIG=settings).stderr
        assert f"config.toml: {of}bracket-odds is 2; give 0 to 1" in said
    said = akunu(installed, "-q", *command, "--drafter", "brackets", AKUNU_BRACKET_ODDS="2").stderr
    assert "--bracket-odds is 2.0; give 0 to 1" in said
    other = akunu(installed, *command, "--drafter", "ngram", "--bracket-odds", "0.5")
    assert "'ngram' has no --bracket-odds; leave it out, or choose from brackets" in other.stderr
    unknown = akunu(installed, "generate", "-p", "x", "--drafter", "braket")
    assert "did you mean 'brackets'" in " ".join(unknown.stderr.split())


def test_it_is_short_and_uses_public_names():
    source = MODULE.read_text()
    assert len(source.splitlines()) < 90
    imported = {
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }
    assert {name for name in imported if name.startswith("akunu")} == {"akunu_py.api"}
