"""What the commands say of themselves is enough, and one page has all of it."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from akunu_py.cli.command_settings import leaves
from akunu_py.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = click.Context(cli, info_name="akunu")
COMMANDS = dict(leaves(cli, CONTEXT))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_and_every_option_says_what_it_does(words):
    command = COMMANDS[words]
    assert "Examples:\n" in command.help
    assert f"akunu {' '.join(words)}" in command.help.split("Examples:\n")[1]
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts


@pytest.mark.lab
def test_the_page_of_all_help_has_every_command_and_the_exit_codes():
    script = ROOT / "scripts" / "describe_cli.py"
    page = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, encoding="utf-8"
    ).stdout
    for words in COMMANDS:
        assert f"# akunu {' '.join(words)}\n" in page
    for code in ("    0 ", "    1 ", "    2 ", "    130 ", "    141 "):
        assert code in page
