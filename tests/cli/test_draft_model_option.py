"""`--draft-model` as a user meets it."""

import json

import pytest
from akunu_runs import ENDLESS, run
from gguf_files import write_tiny_llama

SHORT = [*ENDLESS, "--max-tokens", "12"]
PROMPT = ["--raw", "-p", "hello world"]


def reply(*arguments):
    result = run("generate", *arguments, *PROMPT, *SHORT, "AKUNU_DRAFT_BUDGET=always", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("sampling", [[], ["--temp", "0.8", "--seed", "3"]])
@pytest.mark.parametrize(
    "drafter",
    [
        [],
        pytest.param(
            ["--drafter", "draft-model", "--draft-temperature", "0.3"], marks=pytest.mark.lab
        ),
        pytest.param(["--drafter", "draft-model-ngram"], marks=pytest.mark.lab),
    ],
)
def test_a_reply_with_a_draft_model_is_the_same_reply(tiny_gguf, sampling, drafter):
    plain = reply(tiny_gguf, *sampling, "--drafter", "none")
    drafted = reply(tiny_gguf, "--draft-model", tiny_gguf, *sampling, *drafter)
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["exactness"] == "stream"
    assert drafted["stats"]["drafted"] > 5


def test_another_vocabulary(tiny_gguf, tmp_path):
    other = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm")
    result = run("generate", tiny_gguf, "--draft-model", other, *PROMPT)
    assert result.exit_code != 0
    assert "the draft model has another vocabulary: id 0 is" in result.output


def test_chat_takes_one_too(tiny_gguf):
    run("chat", tiny_gguf, "--draft-model", tiny_gguf, *SHORT, input="hello\n", code=0)
