"""`--draft-sampling`, `--lenience` and `--no-adjust`: "not exact" wherever such a reply is reported."""

import json

import pytest
from akunu_runs import with_variables
from click.testing import CliRunner

from akunu_py.cli.main import cli

ENDLESS = ["AKUNU_LOGIT_BIAS=331=-1e6 335=-1e6", "--max-tokens", "12"]


SAMPLED = ["--temp", "0.8", "--seed", "3", "--draft-sampling", "rejection"]


INEXACT = [["--lenience", "0.3"], [*SAMPLED, "--lenience", "0.3"], [*SAMPLED, "--no-adjust"]]


EXACT = [[], SAMPLED, [*SAMPLED, "--adjust", "--lenience", "1"]]


def generate(model, *options):
    arguments = ["generate", str(model), "--raw", "-p", "hello world", *ENDLESS, *options]
    words, variables = with_variables(arguments)
    result = CliRunner().invoke(cli, words, env=variables)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def warnings(result):
    return [line for line in result.stderr.splitlines() if "not exact" in line]


@pytest.mark.parametrize("options", INEXACT)
def test_a_reply_that_is_not_exact_says_so_everywhere(tiny_gguf, tmp_path, options):
    path = tmp_path / "trace.jsonl"
    shown = generate(tiny_gguf, *options, f"AKUNU_TRACE_FILE={path}")
    assert shown.exit_code == 0, shown.output
    assert len(warnings(shown)) == 1
    assert json.loads(path.read_text("utf-8"))["decoding"].endswith(", not exact")
    as_json = generate(tiny_gguf, *options, "--json")
    assert len(warnings(as_json)) == 1
    assert json.loads(as_json.stdout)["stats"]["exactness"] == "none"
    plain = generate(tiny_gguf, *options)
    assert "not exact" not in plain.stdout
    assert len(warnings(plain)) == 1


@pytest.mark.parametrize("options", EXACT)
def test_one_that_is_exact_does_not(tiny_gguf, tmp_path, options):
    path = tmp_path / "trace.jsonl"
    shown = generate(tiny_gguf, *options, f"AKUNU_TRACE_FILE={path}")
    assert shown.exit_code == 0, shown.output
    assert "not exact" not in shown.output + path.read_text("utf-8")


@pytest.mark.parametrize(("options", "times"), [(INEXACT[0], 4), ([], 0)])
def test_chat_says_it_with_each_reply_and_in_its_statistics(tiny_gguf, options, times):
    words, variables = with_variables(["chat", tiny_gguf, *ENDLESS, *options])
    result = CliRunner().invoke(cli, words, env=variables, input="hello\n/stats\n")
    assert result.exit_code == 0, result.output
    assert len(warnings(result)) == times


def test_rejection_is_said(tiny_gguf):
    options = ["--draft-model", tiny_gguf, *SAMPLED, "AKUNU_DRAFT_BUDGET=always", "--json"]
    found = json.loads(generate(tiny_gguf, *options).stdout)
    assert found["stats"]["exactness"] == "distribution"
    assert found["stats"]["drafted"] > 5
