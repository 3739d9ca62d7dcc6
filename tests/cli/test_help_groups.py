"""What --help shows: examples, options in groups, nothing cut, rare ones in --help-all alone."""

import re
from importlib.metadata import entry_points

import click
import pytest
from click.testing import CliRunner
from pty_child import PtyChild

from akunu_py.cli import group
from akunu_py.cli.command import HEADINGS, SETTINGS, Command, DraftOption, Setting
from akunu_py.cli.command_settings import leaves
from akunu_py.cli.declared_options import is_offered
from akunu_py.cli.main import cli
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
