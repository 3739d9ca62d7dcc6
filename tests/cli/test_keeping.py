"""What commands keep beyond a run: `--memory` and `--trace-file`."""

import json

import pytest
from click.testing import CliRunner

from akunu_py.bench.replay.tokens import tokenize
from akunu_py.bench.replay.traces import read_trace
from akunu_py.cli.main import cli
from akunu_py.drafting.registry import BUILT_IN
from akunu_py.engine.engine import Engine

# The end-of-generation ids of the tiny vocabulary are never chosen, so that every reply has text.
ENDLESS = ["--logit-bias", "331=-1e6", "--logit-bias", "335=-1e6"]


def run(*arguments, stdin=None):
    result = CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_generate_traces_and_replay_reads_it(tiny_gguf, tmp_path):
    path = tmp_path / "trace.jsonl"
    outputs = []
    for number in range(3):
        category = [] if number else ["--trace-category", "greeting"]
        result = run(
            "generate", tiny_gguf, "-p", f"hello {number}", "--max-tokens", 30, "--seed", number,
            "--temperature", 1.2, "--trace-file", path, *category,
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
        "chat", tiny_gguf, "--max-tokens", 8, "--trace-file", path, "--temperature", 1.1,
        "--seed", 2, *ENDLESS, stdin=lines,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    items = read_trace(path)
    assert [item.turn for item in items] == [1, 2, 3]
    assert items[0].session == items[1].session != items[2].session
    assert items[1].prompt.startswith(items[0].prompt + items[0].output)
    assert {item.category for item in items} == {"chat"}


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_memory_is_kept_in_a_folder(tiny_gguf, tmp_path, command):
    folder = tmp_path / "memory"
    arguments = ["-p", "hello"] if command == "generate" else []
    for _ in range(2):
        result = run(
            command, tiny_gguf, *arguments, "--max-tokens", 8, "--memory", folder, stdin="hello\n"
        )
        assert result.exit_code == 0, result.output
    (file,) = folder.iterdir()
    assert file.name.startswith("memory-")


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_places_that_cannot_be_are_named_before_a_reply(tiny_gguf, tmp_path, command):
    for option, words in (("--trace-file", "there is no folder"), ("--memory", "is a file")):
        path = tmp_path / "no" / "t.jsonl" if option == "--trace-file" else tiny_gguf
        result = run(command, "nowhere.gguf", option, path, stdin="hello\n")
        assert result.exit_code == 2
        assert words in result.output
    result = run("generate", "nowhere.gguf", "-p", "x", "--trace-category", "")
    assert "--trace-category is empty" in result.output


@pytest.mark.parametrize("command", [["chat"], ["generate"], ["bench", "hit-rate"]])
def test_the_help_names_every_drafter(command):
    text = run(*command, "--help").output
    start = text.index("--drafter")
    said = text[start : start + 400]
    for name in BUILT_IN:
        assert name in said


def test_a_trace_file_that_cannot_be_opened_is_named_before_the_reply(tmp_path):
    result = run("generate", "nowhere.gguf", "-p", "a", "--trace-file", tmp_path / ("n" * 300))
    assert result.exit_code == 2
    assert "cannot be written" in result.output
