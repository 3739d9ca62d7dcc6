"""`akunu config`: what it shows, and the file it opens."""

import json
import os
import re

import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli


def run(*arguments, code=0, **variables):
    result = CliRunner().invoke(cli, list(arguments), env=variables)
    assert result.exit_code == code, result.output
    return result


def show(*arguments, code=0, **variables):
    return run("config", "show", *arguments, code=code, **variables)


@pytest.mark.lab
def test_config_show_says_where_each_value_came_from(config):
    config.write_text('temperature = 0.7\n[chat]\nsystem = "Be brief."\n')
    record = json.loads(show("chat", "--json", AKUNU_CHAT_SEED="5").stdout)
    assert record["path"] == str(config)
    assert record["found"]
    assert {(row["key"], row["value"], row["source"]) for row in record["settings"]} == {
        ("temperature", 0.7, "temperature"),
        ("system", "Be brief.", "[chat] system"),
        ("seed", "5", "AKUNU_CHAT_SEED"),
    }
    everything = json.loads(show("chat", "--all", "--json").stdout)["settings"]
    assert {"key": "top-p", "value": 1.0, "source": None, "command": "chat"} in everything
    lines = show().stdout.splitlines()
    assert any(line.startswith("generate temperature ") for line in lines)
    assert any(line.startswith("bench alpha temperature ") for line in lines)


def test_config_show_of_models(config):
    config.write_text('model = "m"\nmodel-folders = ["/a"]\n')
    rows = json.loads(show("--json").stdout)["settings"]
    assert {"command": "", "key": "model", "value": "m", "source": "model"} in rows
    assert {
        "command": "",
        "key": "model-folders",
        "value": ["/a"],
        "source": "model-folders",
    } in rows
    rows = json.loads(show("--json", AKUNU_MODEL="n", AKUNU_MODEL_FOLDERS="/b").stdout)["settings"]
    assert {"command": "", "key": "model", "value": "n", "source": "AKUNU_MODEL"} in rows
    assert [r["source"] for r in rows if r["key"] == "model-folders"] == ["AKUNU_MODEL_FOLDERS"]


def test_config_show_of_wrong_things(config):
    warned = show(AKUNU_TEMPERATUR="1").stderr
    assert "AKUNU_TEMPERATUR sets nothing. Did you mean AKUNU_TEMPERATURE?" in warned
    assert "Did you mean chat?" in show("chatt", code=2).output
    config.write_text("temprature = 1\n")
    assert "Did you mean temperature?" in show(code=2).output
    path = run("config", "path").output
    assert path == f"{config}\n"


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """An editor that appends what it is told to."""
    program = tmp_path / "editor"
    monkeypatch.setenv("VISUAL", str(program))

    def appends(text):
        program.write_text(f"#!/bin/sh\nprintf '{text}' >> \"$1\"\n")
        program.chmod(0o755)

    return appends


def test_config_edit(config, editor, monkeypatch):
    editor("top-p = 0.5\\n")
    config.write_text("# mine\n")
    run("config", "edit")
    assert config.read_text() == "# mine\ntop-p = 0.5\n"
    place = config.parent / "new" / "config.toml"
    monkeypatch.setenv("AKUNU_CONFIG", str(place))
    run("config", "edit")
    text = place.read_text()
    assert text.startswith("# Settings of akunu.")
    assert text.endswith('\n# system = "Answer briefly."\ntop-p = 0.5\n')
    place.write_text(re.sub(r"^# (?=[a-z-]+ = |\[)", "", text, flags=re.MULTILINE))
    assert "Answer briefly." in run("config", "show", "chat").output


def test_config_edit_checks_what_was_written(config, editor):
    editor("top-q = 0.5\\n")
    assert "Did you mean top-p?" in run("config", "edit", code=2).output
    # A file with a mistake is what one comes to mend.
    editor("a =")
    assert "is not TOML" in run("config", "edit", code=2).output
    assert config.read_text() == "top-q = 0.5\na ="


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"EDITOR": "/nosuch"}, "the editor '/nosuch' of EDITOR cannot be started: No such file"),
        ({"VISUAL": "/nosuch -w", "EDITOR": "true"}, "the editor '/nosuch -w' of VISUAL cannot be"),
        ({"EDITOR": "false"}, "the editor 'false' of EDITOR ended with an error"),
        ({"EDITOR": "'vi"}, 'the editor "\'vi" of EDITOR is not a command: No closing quotation'),
        ({}, "the editor cannot be started: No such file"),
    ],
)
def test_an_editor_that_fails_is_named(config, monkeypatch, variables, words):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not variables:
        monkeypatch.setenv("PATH", "")
    text = run("config", "edit", code=1).stderr
    assert f"Error: {words}" in text
    name = next(iter(variables), "EDITOR")
    assert f"; set {name} to one that is installed, as in {name}=nano" in text
    assert "Errno" not in text


def test_config_edit_where_nothing_can_be_edited(config, tmp_path, monkeypatch):
    monkeypatch.setenv("VISUAL", str(tmp_path / "none"))
    assert "Error: " in run("config", "edit", code=1).output
    monkeypatch.setenv("AKUNU_CONFIG", os.devnull)
    assert "switched off" in run("config", "edit", code=2).output
    monkeypatch.setenv("AKUNU_CONFIG", str(config / "below" / "a.toml"))
    assert "cannot be" in run("config", "edit", code=2).output


def test_every_option_of_every_command_can_be_set(config):
    """A table of all defaults of all commands is a settings file without an error."""
    config.write_text("")
    rows = json.loads(show("--all", "--json").stdout)["settings"]
    lines = []
    for row in rows:
        if row["command"] and row["value"] not in (None, []):
            table = ".".join(row["command"].split())
            lines.append(f"{table}.{row['key']} = {json.dumps(row['value'])}")
    assert len(lines) > 60
    config.write_text("\n".join(lines))
    shown = json.loads(show("--json").stdout)["settings"]
    assert len(shown) == len(lines)
    assert [row for row in shown if not row["source"].startswith("[")] == []
