"""`akunu chat` between pipes: replies on standard output, all else on standard error."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from akunu_runs import AKUNU, ENDLESS, run


def chat(*arguments, lines, code=0):
    result = run("chat", *arguments, input=lines, code=code)
    return result.stdout, result.stderr


@pytest.mark.slow
def test_verbose_says_what_was_prefilled(roomy_gguf):
    lines = "hello world the " * 340 + "\nhello world\n"
    # A process: --verbose stays with a logger.
    result = subprocess.run(
        [*AKUNU, "--verbose", "chat", roomy_gguf, "--max-tokens", "4"],
        env={**os.environ, "AKUNU_LOGIT_BIAS": "298=1e6"},
        input=lines.encode(), capture_output=True, timeout=300, check=True,
    )  # fmt: skip
    replies, notes = result.stdout.decode(), result.stderr.decode()
    found = re.findall(r"prefilled (\d+) of the prompt's (\d+) tokens", notes)
    (first, all_of_first), (second, all_of_second) = [tuple(map(int, pair)) for pair in found]
    assert first == all_of_first > 1000
    assert second < 20
    assert all_of_second > all_of_first
    assert "prefilled" not in replies


def test_a_context_that_fills_up_in_a_reply_and_then_drops_turns(tiny_gguf, tmp_path):
    path = tmp_path / "s.json"
    lines = f"hello\nworld\n/save {path}\n/show\n"
    replies, notes = chat(tiny_gguf, *ENDLESS, "--context", 100, lines=lines.encode())
    assert notes.count("the context of 100 tokens is full: the reply ends here") == 2
    assert "the oldest turn is dropped" in notes
    assert "turns    2, the oldest 1 dropped" in notes
    assert len(json.loads(path.read_text("utf-8"))["turns"]) == 2


def test_a_reply_that_repeats_itself_is_ended(roomy_gguf):
    options = (roomy_gguf, "AKUNU_LOGIT_BIAS=298=1e6", "--max-tokens", 200)
    _, notes = chat(*options, lines="hello\n/show\n/set stop-loops off\n/retry\n/show\n")
    assert notes.count("the reply repeated itself and was ended; /set stop-loops off lets") == 1
    assert "ended: it repeated itself" not in notes
    assert notes.count("ended by the token limit") == 1
    before, after = notes.split("/retry" if "/retry" in notes else "stop_loops off", 1)
    assert "stop_loops" not in before
    for flags, reason in (((), "loop"), (("AKUNU_STOP_LOOPS=false",), "length")):
        result = run("generate", *options, "-p", "hello", "--json", *flags)
        assert json.loads(result.stdout)["finish_reason"] == reason
        assert (
            "repeated itself and was ended; akunu config set stop-loops false" in result.stderr
        ) == (reason == "loop")


def test_a_saved_conversation_is_taken_up(tiny_gguf, tmp_path, monkeypatch):
    path = tmp_path / "s.json"
    monkeypatch.setenv("AKUNU_CHAT_SYSTEM", "be nice")
    chat(tiny_gguf, "--system", "be brief", lines=f"hello\n/save {path}\n")
    replies, notes = chat(tiny_gguf, "--load", path, lines="/show\n/retry\n/save\n")
    assert "turns: 1\n" in notes
    assert "hello" not in notes
    assert "system   be brief" in notes
    assert len(json.loads(path.read_text("utf-8"))["turns"]) == 1
    _, notes = chat(tiny_gguf, "--load", path, "--system", "be long", lines="/show\n")
    assert "system   be long" in notes
    path.write_text("{}")
    # Known before the model is opened.
    (tmp_path / "no-model").touch()
    _, notes = chat(tmp_path / "no-model", "--load", path, lines="", code=2)
    assert "is not a session" in notes


def test_what_fails_is_a_note_and_the_chat_goes_on(tiny_gguf, tmp_path):
    (tmp_path / "bin").write_bytes(b"\0\xff")
    lines = (
        f"/load {tmp_path}\n/file {tmp_path}/bin\n/model {tmp_path}/none.gguf\n/set top_p 7\n"
        "/retry\n/edit\n/draft draft-model\n/set drafter draft-model\nhello\n"
    )
    replies, notes = chat(tiny_gguf, *ENDLESS, "--max-tokens", 3, lines=lines + "a\n", code=1)
    for words in (
        "is a folder", "not UTF-8 text", "none.gguf", "top_p is 7", "nothing has been said yet",
        "/edit needs a terminal",
    ):  # fmt: skip
        assert words in notes
    assert notes.count("draft-model needs a draft model; begin with --draft-model") == 2
    assert notes.count("tokens/s") == 2
    assert len(replies) > 1


def test_a_block_is_no_command(tiny_gguf):
    lines = '"""/help"""\n//help\n'
    replies, notes = chat(tiny_gguf, *ENDLESS, "--max-tokens", 3, lines=lines.encode())
    assert notes.count("tokens/s") == 2
    assert "/undo" not in replies


@pytest.mark.parametrize("lines", ["", "\n \n", "/stats\n", '"""\nhello'])
def test_a_chat_of_little_ends_well(tiny_gguf, lines):
    replies, notes = chat(tiny_gguf, *ENDLESS, "--max-tokens", 3, lines=lines)
    # The end of input ends a block as well.
    assert notes.count("tokens/s") == ("hello" in lines)


def test_one_failed_line_is_an_exit_code(tiny_gguf):
    replies, notes = chat(tiny_gguf, "--max-tokens", 3, lines="/undo\nhello\n", code=1)
    assert "nothing has been said yet" in notes
    assert notes.count("tokens/s") == 1
    # A reply that ends at a bound did not fail.
    chat(tiny_gguf, *ENDLESS, "--context", 60, lines="hello\n/show\n")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child alone")
def test_an_interrupt_ends_a_chat_that_nobody_types(roomy_gguf):
    endless = {**os.environ, "AKUNU_LOGIT_BIAS": "2=-1e6 6=-1e6"}
    with subprocess.Popen(
        [*AKUNU, "chat", roomy_gguf], env=endless,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        # The second line is there already; it is not answered.
        child.stdin.write(b"hello\nhello\n")
        child.stdin.flush()
        assert child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        _, notes = child.communicate(timeout=300)
    assert child.returncode == 130
    assert notes.endswith(b"Interrupted.\n")
    assert b"Traceback" not in notes


@pytest.mark.parametrize(
    ("content", "replies", "byte"), [(b"caf\xe9\n", 0, 3), (b"hello\n" + bytes(range(256)), 2, 134)]
)
def test_bytes_that_are_no_text_are_refused_as_generate_does(tiny_gguf, content, replies, byte):
    """Lines before them are answered."""
    options = ["--max-tokens", 4, *ENDLESS]
    _, notes = chat(tiny_gguf, *options, lines=content, code=2)
    refusal = f"Error: standard input is not UTF-8 text (byte {byte})\n"
    assert notes.endswith(refusal)
    assert notes.count("tokens/s") == replies
    assert run("generate", tiny_gguf, input=content, code=2).stderr.endswith(refusal)


def test_one_conversation_is_gone_on_with(tiny_gguf, tmp_path):
    _, notes = chat(tiny_gguf, "--continue", "--load", tmp_path / "s.json", lines="", code=2)
    assert "give either --continue or --load" in notes


def test_what_is_piped_is_not_kept(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    chat(tiny_gguf, *ENDLESS, "--max-tokens", 3, lines="hello\n")
    assert list(tmp_path.rglob("sessions")) == []
