"""What --help shows: options in groups, nothing cut, rare ones in --help-all alone."""

import re
from importlib.metadata import entry_points

import click
import pytest
from click.testing import CliRunner
from pty_child import PtyChild

from akunu_py.cli import group
from akunu_py.cli.command import HEADINGS, Command
from akunu_py.cli.command_settings import leaves
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


def test_each_option_of_a_reply_is_in_the_group_of_its_declaration():
    few, everything = groups(shown("chat", "--help")), groups(shown("chat", "--help-all"))
    for declared in options_of(GenerationConfig):
        flag = {"adjust_residual": "adjust"}.get(declared.name, declared.name.replace("_", "-"))
        if declared.name not in (
            "penalty_window", "constraint", "logprobs", "template_variables", "min_tokens", "ignore_eos",
            "logits_processors", "sampler",
        ):  # fmt: skip
            heading = declared.heading or "Options"
            assert flag in everything[heading], flag
            assert (flag in few[heading]) == (not declared.rare), flag


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
        before = child.until("--stop-loops")
    lines = before.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.endswith(":") and not line.startswith(" ") for line in lines) == len(HEADINGS)


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
