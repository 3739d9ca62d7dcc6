"""What --help shows, nothing cut; and every example there and in README.md is one that akunu takes."""

import contextlib
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_help import words_left
from pty_child import PtyChild

from akunu_py.cli import group
from akunu_py.cli.command import HEADINGS, SETTINGS, Command, DraftOption, Setting
from akunu_py.cli.command_settings import leaves
from akunu_py.cli.declared_options import is_offered
from akunu_py.cli.main import cli
from akunu_py.model_store.known_models import default_model_path
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.option_fields import options_of

CONTEXT = click.Context(cli, info_name="akunu")
COMMANDS = dict(leaves(cli, CONTEXT))


def shown(*arguments):
    result = CliRunner().invoke(cli, arguments, terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output


def groups(text):
    """Return the options of each group of a help text by its heading."""
    found = {}
    for heading, body in re.findall(r"^(\w+):\n((?:  .*\n?)+)", text, re.MULTILINE):
        found[heading] = re.findall(r"^  (?:-\w, )?--([\w-]+)", body, re.MULTILINE)
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_at_most_40_options_and_80_lines_of_help(words):
    """What is rarer is a setting; options that drafters declare come on top of them."""
    command, text = COMMANDS[words], shown(*words, "--help")
    options = command.get_params(click.Context(command, CONTEXT, words[-1]))
    own = [
        one for one in options if isinstance(one, click.Option) and not isinstance(one, DraftOption)
    ]
    assert len(own) <= 40
    if words == ("chat",):
        assert len(text.splitlines()) <= 80


def test_each_option_of_a_reply_is_in_the_group_of_its_declaration():
    few, everything = shown("chat", "--help"), shown("chat", "--help-all")
    flags, settings = groups(everything), everything.partition(SETTINGS)[2]
    for declared in filter(is_offered, options_of(GenerationConfig)):
        name = declared.name.replace("_", "-")
        if declared.setting:
            assert f"\n  {name} " in settings
            assert f" {name} " not in few
        else:
            assert name in flags[declared.heading or "Options"]
            assert (f"--{name} " in few) == (not declared.rare), name


def test_what_is_a_setting_says_so():
    """In the words that were typed, for every setting of every command."""
    for words, command in COMMANDS.items():
        for setting in (one for one in command.params if isinstance(one, Setting)):
            said = CliRunner().invoke(cli, [*words, f"--{setting.key}=a b"]).output
            said = " ".join(said.split())
            assert f"--{setting.key} is a setting: type akunu config set {setting.key} " in said
            assert setting.type is click.BOOL or "'a b', or put AKUNU_" in said


@pytest.mark.parametrize(
    ("typed", "value"),
    [("--stop-loops", "true"), ("--no-stop-loops", "false"), ("--stop-loops false", "false")],
)
def test_a_switch_that_is_a_setting_has_the_value_that_was_typed(typed, value):
    said = CliRunner().invoke(cli, ["generate", *typed.split()]).output
    assert f"AKUNU_STOP_LOOPS={value} " in said


@pytest.mark.lab
@pytest.mark.parametrize("words", [(), ("bench",), ("config",), ("counts",), ("models",)])
def test_no_summary_is_cut(words):
    text = shown(*words, "--help")
    assert "..." not in text.partition("Commands:")[2]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_one_of_akunus(words):
    """Without them `-q` behind the command, groups and --help-all are missing."""
    assert isinstance(COMMANDS[words], Command)
    assert isinstance(cli, Command)


@pytest.mark.slow
def test_help_on_a_terminal_of_80_columns(tmp_path):
    with PtyChild("generate", "--help", home=tmp_path) as child:
        before = child.until("--thinking")
    lines = before.splitlines()
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert len(headings) == len(HEADINGS[:-1])


def test_verbosity_on_either_side_of_the_command(tiny_gguf):
    call = ["generate", str(tiny_gguf), "-p", "x", "-n", "1"]
    for before, behind, says in ((["-v"], [], True), ([], ["-v"], True), ([], [], False)):
        result = CliRunner().invoke(cli, [*before, *call, *behind])
        assert result.exit_code == 0
        assert ("akunu: " in result.stderr) == says
    assert "either" in CliRunner().invoke(cli, ["-q", *call, "-v"]).stderr


def test_plug_ins_are_those_that_python_finds():
    assert group.commands() == {
        point.name: point.value for point in entry_points(group="akunu.commands")
    }


def test_what_is_no_entry_point_is_passed_over(tmp_path, monkeypatch):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_bytes(
        b"[console_scripts]\nx = a:b\n\n[akunu.commands]\n# y = a:b\nz = a.b:c [extra]\nbad\n\xff\n"
    )
    monkeypatch.setattr("sys.path", [str(tmp_path), str(tmp_path / "none")])
    assert group.commands() == {"z": "a.b:c"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_and_every_option_says_what_it_does(words):
    command = COMMANDS[words]
    assert "Examples:\n" in command.help
    assert f"akunu {' '.join(words)}" in command.help.split("Examples:\n")[1]
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts


README = Path(__file__).resolve().parents[2] / "README.md"
PLACEHOLDER = "COMMAND"
ENDS = {"|", "&&", ">", ">>", ";"}
CHEAP = (
    "config path", "config show", "completion", "counts", "generate", "models list",
    "models path", "models alias", "models show", "doctor --no-self-test",
)  # fmt: skip


def pages(command, context, words=()):
    yield words, command.help
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from pages(command.get_command(context, name), context, (*words, name))


def help_lines():
    for _, text in pages(cli, click.Context(cli)):
        _, _, block = text.partition("Examples:\n")
        for line in block.split("\n\n")[0].splitlines():
            yield line.strip()


def readme_lines():
    for line in README.read_text(encoding="utf-8").splitlines():
        if line.startswith("    ") and "akunu" in line:
            yield line.strip()


def calls(line):
    """Yield the arguments of each call of akunu in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = [[]]
    for word in lexer:
        if word in ENDS:
            words.append([])
        else:
            words[-1].append(word)
    for found in words:
        while found and "=" in found[0]:
            del found[0]
        if found and found[0] == "akunu":
            yield found[1:]


EXAMPLES = sorted({
    tuple(call)
    for line in (*help_lines(), *readme_lines())
    for call in calls(line)
    if PLACEHOLDER not in call
})  # fmt: skip


def parse(command, name, arguments, parent=None):
    """Parse as click does, down to the command, without running it."""
    context = command.make_context(name, list(arguments), parent=parent)
    if isinstance(command, click.Group):
        found, below, rest = command.resolve_command(context, words_left(context))
        parse(below, found, rest, context)


def test_there_are_examples():
    assert len(EXAMPLES) > 50


@pytest.mark.lab
@pytest.mark.parametrize("arguments", EXAMPLES, ids=" ".join)
def test_an_example_is_taken(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # --help and --version
    with contextlib.suppress(click.exceptions.Exit):
        parse(cli, "akunu", arguments)


@pytest.mark.fast_every(2)
@pytest.mark.lab
@pytest.mark.parametrize(
    "arguments", [one for one in EXAMPLES if " ".join(one).startswith(CHEAP)], ids=" ".join
)
def test_an_example_works(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.toml").write_text("")
    for name in ("model.gguf", "my-model.gguf"):
        (tmp_path / name).symlink_to(default_model_path())
    (tmp_path / "question.txt").write_text("Who are you?")
    (tmp_path / "questions.jsonl").write_text('{"prompt": "Who are you?"}')
    (tmp_path / "logs.txt").write_text("one line\nanother line\n")
    for name in ("logs.counts", "corpus.counts"):
        if name in arguments and "fit" not in arguments:
            fit = ["counts", "fit", "logs.txt", "--output", name]
            assert CliRunner().invoke(cli, fit).exit_code == 0
    if any("hf:" in word or "OWNER" in word for word in arguments) or "qwen" in arguments:
        pytest.skip("a model on the hub")
    words = [*arguments, *(["--max-tokens", "4"] if arguments[0] == "generate" else [])]
    result = CliRunner().invoke(cli, words, input="")
    assert result.exit_code == 0, result.output
    assert bool(result.output) == (arguments[:3] != ("models", "alias", "mine"))
