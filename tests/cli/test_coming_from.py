"""docs/coming-from.md: each row of its tables is typed, and does what the page says."""

import re
import shlex
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_help import words_left
from gguf_files import drawn, write_adapter

from akunu_py.cli import first_words
from akunu_py.cli.chat.set_values import CHAT_DEFAULT, with_field
from akunu_py.cli.main import cli
from akunu_py.server import running
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.option_fields import options_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
PROGRAMS = ("Ollama", "LM Studio and hf", "llama.cpp", "mlx_lm", "llm")
ROW = re.compile(r"\| `(?P<there>[^`]+)` \| `(?P<typed>akunu[^`]*)` \| (?P<happens>.+) \|")


def rows(program):
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {program}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [ROW.fullmatch(line).groupdict() for line in lines]


def words_of(line):
    """Return the arguments of akunu, and the file that is its standard input."""
    _, *words = shlex.split(line)
    if "<" not in words:
        return words, None
    at = words.index("<")
    return [*words[:at], *words[at + 2 :]], words[at + 1]


def understood(line):
    """Return which command is called with which values, without running it."""
    arguments, _ = words_of(line)
    context = cli.make_context("akunu", list(arguments))
    command, name, values = cli, (), {}
    while isinstance(command, click.Group):
        rest = words_left(context)
        found, command, rest = command.resolve_command(context, rest)
        context = command.make_context(found, rest, parent=context)
        name, values = (*name, found), dict(context.params)
    # What may be said in two ways.
    if "words" in values:
        model, prompt = first_words.split_words(values.pop("words"), values.pop("model_option"))
        asked = "-" in (*arguments, values["prompt"])
        values |= {
            "model": model,
            "prompt": None if asked else prompt or values["prompt"],
            "asked": asked,
        }
    if "model_option" in values:
        values["model"] = values.pop("model_option") or values["model"]
    return name, values, cli_verbosity(context)


def cli_verbosity(context):
    return {key: bool(context.find_root().params[key]) for key in ("verbose", "quiet")}


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_gguf, hub):
    """A folder with a model, a hub with another one, and a terminal to type at."""
    hub.add("OWNER/REPO", {"m-Q8_0.gguf": tiny_gguf.read_bytes()})
    (tmp_path / "model.gguf").symlink_to(tiny_gguf)
    write_adapter(tmp_path / "adapter.gguf", "llama", {"blk.0.attn_q.weight": drawn((64, 64))})
    (tmp_path / "notes.txt").write_text("hello world")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AKUNU_MAX_TOKENS", "2")
    monkeypatch.setenv("AKUNU_MODEL", str(tiny_gguf))
    monkeypatch.setattr(first_words, "at_terminal", lambda: True)
    # A server that ends at once, on a port that is free.
    ended = types.SimpleNamespace(run=lambda sockets: None)
    monkeypatch.setattr(running, "server_of", lambda app, **_: ended)
    listen = running.listen
    monkeypatch.setattr(running, "listen", lambda host, port: listen(host, 0))
    return tmp_path


def typed(line, place):
    arguments, file = words_of(line)
    text = "" if file is None else (place / file).read_text()
    result = CliRunner().invoke(cli, arguments, input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("mlx_lm", "llm") else ())
        for name in PROGRAMS
    ],
)
def test_each_row_does_what_the_page_says(program, place):
    found = rows(program)
    assert len(found) >= 10
    for row in found:
        happens = row["happens"]
        result = typed(row["typed"], place)
        if happens.startswith("*"):
            assert result.exit_code == 2, row["typed"]
            assert happens.strip("*") in result.stderr, row["typed"]
        else:
            assert result.exit_code == 0, (row["typed"], result.output)
            other = happens.strip("`")
            if {"help", "--version"} & set(row["typed"].split()):
                assert result.stdout == typed(other, place).stdout
            else:
                assert understood(row["typed"]) == understood(other), row["typed"]


def test_every_refused_word_and_option_is_explained(monkeypatch):
    monkeypatch.setattr(first_words, "at_terminal", lambda: True)
    for word in first_words.REFUSED:
        result = CliRunner().invoke(cli, [word, "x"])
        assert result.exit_code == 2
        assert f"There is no akunu {word}: " in result.stderr
    for name, said in first_words.FOREIGN_OPTIONS.items():
        result = CliRunner().invoke(cli, ["chat", "x.gguf", name, "1"])
        assert result.exit_code == 2
        assert said.format(name) in result.stderr


@pytest.mark.parametrize("phrase", first_words.PHRASES)
def test_no_phrase_hides_a_command_and_each_leads_to_one(phrase):
    words = phrase.split()
    group = cli if len(words) == 1 else cli.get_command(click.Context(cli), words[0])
    assert words[-1] not in group.list_commands(click.Context(group))
    assert "Usage: " in CliRunner().invoke(cli, [*words, "--help"]).output or phrase == "version"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run", "m.gguf"], "chat"),
        (["run", "m.gguf", "Why", "is", "it?"], "generate"),
        (["run", "m.gguf", "-p", "Why?"], "generate"),
        (["run", "m.gguf", "--load", "a.json"], "chat"),
        (["-v", "m.gguf"], "chat"),
        (["-t", "0.5"], "chat"),
        (["hf:o/r"], "chat"),
        (["smollm2"], "chat"),
        (["akunu-tiny", "Why?"], "generate"),
        (["folder/model"], "chat"),
        (["two words"], "generate"),
        (["run", "llama3.2"], "chat"),
        (["run", "smollm2"], "chat"),
        (["run", "modle.gguf"], "chat"),
        (["https://huggingface.co/o/r"], "chat"),
        (["-m", "m.gguf", "word"], "generate"),
        (["run", "-h"], "chat"),
    ],
)
def test_run_is_a_chat_unless_there_is_a_prompt(arguments, command, monkeypatch):
    context = click.Context(cli)
    monkeypatch.setattr(first_words, "at_terminal", lambda: True)
    found = first_words.in_own_words(arguments, cli, context)
    assert next(word for word in found if word != "-v") == command
    monkeypatch.setattr(first_words, "at_terminal", lambda: False)
    found = first_words.in_own_words(["run", "m.gguf"], cli, context)
    assert found[0] == "generate"


def test_a_word_that_is_nothing_gets_a_hint():
    assert "Did you mean list?" in CliRunner().invoke(cli, ["lisst"]).stderr
    for words, hint in (
        (["xyzzy"], "for a reply to these words, type: akunu generate xyzzy\n"),
        (["xyzzy", "it's"], "type: akunu generate 'xyzzy it'\"'\"'s'\n"),
        (["xyzzy", "--temp", "1"], "type: akunu generate xyzzy\n"),
    ):
        said = CliRunner().invoke(cli, words).stderr
        assert said.endswith(hint)
        assert "akunu help lists the commands" in said


@pytest.fixture
def names(tmp_path, monkeypatch, tiny_gguf):
    """Names of models of every kind: a file, a folder's, an alias, and one that leads nowhere."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "inside.gguf").symlink_to(tiny_gguf)
    (tmp_path / "config.toml").write_text(f'model-folders = ["{folder}"]\n')
    (tmp_path / "aliases.toml").write_text('[aliases]\nmine = "hf:o/r"\ndead = "/nowhere/x"\n')
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "word",
    [
        "file", "dangling", "inside", "inside.gguf", "mine", "dead", "akunu-tiny", "smollm2",
        # What looks like a name is no prompt: it may be misspelt.
        "modle.gguf", "MODLE.GGUF", "model.safetensors", "model.bin", "hf:o", "o/r", "./nowhere",
        "Qwen3-0.6B-Q4_K_M",
        "https://huggingface.co/o/r",
    ],
)  # fmt: skip
def test_a_lone_word_that_names_a_model_is_no_prompt(word, names):
    assert first_words.split_words([word], None) == (word, None)
    assert first_words.split_words([word, "-"], None) == (word, None)


@pytest.mark.parametrize(
    "word", ["Hi", "Hello?", "hello.", "\u4f60\u597d" * 100, "x" * 5000, "inside.", "min"]
)
def test_a_lone_word_that_names_no_model_is_the_prompt(word, names):
    assert first_words.split_words([word], None) == (None, word)
    assert first_words.split_words([word, "-"], None) == (None, word)
    assert first_words.split_words([word, "more"], None) == (word, "more")
    assert first_words.split_words([word], "m.gguf") == ("m.gguf", word)
    assert first_words.split_words([word], None, prompted=True) == (word, None)


@pytest.mark.parametrize("word", ["''", "' '"])
def test_no_words_are_no_prompt(word, place):
    for command in ("akunu", "akunu generate"):
        assert "there is no prompt; type one in quotes" in typed(f"{command} {word}", place).stderr
    assert "the name of the model is empty" in typed("akunu generate '' Hi", place).stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("akunu generate Hi -temp 1", "-temp here: type --temp."),
        ("akunu -seed=3 -p Hi", "-seed here: type --seed."),
        ("akunu chat -help", "-help here: type --help."),
        ("akunu models list -json", "-json here: type --json."),
    ],
)
def test_a_long_option_with_one_dash(line, told, place):
    said = typed(line, place)
    assert (said.exit_code, said.stderr.endswith(f"There is no {told}\n")) == (2, True)
    assert "There is no -" not in typed("akunu generate --raw -n3 -t0 -- -temp", place).stderr


def test_a_model_given_twice_and_a_prompt_given_twice(tiny_gguf):
    for arguments in (
        ["chat", "a.gguf", "-m", "b.gguf"],
        ["generate", "-m", "a", "x y", "-p", "z"],
    ):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 2
        assert "is given twice, as " in result.stderr


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("temp", "temperature", 0.7), ("num_predict", "max_tokens", 9), ("repeat-penalty", "repetition_penalty", 1.5)],
)  # fmt: skip
def test_set_takes_names_of_other_programs(name, field, value):
    assert getattr(with_field(CHAT_DEFAULT, name, str(value)), field) == value


def test_no_two_options_share_a_name():
    names = [name for one in options_of(GenerationConfig) for name in (one.name, *one.also)]
    assert len(names) == len(set(names))
