"""Whatever a user gives or does: a message and an exit code, never a traceback."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest
from akunu_runs import AKUNU
from click.testing import CliRunner
from gguf_files import write_tiny_llama
from pairwise import each_value
from programs import python

from akunu_py.cli.main import cli
from akunu_py.gguf.header import write_metadata

OPENING = {
    "generate": ["generate", "PATH", "-p", "x"],
    "chat": ["chat", "PATH"],
    "show": ["models", "show", "PATH"],
    "tune": ["tune", "PATH"],
    "convert": ["models", "convert", "PATH", "OUT"],
    "speed": ["bench", "speed", "PATH"],
    "hit-rate": ["bench", "hit-rate", "PATH"],
    "replay": ["bench", "replay", "PATH"],
    "counts": ["counts", "show", "PATH"],
    "draft model": ["generate", "-p", "x", "--draft-model", "PATH"],
    "counts of a corpus": ["generate", "-p", "x", "--drafter", "corpus", "--counts", "PATH"],
}


class StillWaitingError(BaseException):
    """Not an Exception: commands turn those of the system into messages."""


@contextlib.contextmanager
def at_most(seconds):
    """A command that waits for ever fails the test instead."""

    def stop(_number, _frame):
        raise StillWaitingError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(arguments, stdin=None):
    with at_most(120):
        result = CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)
    assert isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (1, 2)
    assert "Error: " in result.stderr
    assert "Traceback" not in result.output
    return result.stderr


def bad_path(kind, folder):
    path = folder / "model.gguf"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "below a file":
        path.write_bytes(b"")
        return path / "deeper"
    elif kind == "long":
        return "x" * 5000
    elif kind == "no text":
        return os.fsdecode(b"\xff\xfe.gguf")
    elif kind == "upwards":
        return "../../../../x"
    elif kind == "unknown user":
        return "~nobody-of-this-name/model.gguf"
    return path


KINDS = [
    "missing", "directory", "pipe", "loop", "empty", "below a file", "long", "no text", "upwards",
    "unknown user",
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "kind"),
    # A trace may come from a pipe, as from <(command).
    [pair for pair in each_value(list(OPENING), KINDS) if pair.values != ("replay", "pipe")],
)
def test_paths_that_are_no_model(command, kind, tmp_path):
    places = {"PATH": bad_path(kind, tmp_path), "OUT": tmp_path / "out"}
    refused([places.get(word, word) for word in OPENING[command]])
    assert not (tmp_path / "out").exists()


@contextlib.contextmanager
def without_rights():
    """For root, who may read everything: as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", OPENING)
def test_a_file_that_may_not_be_read(command, tmp_path):
    # Imports are not what must not be read.
    refused([{"PATH": tmp_path / "x", "OUT": tmp_path / "y"}.get(w, w) for w in OPENING[command]])
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    tmp_path.chmod(0o755)
    places = {"PATH": path, "OUT": tmp_path / "out"}
    with without_rights():
        refused([places.get(word, word) for word in OPENING[command]])


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "1e400", "hot", ""])
@pytest.mark.parametrize(
    "command",
    [
        ["chat"],
        ["generate", "-p", "x"],
        ["bench", "hit-rate"],
        pytest.param(["bench", "alpha"], marks=pytest.mark.lab),
    ],
    ids=str,
)
def test_a_temperature_that_is_none(command, value):
    assert "temp" in refused([*command, f"--temp={value}"])


def test_a_prompt_that_is_no_text(tiny_gguf, tmp_path):
    assert "not UTF-8" in refused(["generate", tiny_gguf], stdin=b"\xff\xfe")
    assert "cannot be read" in refused(["generate", tiny_gguf, "--file", tmp_path])


ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J.gguf"


@pytest.mark.parametrize(
    "arguments",
    [
        ["models", "show", ESCAPES],
        ["tune", f"--{ESCAPES}"],
        pytest.param(["models", "show", ESCAPES, ESCAPES], marks=pytest.mark.slow),
        pytest.param([ESCAPES], marks=pytest.mark.slow),
    ],
    ids=["file", "option", "too many words", "command"],
)
def test_escape_codes_in_what_was_typed_never_reach_a_terminal(arguments, tmp_path):
    """File names that a shell put in the place of * are the case that is not the user's doing."""
    (tmp_path / ESCAPES).write_bytes(b"GGUF")
    code, seen = in_terminal(arguments, tmp_path)
    assert code in (1, 2)
    assert b"Error: " in seen
    assert b"\x1b" not in seen
    assert b"\x07" not in seen
    assert "\x9b".encode() not in seen


def in_terminal(arguments, folder):
    """Return the exit code and everything a terminal is sent."""
    leader, follower = os.openpty()
    child = subprocess.Popen(
        [*AKUNU, *arguments], stdin=follower, stdout=follower, stderr=follower, cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    os.close(follower)
    seen = b""
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    read = os.read(leader, 65536)
                except OSError:  # Linux says so when the other end is closed
                    break
                if not read:
                    break
                seen += read
        return child.wait(300), seen
    finally:
        child.kill()
        child.wait()
        os.close(leader)


@pytest.mark.parametrize(
    "words",
    [
        [""], ["-"], ["--"], ["--", "chat"], ["-v"], ["-v", "-q"], ["run"], ["run", ""], ["run", "-m"],
        ["help", "nothing"], ["help", "models", "nothing"], ["x" * 5000], ["x" * 5000 + ".gguf"],
        ["a/" * 3000], [os.fsdecode(b"\xff\xfe")], [os.fsdecode(b"\xff words")], ["hf:"], ["\x1b[31m"],
        ["-m"], ["-m", ""], ["-n", "x"], ["-tt"], ["-s"], ["-ngl"], ["-o"], ["--no-such"], ["-vq"],
        ["models", "ls", "x"], ["version", "x"], ["show", "/nowhere"], ["rm"], ["pull"], ["run", "--load"],
    ],
    ids=lambda words: " ".join(words)[:20].encode("ascii", "backslashreplace").decode(),
)  # fmt: skip
def test_first_words_of_any_kind(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with at_most(120):
        result = CliRunner().invoke(cli, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    # `version x` and `help nothing` answer all the same, as --version and --help do.
    assert result.exit_code in (0, 1, 2)
    assert result.output


def test_the_version_is_not_a_commands():
    done = CliRunner().invoke(cli, ["doctor", "--version"], prog_name="akunu")
    assert done.exit_code == 2
    assert "Error: type: akunu --version\n" in done.stderr


def test_as_a_module():
    assert python("-m", "akunu_py", "--version").stdout.startswith("akunu, version")


def shell(script, *words, **options):
    """Run a line of sh in which "$@" is akunu with these words."""
    return subprocess.run(
        ["sh", "-c", script, "sh", *AKUNU, *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_a_folder_that_was_deleted(tiny_gguf, tmp_path):
    """Where no file is named by a relative path, no folder is needed."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = 'rmdir "$PWD" && "$@"'
    done = shell(script, "generate", tiny_gguf, "-p", "hello", "--max-tokens", 1, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_few_open_files(tiny_gguf):
    """mlx-lm asks for more than may be had, and its import ends with a traceback."""
    # root may raise every limit: not more than there are at all.
    script = 'ulimit -n 64; "$@"'
    done = shell(script, "generate", tiny_gguf, "-p", "hello", "--max-tokens", 1)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_empty_path_in_the_settings(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text('[generate]\nmemory = ""\n')
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    assert "the path is empty" in refused(["generate", "-p", "x"])


def test_texts_in_another_encoding(tiny_gguf):
    for option in ("--prompt", "--system"):
        words = ["generate", tiny_gguf, "--prompt", "x", option, os.fsdecode(b"caf\xe9")]
        assert f"{option} is not UTF-8 text (character 3)" in refused(words)
    words = ["generate", tiny_gguf, os.fsdecode(b"caf\xe9")]
    assert "PROMPT is not UTF-8 text (character 3)" in refused(words)
    words = ["chat", tiny_gguf, "--system", os.fsdecode(b"caf\xe9")]
    assert "--system is not UTF-8 text (character 3)" in refused(words, stdin="")


def test_a_mark_of_byte_order_is_no_part_of_a_prompt(tiny_gguf):
    words = ["generate", str(tiny_gguf), "--raw", "--json", "--max-tokens", "1"]
    marked, plain = (
        json.loads(CliRunner().invoke(cli, words, input=text).stdout)
        for text in (b"\xef\xbb\xbfhello", b"hello")
    )
    assert marked["prompt_tokens"] == plain["prompt_tokens"]


HOSTILE = "boom\r\n\x1b[2JError: all is well\u2028\u202eA warning"


@pytest.mark.parametrize(
    "changes",
    [
        {"chat_template": "{{ raise_exception(" + json.dumps(HOSTILE) + ") }}"},
        {"architecture": HOSTILE},
    ],
    ids=["a template that raises", "an architecture"],
)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_model_s_text_is_one_harmless_line_of_an_error(tmp_path, changes, command):
    """No terminal: what is written into a log is shown on one later."""
    path = tmp_path / "tiny.gguf"
    if "architecture" in changes:
        write_metadata(path, {"general.architecture": changes["architecture"]})
    else:
        write_tiny_llama(path, **changes)
    arguments = ["-p", "hi"] if command == "generate" else []
    result = CliRunner().invoke(cli, [command, str(path), *arguments], input="hi\n")
    assert result.exit_code != 0
    lines = [line for line in result.stderr.splitlines() if "all is well" in line]
    assert len(lines) == 1
    assert "boom" in lines[0]
    assert not lines[0].startswith("Error: all")
    assert not {"\x1b", "\r", "\u2028", "\u202e"} & set(result.stderr)
