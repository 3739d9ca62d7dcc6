"""`--draft-model` as a user meets it."""

import json

import pytest
from click.testing import CliRunner
from gguf_files import write_tiny_llama

from akunu_py.cli.main import cli

# The end-of-generation ids of the tiny vocabulary are never chosen.
ENDLESS = ["--logit-bias", "331=-1e6", "--logit-bias", "335=-1e6", "--max-tokens", "12"]
PROMPT = ["--raw", "-p", "hello world"]


def run(*arguments):
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def reply(*arguments):
    result = run("generate", *arguments, *PROMPT, *ENDLESS, "--draft-budget", "always", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("sampling", [[], ["--temp", "0.8", "--seed", "3"]])
@pytest.mark.parametrize(
    "drafter",
    [
        [],
        ["--draft-temperature", "0.3"],
        pytest.param(["--drafter", "draft-model-ngram"], marks=pytest.mark.lab),
    ],
)
def test_a_reply_with_a_draft_model_is_the_same_reply(tiny_gguf, sampling, drafter):
    plain = reply(tiny_gguf, *sampling, "--drafter", "none")
    drafted = reply(tiny_gguf, "--draft-model", tiny_gguf, *sampling, *drafter)
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["exactness"] == "stream"
    assert drafted["stats"]["drafted"] > 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--drafter", "draft-model"], "there is no draft model to ask"),
        (["--draft-model", "nowhere.gguf"], "there is no model named nowhere.gguf"),
        (["--draft-temperature", "-1"], "--draft-temperature is -1"),
        (["--draft-sampling", "both"], "Invalid value for '--draft-sampling'"),
    ],
)
def test_what_is_wrong_is_said(tiny_gguf, options, words):
    result = run("generate", tiny_gguf, *options, *PROMPT)
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output


def test_another_vocabulary(tiny_gguf, tmp_path):
    other = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm")
    result = run("generate", tiny_gguf, "--draft-model", other, *PROMPT)
    assert result.exit_code != 0
    assert "the draft model has another vocabulary: id 0 is" in result.output


def test_chat_takes_one_too(tiny_gguf):
    result = CliRunner().invoke(
        cli, ["chat", str(tiny_gguf), "--draft-model", str(tiny_gguf), *ENDLESS], input="hello\n"
    )
    assert result.exit_code == 0, result.output
