"""`akunu bench recorded`: passes forced to recorded replies, and models with random weights."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from akunu_lab.random_models import build_random_model
from akunu_py import ConfigError, Engine
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.speed import BASELINE
from akunu_py.cli.main import cli
from akunu_py.models.load import load_model


@pytest.fixture(scope="module")
def loaded(tiny_gguf):
    return load_model(tiny_gguf)


def test_random_models_are_the_same_each_time(loaded):
    first, second = (build_random_model("llama-tiny", loaded.tokenizer) for _ in range(2))
    with first, second:
        logits = first.logits([3, 4, 5])
        assert np.array_equal(logits, second.logits([3, 4, 5]))
        assert np.isfinite(logits).all()
        assert (first.description.weights, first.context) == ("dense", 8192)
    with pytest.raises(ConfigError, match="no random model named 'llama-1t'"):
        build_random_model("llama-1t", loaded.tokenizer)


def command(*arguments):
    result = CliRunner().invoke(cli, ["bench", "recorded", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "edits.jsonl"
    text = "def read(path):\n    return path.read_text()\n" * 20
    items = [
        {"id": "short", "category": "c", "prompt": "x", "output": "y"},
        {"id": "long", "category": "c", "prompt": text * 9, "output": text},
        {"id": "good", "category": "c", "prompt": text, "output": text},
    ]
    path.write_text("\n".join(map(json.dumps, items)))
    return path


@pytest.mark.slow
def test_the_command_with_a_random_model_and_a_trace(trace, monkeypatch):
    # What passes cost is measured once, not five times.
    tune = Engine.tune
    monkeypatch.setattr(Engine, "tune", lambda engine, ids, **_: tune(engine, ids, repeats=1))
    options = [trace, "--random-model", "llama-tiny", "--max-tokens", 16]
    code, output = command(*options, "--json", "--drafter", "ngram")
    assert code == 0
    # A curve measured on a busy machine may be doubted below.
    result = BenchResult.parse(next(line for line in output.splitlines() if line.startswith("{")))
    assert result.model.name == "llama-tiny, random weights"
    assert result.model.sha256 == ""
    assert {item["id"] for item in result.items} == {"edits/good by mlx-lm", "edits/good by ngram"}
    fixed = result.deterministic["arms"]
    assert list(fixed) == [BASELINE, "ngram"]
    # Both were forced to the recording.
    assert fixed["ngram"] == fixed[BASELINE]
    assert fixed["ngram"]["identical"] == 1
    assert result.timing["ratios"]["ngram"]["pairs"] == 1
    code, output = command(*options, "--drafter", "none")
    assert "random weights" in output
    assert "forced to recorded replies" in output
    code, output = command(*options, "--max-prompt-tokens", 8)
    assert code == 2
    assert "has no item with at most 8" in output


def test_the_context_is_a_bound(trace, tiny_gguf):
    code, output = command(trace, "--model", tiny_gguf, "--context", 9999)
    assert code == 2
    assert "--context is 9999; this model allows 2 to" in output
    code, output = command(trace, "--model", tiny_gguf, "--context", 40)
    assert code == 2
    assert "the context holds 40, 97 of the reply included" in " ".join(output.split())


def test_models_are_given_by_their_names(trace, tiny_gguf, hub_cache):
    CliRunner().invoke(cli, ["models", "alias", "tiny", str(tiny_gguf)], catch_exceptions=False)
    options = [trace, "--max-prompt-tokens", 8]
    # What is asked for last is the trace: both models were found and loaded.
    code, output = command("--model", "tiny", "--draft-model", "tiny", *options)
    assert (code, "has no item with at most 8" in " ".join(output.split())) == (2, True)
    for arguments in (["--model", "tiny2"], ["--model", "tiny", "--draft-model", "tiny2"]):
        code, output = command(*arguments, *options)
        assert code == 2
        assert "Did you mean tiny?" in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "m.gguf", "--random-model", "llama-135m"], "either --model or"),
        (["--tokenizer", "x.gguf"], "goes with --random-model"),
        (["--random-model", "llama-9"], "no random model"),
        (["--random-model", "llama-tiny", "--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--random-model", "llama-tiny", "--reproducible"], "--reproducible has no counterpart"),
        (["--random-model", "llama-tiny", "--context", "64"], "leave it out"),
        ([], "absent.jsonl cannot be read"),
    ],
)
def test_mistakes_of_the_caller(arguments, words):
    code, output = command("absent.jsonl", *arguments)
    assert code == 2
    assert words in " ".join(output.split())
