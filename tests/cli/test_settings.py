"""Where options come from: flag, variable, file, default; and what is said of wrong ones."""

import json
import logging
import os
import sys

import click
import pytest
from click.testing import CliRunner

from akunu_py.cli import verbosity
from akunu_py.cli.group import CommandGroup, RootGroup
from akunu_py.cli.main import cli
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import config_path, load_settings


@click.group(cls=RootGroup)
@click.option("-v", "--verbose", is_flag=True)
@click.option("-q", "--quiet", is_flag=True)
@click.pass_context
def toy(context, **_options):
    """A root with the options of akunu's and commands that print what they got."""
    verbosity.set_up_logging(context)


@toy.command()
@click.argument("model", required=False)
@click.option("--temperature", "--temp", type=float, default=0.0)
@click.option("--top-k", type=int, default=1)
@click.option("--style", type=click.Choice(["short", "long"]))
@click.option("--stop", multiple=True)
@click.option("--path", type=click.Path())
@click.option("--json", "as_json", is_flag=True)
@click.option("--adjust/--no-adjust", default=True)
def chat(**options):
    click.echo(json.dumps({**options, "quiet": verbosity.is_quiet()}))


@toy.group(cls=CommandGroup)
def bench():
    pass


@bench.command()
@click.argument("model")
@click.option("--temperature", type=float, multiple=True, default=(0.5,))
def alpha(**options):
    click.echo(json.dumps(options))


def run(*arguments, code=0, root=toy, **variables):
    result = CliRunner().invoke(root, list(arguments), env=variables)
    assert result.exit_code == code, result.output
    return result


def values(*arguments, **variables):
    return json.loads(run(*arguments, **variables).stdout)


def test_a_flag_before_a_variable_before_the_file_before_the_default(config):
    assert values("chat")["temperature"] == 0.0
    config.write_text("temperature = 0.1\n")
    assert values("chat")["temperature"] == 0.1
    config.write_text("temperature = 0.1\n[chat]\ntemperature = 0.2\n")
    assert values("chat")["temperature"] == 0.2
    general = {"AKUNU_TEMPERATURE": "0.3"}
    assert values("chat", **general)["temperature"] == 0.3
    own = {**general, "AKUNU_CHAT_TEMPERATURE": "0.4"}
    assert values("chat", **own)["temperature"] == 0.4
    assert values("chat", "--temp", "0.5", **own)["temperature"] == 0.5
    assert values("chat", AKUNU_TEMPERATURE="")["temperature"] == 0.2


def given(kind, source, value):
    """Return flags, variables and lines of a file that give a value."""
    if source == "flag":
        if isinstance(value, bool):
            return [f"--{'' if value else 'no-'}{kind}"], {}, ""
        return [f"--{kind}={one}" for one in (value if kind == "stop" else [value])], {}, ""
    if "variable" in source:
        name = f"AKUNU_{'CHAT_' * (source == 'own variable')}{kind}".upper().replace("-", "_")
        return [], {name: " ".join(value) if kind == "stop" else str(value)}, ""
    line = f"{kind} = {json.dumps(value)}\n"
    return [], {}, line if source == "top" else f"[chat]\n{line}"


def test_a_variable_that_sets_nothing_is_a_warning():
    """Not an error: it may be another program's."""
    result = run("chat", AKUNU_TEMPERTURE="1", AKUNU_ZZZZZZ="1")
    assert result.stderr == (
        "Warning: AKUNU_TEMPERTURE sets nothing. Did you mean AKUNU_TEMPERATURE?\n"
        "Warning: AKUNU_ZZZZZZ sets nothing.\n"
    )
    assert json.loads(result.stdout)["temperature"] == 0.0
    assert run("--quiet", "chat", AKUNU_TEMPERTURE="1").stderr == ""
    # That of another command is one.
    assert run("chat", AKUNU_BENCH_ALPHA_TEMPERATURE="1", AKUNU_MODEL="m").stderr == ""


def test_verbosity(config):
    assert values("--quiet", "chat")["quiet"]
    assert values("chat", "--quiet")["quiet"]
    assert values("bench", "alpha", "m", "-q")
    assert values("chat", AKUNU_QUIET="1")["quiet"]
    config.write_text("quiet = true\n")
    assert values("chat")["quiet"]
    assert logging.getLogger("akunu_py").level == logging.ERROR
    assert not values("chat", "-v")["quiet"]
    assert not values("-v", "chat")["quiet"]
    assert logging.getLogger("akunu_py").level == logging.INFO
    config.write_text("")
    values("chat")
    assert logging.getLogger("akunu_py").level == logging.WARNING
    assert len(logging.getLogger("akunu_py").handlers) == 1
    for arguments in (("-q", "-v", "chat"), ("-q", "chat", "-v"), ("chat", "-q", "-v")):
        assert "either --quiet or --verbose" in run(*arguments, code=2).output


@pytest.mark.lab
@pytest.mark.parametrize("content", ["lenience = 0.5", "[generate]\nlenience = 0.5", None])
def test_options_of_verifiers_are_settings_too(tiny_gguf, config, content):
    """Also where warnings are not wanted: what they would warn of is looked for."""
    config.write_text(content or "")
    variables = {} if content else {"AKUNU_LENIENCE": "0.5"}
    words = ("-q", "generate", str(tiny_gguf), "-p", "x", "--max-tokens", "2", "--json")
    record = json.loads(run(*words, root=cli, **variables).stdout)
    assert record["stats"]["exactness"] == "none"


@pytest.mark.lab
def test_quiet(tiny_gguf):
    """Statistics and warnings are not shown; what is asked for, and errors, are."""
    arguments = ["chat", str(tiny_gguf), "--max-tokens", "2", "--lenience", "0.5"]
    loud = CliRunner().invoke(cli, arguments, input="hello\n/stats\n")
    assert "tokens/s" in loud.output
    assert "Warning: replies are not exact" in loud.output
    quiet = CliRunner().invoke(cli, ["-q", *arguments], input="hello\n/stats\n/nonsense\n")
    assert "tokens/s" not in quiet.output.partition("last reply: ")[0]
    assert "Warning" not in quiet.output
    assert "1 repl" in quiet.output
    assert "/nonsense" in quiet.output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("temprature = 1", "temprature is not an option of any command. Did you mean temperature?"),
        ("zzzzz = 1", "zzzzz is not an option of any command.\n"),
        ("[chatt]\nstop = []", "no command for the table [chatt]. Did you mean chat?"),
        ("[bench.alfa]\nx = 1", "[bench.alfa]. Did you mean alpha?"),
        ("[chat]\ntop-kk = 1", "[chat] top-kk is not an option of akunu chat. Did you mean top-k?"),
        ("[chat]\ntop-k = 1.5", "[chat] top-k is 1.5; give a whole number"),
        ("[chat]\ntop-k = true", "[chat] top-k is true; give a whole number"),
        ("[chat]\njson = 1", "[chat] json is 1; give true or false"),
        ("[chat]\nstyle = 3", "[chat] style is 3; give a text"),
        ("[chat]\nstyle = 'big'", "'big' is not one of"),
        ("[chat]\nstop = [1]", "[chat] stop is 1; give a text"),
        ("temperature = 'hot'", "temperature is 'hot'; give a number"),
        ("[chat.more]\nx = 1", "[chat] more is not an option"),
        ("[chat]\ntop-k = 1\ntop_k = 2", "top-k twice"),
        ("model = 3", "model is 3"),
        ("model-folders = 'x'", "give a list of folders"),
        ('[chat]\npath = "a\\u0000b"', "[chat] path is 'a\\x00b'"),
        ("a =", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_name(config, content, words):
    config.write_text(content)
    output = run("chat", code=2).output
    assert str(config) in output
    assert words in output
    assert "Usage: " in run("chat", "--help").output


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    def message(path):
        monkeypatch.setenv("AKUNU_CONFIG", str(path))
        return run("chat", code=2).output

    assert "does not exist" in message(tmp_path / "missing.toml")
    assert "it is a folder" in message(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in message(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in message(tmp_path / "loop")
    (tmp_path / "latin").write_bytes(b"# caf\xe9")
    assert "not UTF-8" in message(tmp_path / "latin")
    (tmp_path / "large").write_bytes(b"#" * (2**20 + 1))
    assert "larger than 1 MB" in message(tmp_path / "large")


def test_where_the_file_is(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CONFIG", "~/x.toml")
    assert config_path().name == "x.toml"
    assert config_path().is_absolute()
    monkeypatch.delenv("AKUNU_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_path().name == "config.toml"
    assert "akunu" in config_path().parts
    if sys.platform == "linux":
        assert config_path() == tmp_path / "akunu" / "config.toml"
    assert not load_settings().found
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "given.toml")


def test_a_wrong_variable_is_named(config):
    assert "AKUNU_CHAT_TOP_K says so" in run("chat", code=2, AKUNU_CHAT_TOP_K="many").output
    assert "says so" not in run("chat", "--top-k", "many", code=2, AKUNU_TOP_K="1").output
