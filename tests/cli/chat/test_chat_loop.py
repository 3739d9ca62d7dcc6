"""The loop of a chat, with an engine that counts words and lines that are there at once."""

from collections import Counter
from types import SimpleNamespace

import click
import pytest
from fake_chat import FakeEngine
from hypothesis import given
from hypothesis import strategies as st
from terminal_screen import TerminalScreen

from akunu_py.cli.chat.actions import Tools
from akunu_py.cli.chat.line_input import InputLine
from akunu_py.cli.chat.loop import Chat, note, note_width
from akunu_py.cli.chat.session_store import KeptSession, SessionStore
from akunu_py.engine.conversation import Conversation
from akunu_py.values.decode_stats import SourceStats
from akunu_py.values.messages import Message
from akunu_py.values.types import DecodeStats, GenerationConfig


class GivenLines:
    def __init__(self, lines):
        self._lines = iter(lines)

    def read(self):
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return InputLine(line)


@pytest.fixture
def chat():
    def start(*lines, engine=None, **options):
        conversation = Conversation(engine or FakeEngine(), GenerationConfig(), None)
        tools = Tools(note, lambda _: None, None, note_width)
        options = {"typed": False, **options}
        return Chat(conversation, GivenLines(lines), tools, **options)

    return start


def test_quiet_says_nothing_of_a_reply(chat, capsys):
    for quiet in (True, False):
        root = click.Context(click.Command("akunu"))
        root.params = {"quiet": quiet}
        with root:
            chat("hello").run()
        said = capsys.readouterr()
        assert said.out == "fine thanks\n"
        assert ("tokens/s" in said.err) == (not quiet)


def test_stats_are_those_of_the_last_reply(chat, capsys):
    chat("hello", "/stats").run()
    assert "last reply: 2 tokens" in capsys.readouterr().err


def test_copies_are_told_once(chat, monkeypatch, capsys):
    """In the line of a reply, or in the sentence of /draft show; the estimate is for /stats."""
    monkeypatch.setenv("TERM", "xterm-256color")
    engine = FakeEngine()
    sources = (SourceStats("prompt", 3, 1),)
    engine.changes = {
        "time_saved": (0.2, 0.3),
        "stats": DecodeStats(output_tokens=2, accepted=1, sources=sources),
    }
    for lines, told in ((["hello"], True), (["/draft show", "hello"], False)):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", TerminalScreen())
            chat(*lines, "/stats", engine=engine).run()
        reply, _, statistics = capsys.readouterr().err.partition("last reply:")
        assert ("1 of 2 tokens was copied" in reply) == told
        assert ("tokens in" in reply) == (not told)
        assert "drafting saved" not in reply
        assert "drafting saved 20 to 30% of the time (estimated)" in " ".join(statistics.split())


def test_notes_are_dim_and_wrap_between_words(monkeypatch):
    screen = TerminalScreen(50)
    # In the test itself: pytest exchanges it before.
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "50")
    words = [f"word{number}" for number in range(20)]
    note(" ".join(words))
    assert " ".join(screen.rows()).split() == words
    assert len(screen.rows()) > 1
    assert "\x1b[2m" in "".join(screen.written)
    screen.written.clear()
    monkeypatch.setenv("TERM", "dumb")
    note("word")
    assert "".join(screen.written) == "word\n"


@pytest.mark.parametrize(
    ("source", "place", "remembers", "name"),
    [
        ("memory", -1, False, "this chat"),
        ("memory", -1, True, "earlier replies"),
        ("reply", -1, False, "this reply"),
        # Each letter is a token.
        ("prompt", 2, False, "a.py"),
        ("prompt", 20, False, "this chat"),
    ],
)
def test_sources_of_drafts_have_a_users_names(chat, source, place, remembers, name):
    message = "a.py:\n```\nx = 1\n```\n\nhi"
    engine = FakeEngine()
    engine.tokenizer.detokenizer = lambda: SimpleNamespace(feed=lambda ids: chr(ids[0]))
    reply = SimpleNamespace(
        stream=SimpleNamespace(prompt=tuple(map(ord, message))), messages=[Message("user", message)]
    )
    talk = chat(engine=engine, remembers=remembers)
    assert talk._names_of_sources(reply)(source, place) == name


def test_space_is_left_where_somebody_types(chat, capsys):
    chat("hello", typed=True).run()
    # Before the message, the reply, what is said of it, and the next message.
    assert capsys.readouterr().err == "\n\n\n20.0 tokens/s\n\n"
    chat("hello").run()
    assert capsys.readouterr().err == "20.0 tokens/s\n"


LINES = st.lists(
    st.sampled_from(
        [
            "one", "two", '/system "be brief"', '/system ""', "/undo", "/reset", "/new", "/retry", "/edit",
            "/file FILE", "/clear", "/set temperature 0.5", "/model other", "/nonsense", "fails",
        ]
    ),
    max_size=12,
)  # fmt: skip


@given(LINES)
def test_what_is_kept_is_after_each_line_what_the_conversation_is(tmp_path_factory, lines):
    """Undone, edited and forgotten text is gone at once; only `/new` leaves something behind."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "file.txt").write_text("attached words")
    store = SessionStore(folder / "sessions")
    conversation = Conversation(FakeEngine(), GenerationConfig(), None)
    others = []

    def checked(lines):
        for line in [*lines, "/exit"]:
            if line == "/new" and conversation.turns:
                others.append((conversation.turns, conversation.system))
            yield "x " * 200 if line == "fails" else line.replace("FILE", str(folder / "file.txt"))
            # Here it waits for the next line.
            now = (conversation.turns, conversation.system)
            expected = Counter([*others, now] if conversation.turns else others)
            found = (stored.load() for stored in store.sessions())
            assert Counter((one.turns, one.system) for one in found) == expected
            assert all(path.name[0] != "." for path in folder.glob("sessions/*"))

    tools = Tools(
        lambda _: None, FakeEngine, lambda text: f"{text} edited", kept=KeptSession(store)
    )
    Chat(conversation, GivenLines(checked(lines)), tools, typed=True).run()
