"""Conversations that are kept by themselves."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from akunu_py.cli.chat import session_file, session_store
from akunu_py.cli.chat.attachments import Attachment, with_attachments
from akunu_py.cli.chat.commands import BLOCK, parse
from akunu_py.cli.chat.line_input import InputLine, _line
from akunu_py.cli.chat.session_file import ChatSession, load_session
from akunu_py.cli.chat.session_store import KeptSession, SessionStore, describe_session
from akunu_py.engine.conversation import Turn
from akunu_py.system.errors import ConfigError

NOW = datetime(2026, 11, 22, 18, 34, 5, tzinfo=UTC)


def session(*words):
    return ChatSession("m", None, tuple(Turn(word, "said") for word in words), "/models/m.gguf")


@pytest.fixture
def store(tmp_path):
    return SessionStore(tmp_path / "data" / "sessions")


def test_files_and_folder_are_their_owners_alone(store, tmp_path):
    # One that others made readable is closed.
    (tmp_path / "data" / "sessions").mkdir(parents=True)
    before = os.umask(0)
    try:
        path = store.save_new(session("a"), NOW)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.name == "2026-11-22-183405.json"
    assert load_session(path) == session("a")
    assert store.save_new(session("b"), NOW).name == "2026-11-22-183405-2.json"
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []


def test_the_latest_comes_first_and_names_may_be_cut_short(store):
    assert store.sessions() == []
    with pytest.raises(ConfigError, match="no conversation is kept yet"):
        store.newest()
    first = store.save_new(session("a"), NOW)
    second = store.save_new(session("b", "c"), NOW.replace(year=2027))
    os.utime(first, (1e9, 1e9))
    assert [found.path for found in store.sessions()] == [second, first]
    assert store.newest().path == second
    assert store.find("2026").path == first
    assert describe_session(store.find("2027-11-22-183405")) == ("2 turns", "b")
    assert describe_session(store.find("2026")) == ("1 turn", "a")
    for name, words in (
        ("20", "2 sessions begin"),
        ("x", "there is no session"),
        ("", "no session"),
    ):
        with pytest.raises(ConfigError, match=words):
            store.find(name)
    store.remove(store.find("2026").path)
    assert [found.path for found in store.sessions()] == [second]


def test_only_the_newest_are_kept(store, monkeypatch):
    monkeypatch.setattr(session_store, "MOST", 3)
    for number in range(5):
        path = store.save_new(session(str(number)), NOW.replace(minute=number))
        os.utime(path, (1e9 + number, 1e9 + number))
    assert [describe_session(found)[1] for found in store.sessions()] == ["4", "3", "2"]


def test_what_is_no_session_is_left_alone(store):
    path = store.save_new(session("a"), NOW)
    (path.parent / "notes.json").write_text("mine")
    (path.parent / "2026-11-22-183406.json").write_text("{}")
    assert len(store.sessions()) == 2
    turns, why = describe_session(store.find("2026-11-22-183406"))
    assert turns == "damaged"
    assert "is not a session" in why


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        SessionStore(tmp_path / "file" / "sessions").save_new(session("a"))


def test_what_could_not_be_read_again_is_not_written(store, monkeypatch):
    monkeypatch.setattr(session_file, "MOST_BYTES", 200)
    with pytest.raises(ConfigError, match="larger than"):
        store.save_new(session("a" * 300))
    assert store.sessions() == []


def test_what_is_deleted_elsewhere_does_not_come_back(store):
    kept = KeptSession(store)
    kept.keep(session("secret"))
    (stored,) = store.sessions()
    store.remove(stored.path)
    with pytest.raises(ConfigError, match="was deleted"):
        kept.keep(session("secret", "more"))
    assert store.sessions() == []
    kept.begin()
    kept.keep(session("another"))
    assert len(store.sessions()) == 1


def test_nothing_is_left_of_what_is_deleted(store, tmp_path):
    """A crash leaves a file that is not finished."""
    path = store.save_new(session("a"), NOW)
    other = store.save_new(session("b"), NOW.replace(year=2027))
    unfinished = [one.with_name(f".{one.name}.0123abcd") for one in (path, other)]
    for one in (*unfinished, tmp_path / "data" / "mine"):
        one.write_text("secret")
    store.remove(path)
    assert not path.exists()
    assert [one.exists() for one in unfinished] == [False, True]
    # It may be another chat's, and finished in a moment; older ones go when one is kept.
    store.save_new(session("c"), NOW.replace(year=2028))
    assert unfinished[1].exists()
    os.utime(unfinished[1], (1e9, 1e9))
    store.save_new(session("d"), NOW.replace(year=2029))
    assert not unfinished[1].exists()
    unfinished[0].write_text("secret")
    store.sweep()
    assert sorted(one.name for one in (tmp_path / "data").iterdir()) == ["mine", "sessions"]
    assert {one.stem[:4] for one in (tmp_path / "data" / "sessions").iterdir()} == {
        "2027", "2028", "2029",
    }  # fmt: skip


def test_titles_and_history_are_questions_without_their_files(store):
    file = Attachment(Path("/etc/first line.py"), "first line of the file\n```\n\nmore")
    for year, message in enumerate(
        (
            with_attachments("what is it?", [file, file]), "/etc is a folder", "/help me", "//two",
            with_attachments("several\nlines", [file]), with_attachments("", [file]),
        ),
        2027,
    ):  # fmt: skip
        path = store.save_new(session("other", message), NOW.replace(year=year))
        os.utime(path, (year, year))
        path = store.save_new(session(message), NOW.replace(year=year + 10))
        os.utime(path, (-year, -year))
    titles = [describe_session(stored)[1] for stored in store.sessions() if stored.changed < 0]
    assert titles[:5] == ["what is it?", "/etc is a folder", "/help me", "//two", "several lines"]
    typed = list(store.typed())
    assert len(typed) == 18
    messages = [text for text in typed[:12] if text != "other"]
    for text in messages[1:]:
        # Typed again it is the message it was.
        line = _line(text) if text.startswith(BLOCK) else InputLine(text)
        found = None if line.quoted else parse(line.text)
        assert found is None
    assert messages[1:] == [
        "several\nlines", f"{BLOCK}\n//two\n{BLOCK}", f"{BLOCK}\n/help me\n{BLOCK}",
        f"{BLOCK}\n/etc is a folder\n{BLOCK}", "what is it?",
    ]  # fmt: skip


def test_what_was_typed_is_read_from_the_newest(store, monkeypatch):
    monkeypatch.setattr(session_store, "_READ_BYTES", 400)
    for number in range(5):
        path = store.save_new(session(f"{number}a", f"{number}b"), NOW.replace(minute=number))
        os.utime(path, (1e9 + number, 1e9 + number))
    store.sessions()[1].path.write_text("damaged")
    typed = list(store.typed())
    assert typed[:4] == ["4b", "4a", "2b", "2a"]
    assert "0a" not in typed
