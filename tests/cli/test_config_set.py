"""`akunu config set` and `unset`: one key changes, the rest of the file stays as it was."""

import json

import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli

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
