"""What commands keep beyond a run: `--memory` and `--trace-file`."""

import errno
import os
import stat
from unittest.mock import Mock

import pytest
from akunu_runs import ENDLESS, run

from akunu_py.cli.completing import DRAFTERS
from akunu_py.drafting.memory import Memory
from akunu_py.engine.engine import Engine
from akunu_py.system.errors import ConfigError


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_memory_is_kept_in_a_folder(tiny_gguf, tmp_path, command):
    folder = tmp_path / "memory"
    arguments = ["-p", "hello"] if command == "generate" else []
    for _ in range(2):
        words = ["--max-tokens", 8, f"AKUNU_MEMORY={folder}"]
        result = run(command, tiny_gguf, *arguments, *words, input="hello\n")
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
    arguments = ["generate", tiny_gguf, "-p", "hello", "--max-tokens", 4]
    arguments.append(f"AKUNU_MEMORY={tmp_path}")
    run(*arguments)
    (file,) = tmp_path.iterdir()
    file.unlink()
    os.mkfifo(file)
    result = run(*arguments)
    assert result.exit_code == 0
    assert f"the memory {file} is ignored: it is not a regular file" in result.stderr


@pytest.mark.parametrize("command", ["chat", "generate", "raw"])
def test_a_full_disk_is_told_after_the_reply(tiny_gguf, tmp_path, monkeypatch, command):
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(Memory, "save", full)
    asked = ["generate", tiny_gguf, "-p", "hello"]
    ways = {"chat": ["chat", tiny_gguf], "generate": asked, "raw": [*asked, "--raw"]}
    arguments = ways[command]
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
