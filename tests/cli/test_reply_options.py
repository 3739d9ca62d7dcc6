"""Flags of a reply's options and of its form: all of them, with the declared defaults, named so in messages."""

import json

import click
import pytest
from click.testing import CliRunner

from akunu_py.cli.chat.set_values import CHAT_DEFAULT, changed_fields, explain, with_field
from akunu_py.cli.main import cli
from akunu_py.cli.reply_options import generation_options, in_flags
from akunu_py.model_store.known_models import toy_model_path
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


SCHEMA = '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}'


def generate(*arguments):
    base = ["generate", str(toy_model_path()), "-p", "Hello"]
    return CliRunner().invoke(cli, [*base, *arguments])


def test_a_reply_has_the_form_asked_for(tmp_path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "form.lark"
    schema.write_text(SCHEMA)
    grammar.write_text('start: "x" | "y"')
    for given in (str(schema), SCHEMA):
        assert set(json.loads(generate("--json-schema", given).stdout)) == {"a"}
    assert generate("--grammar", str(grammar)).stdout.strip() in ("x", "y")
    assert generate("--regex", "[ab]{2}").stdout.strip() in ("aa", "ab", "ba", "bb")
    assert generate("--choice", "one", "--choice", "two").stdout.strip() in ("one", "two")


def test_a_reply_cut_short_is_a_warning():
    result = generate("--json-schema", SCHEMA, "-n", "2")
    assert result.exit_code == 0
    assert "before it had the form asked for" in result.stderr
    assert "before it had the form asked for" not in generate("--choice", "one").stderr
    record = json.loads(generate("--json-schema", SCHEMA, "-n", "2", "--json").stdout)
    assert record["constraint_met"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json-schema", "{"], "--json-schema is not JSON"),
        (["--json-schema", "nothing.json"], "nothing.json cannot be read"),
        (["--json-schema", ""], "the name of the file is empty"),
        (["--grammar", ""], "the name of the file is empty"),
        (["--json-schema", '{"not": {}}'], "--json-schema: a grammar cannot enforce not"),
        (["--regex", "(a"], "--regex: "),
        (["--regex", "a", "--choice", "b"], "give one of --regex and --choice"),
        (["--choice", ""], "--choice is"),
        (["--grammar", "."], "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_typed(arguments, message):
    result = generate(*arguments)
    assert result.exit_code != 0
    assert message in result.stderr


def test_an_error_within_a_reply_names_the_option(tmp_path):
    grammar = tmp_path / "form.lark"
    grammar.write_text('start: "a" /[x-z]/ NEVER\nNEVER: /[b]/ & /[c]/')
    result = generate("--grammar", str(grammar))
    assert result.exit_code != 0
    assert "--grammar: the reply cannot go on: no token" in result.stderr


def test_the_chat_sets_and_unsets_a_form(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(SCHEMA)
    config = with_field(CHAT_DEFAULT, "json-schema", str(path))
    assert config.constraint.kind == "json_schema"
    assert changed_fields(config)["constraint"].startswith('json_schema {"type"')
    for word in ("default", "off"):
        assert with_field(config, "json-schema", word) == CHAT_DEFAULT
    assert with_field(CHAT_DEFAULT, "choices", "yes | no").constraint.source == '["yes", "no"]'
    assert "json_schema" in explain("none", "json-schema")
    with pytest.raises(ConfigError, match="give a Constraint, or one of json_schema"):
        with_field(CHAT_DEFAULT, "constraint", "x")


@pytest.mark.parametrize("option", ["--json-schema", "--regex", "--grammar", "--choice"])
@pytest.mark.parametrize(
    ("command", "instead"), [("serve", "response_format"), ("chat", "/set json-schema FILE")]
)
def test_commands_without_forms_say_where_to_give_one(command, instead, option):
    result = CliRunner().invoke(cli, [command, option, "a"])
    assert result.exit_code == 2
    assert f"There is no {option} here: " in result.stderr
    assert instead in result.stderr
