"""Flags of a reply's options: all of them, with the declared defaults, named so in messages."""

import click
import pytest
from click.testing import CliRunner

from akunu_py.cli.chat.set_values import CHAT_DEFAULT
from akunu_py.cli.reply_options import generation_options, in_flags
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.option_fields import options_of


def command_named(name, function=lambda config: click.echo(repr(config))):
    return click.command(name)(generation_options(function))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("serve", GenerationConfig()), ("generate", CHAT_DEFAULT), ("chat", CHAT_DEFAULT)],
)
def test_without_flags_every_option_is_at_its_default(name, expected):
    result = CliRunner().invoke(command_named(name), catch_exceptions=False)
    assert result.stdout == f"{expected!r}\n"


def test_every_option_has_a_flag_but_a_few():
    """The chat alone sets the window of penalties; a constraint has a flag for each of its kinds.

    Log probabilities, variables of templates and ends that are held are for programs.
    """
    names = {parameter.name for parameter in command_named("generate").params}
    assert {one.name for one in options_of(GenerationConfig)} - names == {
        "penalty_window",
        "draft_options",
        "constraint",
        "logprobs",
        "template_variables",
        "min_tokens",
        "ignore_eos",
        "logits_processors",
        "sampler",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("top_p is 2.0; give 1", "--top-p is 2.0; give 1"),
        ("temperature is nan; give 0", "--temperature is nan; give 0"),
        ("the drafter 'x' has no stop_loops", "the drafter 'x' has no stop-loops"),
        ("a token id in logit_bias is -1", "a token id in logit-bias is -1"),
        # Not options: what a user typed, parts of longer words, words of English.
        ("there is no drafter named 'top_p'", "there is no drafter named 'top_p'"),
        ("/models/top_p/a.gguf is empty", "/models/top_p/a.gguf is empty"),
        ("my_top_p and top_ps", "my_top_p and top_ps"),
        ("give the seed that was drawn", "give the seed that was drawn"),
    ],
)  # fmt: skip
def test_options_are_named_by_their_flags(text, expected):
    assert in_flags(text) == expected


def test_errors_of_the_command_itself_name_flags_too():
    @click.command()
    @generation_options
    def failing(**_):
        raise ConfigError("num_draft_tokens is 9", choices=("8",))

    error = CliRunner().invoke(failing).exception
    assert isinstance(error, ConfigError)
    assert str(error) == "--num-draft-tokens is 9\n  8"
