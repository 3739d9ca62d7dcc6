"""What commands keep beyond a run: `--memory` and `--trace-file`."""

import errno
import json
import os
import stat

import pytest
from akunu_runs import ENDLESS, run

from akunu_py.cli.completing import DRAFTERS
from akunu_py.drafting.memory import Memory
from akunu_py.engine.engine import Engine
from akunu_py.system.errors import ConfigError


@pytest.mark.lab
def test_generate_traces_and_replay_reads_it(tiny_gguf, tmp_path):
    from akunu_lab.replay.tokens import tokenize
    from akunu_lab.replay.traces import read_trace

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


@pytest.mark.lab
def test_chat_traces_conversations(tiny_gguf, tmp_path):
    from akunu_lab.replay.traces import read_trace

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


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_memory_is_kept_in_a_folder(tiny_gguf, tmp_path, command):
    folder = tmp_path / "memory"
    arguments = ["-p", "hello"] if command == "generate" else []
    for _ in range(2):
        result = run(
            command,
            tiny_gguf,
            *arguments,
            "--max-tokens",
            8,
            f"AKUNU_MEMORY={folder}",
            input="hello\n",
        )
        assert result.exit_code == 0, result.output
    (file,) = folder.iterdir()
    assert file.name.startswith("memory-")


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_places_that_cannot_be_are_named_before_a_reply(tiny_gguf, tmp_path, command):
    for option, words in (("AKUNU_TRACE_FILE", "does not exist"), ("AKUNU_MEMORY", "is a file")):
        path = tmp_path / "no" / "t.jsonl" if option == "AKUNU_TRACE_FILE" else tiny_gguf
        result = run(command, "nowhere.gguf", f"{option}={path}", input="hello\n")
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.parametrize("command", [["chat"], ["generate"], ["bench", "hit-rate"]])
def test_the_help_names_every_drafter(command):
    text = run(*command, "--help").output
    start = text.index("--drafter")
    said = text[start : start + 400]
    for name in DRAFTERS:
        assert name in said


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_trace_file_is_its_owner_s_from_the_beginning(tiny_gguf, tmp_path, command):
    """Also where nothing is written into it."""
    arguments = ["-p", "hello"] if command == "generate" else []
    before = os.umask(0o022)
    try:
        run("generate", "nowhere.gguf", "-p", "a", f"AKUNU_TRACE_FILE={tmp_path}/empty.jsonl")
        run(
            command, tiny_gguf, *arguments, "--max-tokens", 8, *ENDLESS,
            f"AKUNU_TRACE_FILE={tmp_path}/full.jsonl", input="hello\n",
        )  # fmt: skip
    finally:
        os.umask(before)
    assert (tmp_path / "full.jsonl").stat().st_size > 0
    for name in ("empty", "full"):
        assert stat.S_IMODE((tmp_path / f"{name}.jsonl").stat().st_mode) == 0o600


def test_a_pipe_as_trace_file_is_refused(tiny_gguf, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = run("generate", tiny_gguf, "-p", "a", f"AKUNU_TRACE_FILE={tmp_path}/pipe")
    assert result.exit_code == 2
    assert "it is not a regular file" in result.stderr
    engine = Engine.load(tiny_gguf)
    reply = engine.stream("hello", max_tokens=4)
    list(reply)
    with pytest.raises(ConfigError, match="it is not a regular file"):
        engine.append_trace(tmp_path / "pipe", reply)
    engine.close()


def test_a_pipe_as_memory_file_is_passed_over(tiny_gguf, tmp_path):
    arguments = [
        "generate",
        tiny_gguf,
        "-p",
        "hello",
        "--max-tokens",
        4,
        f"AKUNU_MEMORY={tmp_path}",
    ]
    run(*arguments)
    (file,) = tmp_path.iterdir()
    file.unlink()
    os.mkfifo(file)
    result = run(*arguments)
    assert result.exit_code == 0
    assert f"the memory {file} is ignored: it is not a regular file" in result.stderr


@pytest.mark.parametrize("command", ["chat", "generate", "raw"])
def test_a_full_disk_is_told_after_the_reply(tiny_gguf, tmp_path, monkeypatch, command):
    def full(_memory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Memory, "save", full)
    arguments = {
        "chat": ["chat", tiny_gguf],
        "generate": ["generate", tiny_gguf, "-p", "hello"],
        "raw": ["generate", tiny_gguf, "-p", "hello", "--raw"],
    }[command]
    result = run(
        *arguments, "--max-tokens", 8, *ENDLESS, f"AKUNU_MEMORY={tmp_path}/m", input="hello\n"
    )
    assert result.exit_code == 0
    reply, mark, rest = result.output.partition("akunu: the memory ")
    assert mark
    assert len(reply) > 1
    assert reply.endswith("\n")
    assert "No space left on device); it is kept in RAM until the end\n" in rest
    assert result.stdout == reply or command == "chat"
    assert "akunu:" not in result.stdout
