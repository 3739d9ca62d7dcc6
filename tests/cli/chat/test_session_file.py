"""Saved conversations: what comes back, what is refused, and a kill in the middle."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from programs import python

from akunu_py.cli.chat.attachments import read_attachment, with_attachments
from akunu_py.cli.chat.session_file import (
    FORMAT,
    ChatSession,
    export_markdown,
    load_session,
    save_session,
)
from akunu_py.engine.conversation import Turn
from akunu_py.system.errors import ConfigError

SESSION = ChatSession("a model", "be brief", (Turn("hällo \x1b[31m", "one\ntwo"), Turn("b", "")))


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "s.json")
    save_session(tmp_path / "link", SESSION)
    assert (tmp_path / "link").is_symlink()
    assert load_session(tmp_path / "s.json") == SESSION


def changed(**fields):
    record = {"format": FORMAT, "model": "m", "system": None, "turns": []} | fields
    return json.dumps({name: value for name, value in record.items() if value != "absent"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "Expected object"),
        (changed(format="akunu-chat-2"), "of this version of akunu: Invalid value 'akunu-chat-2'"),
        (changed(format=["akunu-chat-1"]), r"at \$\.format"),
        (b"\xff\xfe\x00{", "not JSON"),
        (changed(model="absent"), "missing required field model"),
        (changed(more=1), "unknown field more"),
        (changed(model=3), r"Expected str, got int - at \$\.model"),
        (changed(system=0), r"at \$\.system"),
        (changed(path=3), r"at \$\.path"),
        (changed(turns={}), r"at \$\.turns"),
        (changed(turns=[1]), r"at \$\.turns\[0\]"),
        (changed(turns=[{"user": "a", "assistant": None}]), r"\.assistant"),
    ],
)
def test_files_that_are_no_sessions(tmp_path, text, words):
    path = tmp_path / "s.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=words):
        load_session(path)


def test_places_that_cannot_be_read_or_written(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    for name, words in (
        ("missing", "does not exist"), (".", "is a folder"), ("fifo", "not a regular file"),
        ("loop", "cannot be read"), ("a\0b", "cannot be read"), ("n" * 300, "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            load_session(tmp_path / name)
    for name in ("no/s.json", "a\0b", "n" * 300):
        with pytest.raises(ConfigError, match="cannot be written"):
            save_session(tmp_path / name, SESSION)
    for name in (".", "fifo"):
        with pytest.raises(ConfigError, match="not a regular file"):
            save_session(tmp_path / name, SESSION)


@pytest.mark.parametrize("write", [save_session, export_markdown])
def test_only_files_of_its_kind_are_replaced(tmp_path, write):
    path = tmp_path / "notes"
    path.write_text("my notes")
    with pytest.raises(ConfigError, match="choose another name"):
        write(path, SESSION)
    assert path.read_text() == "my notes"
    path.unlink()
    write(path, SESSION)
    write(path, SESSION)


def test_markdown(tmp_path):
    path = tmp_path / "s.md"
    export_markdown(path, ChatSession("m", "sys", (Turn("q", "```\ncode\n```"),)))
    assert path.read_text("utf-8") == (
        "<!-- exported by akunu chat -->\n\n# q\n\nWith m.\n\n## System\n\nsys\n\n## User\n\nq\n\n"
        "## Assistant\n\n```\ncode\n```\n"
    )


_WRITER = """
import sys
from pathlib import Path
from akunu_py.engine.conversation import Turn
from akunu_py.cli.chat.session_file import ChatSession, save_session
print("ready", flush=True)
while True:
    for letter in "ab":
        turns = tuple(Turn(letter * 100_000, letter) for _ in range(200))
        save_session(Path(sys.argv[1]), ChatSession(letter, letter, turns))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "s.json"
    delays = random.Random(5)
    save_session(path, ChatSession("a", "a", (Turn("a" * 100_000, "a"),) * 200))
    for number in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE
        ) as child:
            child.stdout.readline()
            before, end = path.stat(), time.monotonic() + delays.uniform(0, 0.2)
            # Half of them right when the file changes, where a writer in place would be caught.
            while time.monotonic() < end + 10 * (number % 2):
                now = path.stat()
                if number % 2 and (now.st_mtime_ns, now.st_ino) != (
                    before.st_mtime_ns,
                    before.st_ino,
                ):
                    break
            child.kill()
        session = load_session(path)
        letter = session.model
        assert session.system == letter
        assert session.turns == (Turn(letter * 100_000, letter),) * 200


_FORKER = """
import os, random, signal, sys, time
from pathlib import Path
from akunu_py.engine.conversation import Turn
from akunu_py.cli.chat.session_file import ChatSession, load_session, save_session

path, delays = Path(sys.argv[1]), random.Random(7)

def session(letter):
    return ChatSession(letter, letter, tuple(Turn(letter * 1_000, letter) for _ in range(300)))

started = time.perf_counter()
for letter in "abab":
    save_session(path, session(letter))
longest = time.perf_counter() - started
found = []
for _ in range(150):
    child = os.fork()
    if not child:
        while True:
            for letter in "ab":
                save_session(path, session(letter))
    time.sleep(delays.uniform(0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found.append(load_session(path))
    assert found[-1] == session(found[-1].model)
    # What was being written is left behind beside it, under a name that is not its own.
    for entry in path.parent.iterdir():
        assert entry == path or entry.name.startswith(f".{path.name}.")
        if entry != path:
            entry.unlink()
assert {one.model for one in found} == {"a", "b"}
print(len(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kills_at_many_moments_of_a_save(tmp_path):
    """150 in one process without threads, so that a fork is cheap and safe."""
    assert python("-c", _FORKER, tmp_path / "s.json").stdout == "150\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path):
    import resource
    import signal

    path = tmp_path / "s.json"
    save_session(path, SESSION)
    markdown = tmp_path / "s.md"
    export_markdown(markdown, SESSION)
    exported = markdown.read_bytes()
    large = ChatSession("a", None, (Turn("a" * 100_000, "b"),))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Else the signal ends the process.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        for write, target in ((save_session, path), (export_markdown, markdown)):
            with pytest.raises(ConfigError, match="cannot be written: File too large"):
                write(target, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_session(path) == SESSION
    assert markdown.read_bytes() == exported
    assert {entry.name for entry in tmp_path.iterdir()} == {"s.json", "s.md"}


def test_attachments(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("\ufeffprint('```')\n", encoding="utf-8")
    added = read_attachment(path)
    assert with_attachments("what is it?", [added]) == (
        "code.py:\n````\nprint('```')\n````\n\nwhat is it?"
    )
    assert with_attachments("hello", []) == "hello"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a\0b", "NUL"), (b"\xff", "not UTF-8 text"), (b"a" * (2**20 + 1), "larger than 1 MB")],
)
def test_files_that_are_no_attachments(tmp_path, content, words):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_attachment(path)
