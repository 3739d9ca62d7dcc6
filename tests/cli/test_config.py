"""`akunu config`: what it shows, the file it opens, and `set` and `unset`, which change one key."""

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
    row = {"key": "model-folders", "value": ["/a"], "source": "model-folders"}
    assert {"command": "", **row} in rows
    rows = json.loads(show("--json", AKUNU_MODEL="n", AKUNU_MODEL_FOLDERS="/b").stdout)["settings"]
    assert {"command": "", "key": "model", "value": "n", "source": "AKUNU_MODEL"} in rows
    assert [r["source"] for r in rows if r["key"] == "model-folders"] == ["AKUNU_MODEL_FOLDERS"]


def test_config_show_of_wrong_things(config):
    warned = show(AKUNU_TEMPERATUR="1").stderr
    assert "AKUNU_TEMPERATUR sets nothing. Did you mean AKUNU_TEMPERATURE?" in warned
    assert "Did you mean chat?" in show("chatt", code=2).output
    config.write_text("temprature = 1\n")
    assert "Did you mean temperature?" in show(code=2).output
    assert run("config", "path").output == f"{config}\n"


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


FILE = """\
# mine
temperature = 0.5  # warm

[chat]
top_k = 3
system = "Be brief."
"""


@pytest.fixture
def change(config):
    config.write_text(FILE)

    def run(*arguments, code=0):
        result = CliRunner().invoke(cli, ["config", *arguments])
        assert result.exit_code == code, result.output
        return result.stderr

    return run


def test_a_key_is_changed_where_it_stands(change, config):
    change("set", "temperature", "0.7")
    change("set", "chat.top-k", "5")
    expected = FILE.replace("0.5", "0.7").replace("top_k = 3", "top_k = 5")
    assert config.read_text() == expected


def test_paths_hold_in_every_folder(change, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    change("set", "chat.memory", "kept")
    change("set", "serve.cache-dir", "./rows")
    change("set", "model-folders", "models", "/b")
    change("set", "chat.stop", "a/b")
    change("set", "chat.heads", "own")
    change("set", "chat.draft-model", "hf:o/r")
    text = config.read_text()
    assert f'memory = "{tmp_path}/kept"' in text
    assert f'cache-dir = "{tmp_path}/rows"' in text
    assert f'model-folders = ["{tmp_path}/models", "/b"]' in text
    assert all(line in text for line in ('stop = "a/b"', 'heads = "own"', 'model = "hf:o/r"'))


def test_a_model_is_found_from_every_folder(change, config, tmp_path, monkeypatch):
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    change("set", "model", "m.gguf")
    assert f'model = "{tmp_path}/m.gguf"' in config.read_text()
    before = config.read_text()
    said = change("set", "model", "n.gguf", code=2)
    assert said.endswith("Did you mean m.gguf?\n")
    assert config.read_text() == before
    (tmp_path / "m.gguf").unlink()
    said = CliRunner().invoke(cli, ["generate", "Hi"]).stderr
    assert f"the default model, set in {config}: there is no model named {tmp_path}/m" in said
    said = CliRunner().invoke(cli, ["generate", "Hi"], env={"AKUNU_MODEL": "x.gguf"}).stderr
    assert "the default model, set in AKUNU_MODEL: there is no model named x.gguf" in said


def test_unset(change, config):
    change("unset", "chat.top-k")
    change("unset", "temperature")
    assert config.read_text() == '# mine\n\n[chat]\nsystem = "Be brief."\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "temprature", "1"), "Did you mean temperature?"),
        (("set", "temperature", "hot"), "temperature is 'hot'; give a number"),
        (("set", "min-p", "2"), "min-p is 2.0; give a number from 0 to 1"),
        (("set", "chat.temperature", "0.0001"), "[chat] temperature is 0.0001; give 0 for"),
        (("set", "--", "seed", "-1"), "seed is -1; give a whole number, 0 or more"),
        (("set", "serve.num-draft-tokens", "65"), "give at most 64"),
        (("set", "chat.stop", "a", ""), "stop is ('',); give a tuple of texts, none of them empty"),
        (("set", "logit-bias", "x"), "give a token id and a number, as in 42=-1.5"),
        (("set", "chat.logit-bias", "1=nan"), "the bias of token 1 is nan"),
        (("set", "chat.drafter", "atuo"), "atuo"),
        (("set", "chat.context", "1"), "context is 1; give 2 or more tokens"),
        (("set", "kv-bits", "5"), "kv-bits is 5; give 4 or 8"),
        (("set", "bench.hit-rate.temperature", "101"), "temperature is 101.0; give 0 for"),
        (("set", "serve.parallel", "65"), "serve] parallel"),
        (("set", "chat.quik", "1"), "[chat] quik is not an option of akunu chat."),
        (("set", "chatt.seed", "1"), "Did you mean chat?"),
        (("set", "chat", "x"), "chat is a command's table; name an option, as in chat.seed"),
        (("set", "temperature.x", "1"), "temperature is a value, not a command's table"),
        (("set", "chat.system", "Be", "brief."), "chat.system takes one value"),
        (("set", "chat..system", "x"), "chat"),
        (("set", "", "x"), "is not an option"),
        (("unset", "seed"), "seed is not set"),
        (("unset", "bench.speed.quick"), "bench.speed.quick is not set"),
    ],
)
def test_what_would_make_a_file_wrong_leaves_it_alone(change, config, arguments, words):
    assert words in change(*arguments, code=2)
    assert config.read_text() == FILE


def test_a_file_that_is_wrong_already_is_not_touched(change, config):
    config.write_text("a =")
    assert "is not TOML" in change("set", "seed", "1", code=2)
    assert config.read_text() == "a ="


def test_every_key_of_a_command_is_listed_once(config):
    """`--model` and MODEL are one setting."""
    shown = CliRunner().invoke(cli, ["config", "show", "--all", "--json"]).stdout
    keys = [(row["command"], row["key"]) for row in json.loads(shown)["settings"]]
    assert ("chat", "model") in keys
    assert len(keys) == len(set(keys))
