"""Traces that akunu's commands write: what is in them, and that a replay reads them."""

import json
import re

import pytest
from akunu_runs import ENDLESS, run
from click.testing import CliRunner

from akunu_lab.commands.steps import steps
from akunu_lab.replay.tokens import tokenize
from akunu_lab.replay.traces import read_trace
from akunu_py import Engine


def test_generate_traces_and_replay_reads_it(tiny_gguf, tmp_path):
    path = tmp_path / "trace.jsonl"
    outputs = []
    for number in range(3):
        category = [] if number else ["AKUNU_TRACE_CATEGORY=greeting"]
        result = run(
            "generate", tiny_gguf, "-p", f"hello {number}", "--max-tokens", 30, "--seed", number,
            "--temperature", 1.2, f"AKUNU_TRACE_FILE={path}", *category,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout.removesuffix("\n"))
    items = read_trace(path)
    assert [item.output for item in items] == outputs
    assert [item.category for item in items] == ["greeting", "generate", "generate"]
    assert items[1].prompt == "<|user|>hello 1<|end|><|assistant|>"
    with Engine.load(tiny_gguf) as engine:
        tokenizer = engine.tokenizer
        assert items[1].prompt_ids == tuple(
            tokenizer.encode_chat([{"role": "user", "content": "hello 1"}])
        )
        # The text's own ids, control tokens among them: written out and read again they are others.
        assert tuple(tokenizer.encode(items[1].prompt)) != items[1].prompt_ids
        replayed = tokenize(items, tokenizer)
    for item, read in zip(items, replayed, strict=True):
        assert read.prompt == item.prompt_ids
        assert read.output[: len(item.token_ids)] == item.token_ids
    result = run("bench", "replay", path, "--tokenizer", tiny_gguf, "--drafter", "auto", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert "greeting" in json.dumps(report)


def test_chat_traces_conversations(tiny_gguf, tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = "hello\nworld\n/reset\nhello again\n"
    result = run(
        "chat", tiny_gguf, "--max-tokens", 8, f"AKUNU_TRACE_FILE={path}", "--temperature", 1.1,
        "--seed", 2, *ENDLESS, input=lines,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    items = read_trace(path)
    assert [item.turn for item in items] == [1, 2, 3]
    assert items[0].session == items[1].session != items[2].session
    assert items[1].prompt.startswith(items[0].prompt + items[0].output)
    assert {item.category for item in items} == {"chat"}


@pytest.mark.parametrize(
    "more",
    [["--drafter", "draft-model"], ["--temperature", 1.1, "--draft-sampling", "rejection"]],
)
def test_a_reply_and_its_file(tiny_gguf, tmp_path, more):
    """Both say the same, and the steps put the reply together (which reading the file checks)."""
    path = tmp_path / "trace.jsonl"
    run(
        "generate", tiny_gguf, "-p", "a b a b a b", "--max-tokens", 12, "--seed", 3,
        f"AKUNU_TRACE_FILE={path}", "AKUNU_DRAFT_BUDGET=always", "--num-draft-tokens", 3, "--draft-model", tiny_gguf,
        *more, *ENDLESS, code=0,
    )  # fmt: skip
    read_trace(path)
    (record,) = map(json.loads, path.read_text().splitlines())
    result = CliRunner().invoke(steps, [str(path), "--tokenizer", str(tiny_gguf)])
    assert result.exit_code == 0, result.output
    heads = [line for line in result.stdout.splitlines() if line.startswith("step ")]
    assert len(heads) == len(record["steps"])
    assert [int(re.search(r"position (\d+)", head)[1]) for head in heads] == [
        step["position"] for step in record["steps"]
    ]
    assert len(record["token_ids"]) == 12
    assert record["steps"][0]["position"] == len(record["prompt_ids"])
    drafted = [token for step in record["steps"] for token in step["drafted"]]
    assert drafted
    assert all(("p" in token) == ("rejection" in more) for token in drafted if "accepted" in token)
    assert ("uniform" in result.stdout) == ("rejection" in more)
    assert "another vocabulary" in str(CliRunner().invoke(steps, [str(path)]).exception)
