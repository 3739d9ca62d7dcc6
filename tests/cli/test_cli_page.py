"""What the commands say of themselves is enough."""

import click
import pytest

from akunu_py.cli.command_settings import leaves
from akunu_py.cli.main import cli

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
