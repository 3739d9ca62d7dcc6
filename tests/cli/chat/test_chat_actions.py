"""What the commands of a chat do, with an engine that counts words."""

import os
import re
from dataclasses import replace

import pytest
from fake_chat import FakeEngine, do, say
from terminal_screen import TerminalScreen

from akunu_py.cli.chat.actions import Actions, Tools
from akunu_py.cli.chat.attachments import Attachment, with_attachments
from akunu_py.cli.chat.session_file import ChatSession, save_session
from akunu_py.cli.chat.session_store import KeptSession, SessionStore
from akunu_py.cli.chat.set_values import shown
from akunu_py.engine.conversation import Question, Turn
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.values.types import DecodeStats, GenerationConfig


class Notes(list):
    def __str__(self):
        return "\n".join(self)


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def loaded():
    return []


@pytest.fixture
def actions(conversation, notes, loaded):
    def load(name):
        if name == "interrupted":
            raise KeyboardInterrupt
        if name == "missing":
            raise ModelFormatError("there is no missing")
        loaded.append(FakeEngine(name, context=50, template=name != "bare"))
        return loaded[-1]

    return Actions(conversation, Tools(notes.append, load, lambda text: text + " edited\n"))


def test_a_model_is_loaded_before_the_old_one_is_closed(
    actions, conversation, engine, notes, loaded
):
    say(conversation, "a")
    for name, words in (
        ("missing", "there is no missing"), ("bare", "no chat template"), ("interrupted", "^$"),
    ):  # fmt: skip
        with pytest.raises((ModelFormatError, ConfigError, KeyboardInterrupt), match=words):
            do(actions, f"/model {name}")
        assert conversation.engine is engine
        assert not engine.closed
    assert loaded[0].closed
    do(actions, "/model other")
    assert engine.closed
    assert conversation.engine.description.name == "other"
    assert str(notes) == "other, context 50"
    do(actions, "/model 'the other'")
    do(actions, "/model default")
    assert [found.description.name for found in loaded[1:]] == ["other", "the other", None]
    say(conversation, "b")
    assert [turn.user for turn in conversation.turns] == ["a", "b"]
    assert len(conversation.engine.asked[0]) == 3


def test_save_load_and_export(actions, conversation, notes, tmp_path):
    conversation.system = "be brief"
    say(conversation, "a")
    with pytest.raises(ConfigError, match="give /save FILE"):
        do(actions, "/save")
    do(actions, f"/save {tmp_path}/s.json")
    say(conversation, "b")
    do(actions, "/save")
    do(actions, f"/export '{tmp_path}/s s.md'")
    assert "## User\n\nb" in (tmp_path / "s s.md").read_text()
    do(actions, "/reset")
    conversation.system = None
    do(actions, f"/load {tmp_path}/s.json")
    assert [turn.user for turn in conversation.turns] == ["a", "b"]
    assert conversation.system == "be brief"
    save_session(tmp_path / "t.json", ChatSession("x", None, ()))
    do(actions, f"/load {tmp_path}/t.json")
    assert notes[-2] == "turns: 2"
    assert notes[-1] == "turns: 0; x answered then, fake does now"
    (tmp_path / "bad").write_text("{}")
    say(conversation, "c")
    with pytest.raises(ConfigError):
        do(actions, f"/load {tmp_path}/bad")
    assert [turn.user for turn in conversation.turns] == ["c"]


def test_edit_sends_in_the_last_turns_place(actions, conversation):
    say(conversation, "a")
    assert do(actions, "/edit") == Question("a edited", instead=True)
    assert do(actions, "/undo") is None
    # Nothing said so far is a message to write.
    assert do(actions, "/edit") == Question(" edited")
    none = Actions(conversation, Tools(print, lambda _: None, None))
    with pytest.raises(ConfigError, match="needs a terminal"):
        do(none, "/edit")


def test_files_go_with_the_next_message(actions, notes, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    do(actions, f"/file {tmp_path}/a.txt")
    do(actions, "/file")
    assert notes[-1] == "a.txt"
    (tmp_path / "a.txt").write_text("new text")
    do(actions, f'/file "{tmp_path}/a.txt"')  # the same file once more is read anew
    assert actions.compose("hi").text == "a.txt:\n```\nnew text\n```\n\nhi"
    assert actions.compose("hi").text == "hi"
    with pytest.raises(ConfigError, match="is a folder"):
        do(actions, f"/file {tmp_path}")
    do(actions, f"/file {tmp_path}/a.txt")
    do(actions, "/reset")
    assert actions.compose("hi").text == "hi"


def test_files_with_an_at_go_with_their_message(actions, notes, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "b.bin").write_bytes(b"\0")
    monkeypatch.chdir(tmp_path)
    said = "what is in @a.txt? me@a.txt @property @src/b.py"
    assert actions.compose(said).text == f"a.txt:\n```\nsome text\n```\n\n{said}"
    assert notes == [
        "a.txt, 2 tokens, goes with this message",
        "@src/b.py is sent as text: there is no such file",
    ]
    # In three quotes a text is what it is.
    assert actions.compose(said, as_is=True).text == said
    with pytest.raises(ConfigError, match="not text: it has NUL bytes"):
        actions.compose("@b.bin")


def test_where_settings_come_from(conversation, notes):
    sources = {"temperature": "--temperature", "ngram_order": "[chat] ngram-order"}
    tools = Tools(notes.append, lambda _: None, None, lambda: 200, sources=sources)
    actions = Actions(conversation, tools)
    do(actions, "/set seed 3")
    do(actions, "/draft off")
    do(actions, "/set reasoning hide")
    do(actions, "/set")
    for name, source in (
        ("temperature", "--temperature"), ("seed", "/set"), ("drafter", "/draft"),
        ("reasoning", "/set"),
    ):  # fmt: skip
        (row,) = (row for row in notes[-1].splitlines() if row.split()[:1] == [name])
        assert row.endswith(f" ({source})")
    assert "ngram_order 4 ([chat] ngram-order)" in notes[-1]
    assert notes[-1].count(" (") == 5 + len(re.findall(r"\(docs/", notes[-1]))
    do(actions, "/set temperature")
    assert notes[-1].startswith("temperature 0 (--temperature): ")
    do(actions, "/set temperature default")
    do(actions, "/set temperature")
    assert notes[-1].startswith("temperature 0: ")


def test_a_model_is_chosen_from_those_of_this_machine(
    actions, conversation, notes, tmp_path, monkeypatch, machine_memory
):
    loaded = []
    for name, size in (("small", 100), ("used", 200), ("large", 300)):
        (tmp_path / f"{name}-Q4_0.gguf").write_bytes(b"x" * size)
    monkeypatch.setenv("AKUNU_MODEL_FOLDERS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    machine_memory(250)
    conversation.engine.description.path = str(tmp_path / "used-Q4_0.gguf")
    asked = []

    def choose(_question, options):
        asked.append([text for _, text in options])
        return next((path for path, text in options if "small" in text), None)

    def load(name):
        loaded.append(name)
        return FakeEngine(name)

    tools = Tools(notes.append, load, None, lambda: 80, choose=choose)
    do(Actions(conversation, tools), "/model")
    rows = asked[0]
    assert rows[0].split() == ["used-Q4_0.gguf", "200", "B", "Q4_0,", "in", "use"]
    (large,) = (row for row in rows if "large-" in row)
    assert large.endswith("Q4_0, larger than the memory")
    assert loaded == [str(tmp_path / "small-Q4_0.gguf")]
    conversation.engine.description.path = str(tmp_path / "used-Q4_0.gguf")
    do(Actions(conversation, replace(tools, choose=lambda *_: None)), "/model")
    assert notes[-1] == "the model stays as it is"
    # Where nobody chooses, they are listed.
    do(Actions(conversation, replace(tools, choose=None)), "/model")
    assert notes[-2].splitlines() == rows
    assert len(loaded) == 1


def test_system_set_draft_and_show(actions, conversation, notes):
    do(actions, "/system be brief")
    do(actions, "/set temperature 0.5")
    assert (conversation.system, conversation.config.temperature) == ("be brief", 0.5)
    assert notes[-1] == "temperature 0.5"
    do(actions, "/set parameter top-k 7")
    assert notes[-1] == "top_k 7"
    with pytest.raises(ConfigError, match=r"there is no setting named context.*akunu chat --help"):
        do(actions, "/set context 100")
    do(actions, "/set reasoning fold")
    assert (actions.reasoning, notes[-1]) == ("fold", "reasoning fold")
    with pytest.raises(ConfigError, match="give one of show, fold, hide"):
        do(actions, "/set reasoning perhaps")
    for line in ("/set", "/show"):
        do(actions, line)
        assert "reasoning fold" in " ".join(notes[-1].split())
    do(actions, "/set reasoning default")
    assert actions.reasoning == "show"
    do(actions, "/set drafter lookup")
    do(actions, "/draft off")
    assert conversation.config.drafter == "none"
    do(actions, "/draft on")
    assert conversation.config.drafter == "lookup"
    with pytest.raises(ConfigError, match="needs a draft model"):
        do(actions, "/draft draft-model")
    with pytest.raises(ConfigError, match="there is no drafter named 'nonsense'"):
        do(actions, "/draft nonsense")
    assert conversation.config.drafter == "lookup"
    do(actions, "/show")
    # Two quantizations of a model have one name.
    assert "model    fake\npath     models/fake\nweights  dense weights\n" in notes[-1]
    assert "context  4 of 100 tokens" in notes[-1]
    assert "temperature 0.5" in str(notes)
    do(actions, '/system ""')
    assert conversation.system is None
    do(actions, "/exit")
    assert actions.leaving


def test_a_setting_alone_is_explained(actions, conversation, notes):
    do(actions, "/set top_p")
    assert notes[-1].startswith("top_p 1: ")
    assert "Give " in notes[-1]
    do(actions, "/set reasoning")
    assert notes[-1] == "reasoning show: reasoning before an answer: show, fold, hide"


def test_statistics_of_the_last_reply_and_of_this_run(conversation, notes):
    width = 50
    actions = Actions(conversation, Tools(notes.append, lambda _: None, None, lambda: width))
    do(actions, "/stats")
    assert notes == ["this run: 0 replies"]
    actions.last_result = say(conversation, "a").result
    conversation.stats = DecodeStats(
        steps=5, steps_with_draft=4, drafted=8, accepted=5, tested=6, output_tokens=10
    )
    notes.clear()
    do(actions, "/stats")
    assert notes[:2] == [
        "last reply: 2 tokens · 20.0 tokens/s · nothing drafted",
        "this run: 1 reply",
    ]
    table = notes[2].splitlines()
    assert table[0].split() == ["tokens", "10", "written", "by", "the", "model"]
    assert max(map(len, table)) <= width
    assert len(notes) == 3
    say(conversation, "b")
    conversation.config = GenerationConfig(
        temperature=1.0, draft_options={"draft_sampling": "rejection", "lenience": 0.5}
    )
    do(actions, "/stats")
    assert "this run: 2 replies" in notes
    assert notes[-1].startswith("not exact: ")


def test_settings_are_listed_as_wide_as_the_terminal(conversation, notes):
    do(Actions(conversation, Tools(notes.append, lambda _: None, None, lambda: 50)), "/set")
    assert max(map(len, notes[-1].splitlines()[:-1])) <= 50


def test_draft_on_means_the_default_where_none_was_chosen(actions, conversation, notes):
    do(actions, "/draft off")
    do(actions, "/draft off")
    do(actions, "/draft on")
    assert conversation.config.drafter is None
    assert notes == ["nothing is drafted"] * 2 + ["drafter auto, the default"]


def test_retry_says_where_the_reply_will_be_the_same(actions, conversation, notes):
    say(conversation, "a")
    assert do(actions, "/retry") == Question("a", instead=True)
    assert "at temperature 0 the reply will be the same" in notes[-1]
    notes.clear()
    with conversation.ask(Question("b")) as reply:
        for _ in reply:
            reply.cancel()
    do(actions, "/retry")  # this one had not come to its end
    assert not notes
    conversation.config = GenerationConfig(temperature=0.5)
    do(actions, "/retry")
    assert not notes


def test_clear_says_that_the_conversation_goes_on(actions, conversation, notes):
    do(actions, "/clear")
    assert notes == []
    say(conversation, "a")
    do(actions, "/clear")
    assert notes == ["the conversation goes on; /reset forgets it"]
    assert len(conversation.turns) == 1


def test_where_nothing_can_be_kept_that_is_said_once(conversation, notes, tmp_path):
    (tmp_path / "file").touch()
    kept = KeptSession(SessionStore(tmp_path / "file" / "sessions"))
    actions = Actions(conversation, Tools(notes.append, lambda _: None, None, kept=kept))
    for word in ("a", "b"):
        say(conversation, word)
        actions.keep()
    assert str(notes).count("conversations are not kept from here on") == 1
    with pytest.raises(ConfigError, match="not kept here"):
        do(actions, "/sessions")


def test_kept_conversations_are_listed_and_gone_on_with(conversation, notes, tmp_path):
    store = SessionStore(tmp_path / "sessions")
    actions = Actions(
        conversation, Tools(notes.append, lambda _: None, None, kept=KeptSession(store))
    )
    do(actions, "/sessions")
    assert notes[-1] == "no conversation is kept yet"
    say(conversation, "hello there")
    actions.keep()
    (stored,) = store.sessions()
    do(actions, "/new")
    say(conversation, "other")
    actions.keep()
    do(actions, "/sessions")
    assert f"{stored.name}" in str(notes)
    assert "hello there" in str(notes)
    do(actions, f"/sessions {stored.name}")
    assert conversation.turns[0].user == "hello there"
    say(conversation, "more")
    actions.keep()
    assert [turn.user for turn in stored.load().turns] == ["hello there", "more"]
    do(actions, "/undo")
    actions.keep()
    assert [turn.user for turn in stored.load().turns] == ["hello there"]
    with pytest.raises(ConfigError, match="give /save FILE"):
        do(actions, "/save")  # the kept file is not one that /save wrote
    # A file that was loaded is left as it is.
    save_session(tmp_path / "s.json", stored.load())
    do(actions, f"/load {tmp_path}/s.json")
    actions.keep()
    assert len(store.sessions()) == 2
    say(conversation, "again")
    actions.keep()
    assert len(store.sessions()) == 3
    do(actions, "/reset")
    actions.keep()
    assert len(store.sessions()) == 2
    assert (tmp_path / "s.json").exists()


def test_conversations_are_found_by_what_was_said(conversation, notes, tmp_path):
    store = SessionStore(tmp_path / "sessions")
    for question, answer in (("Why *is* it?", "Because."), ("Other", "x" * 40 + " why not? " * 9)):
        store.save_new(ChatSession("m", None, (Turn(question, answer),)))
    kept = Tools(notes.append, lambda _: None, None, kept=KeptSession(store))
    do(Actions(conversation, kept), "/sessions WHY")
    rows = notes[0].splitlines()
    assert len(rows) == 2
    assert any(re.search(r"\.\.\.x+ why not\?", row) for row in rows)
    notes.clear()
    do(Actions(conversation, kept), "/sessions *is*")
    assert notes[0].endswith("Why *is* it?")
    do(Actions(conversation, kept), "/sessions nothing")
    assert notes[-1] == "no conversation has 'nothing'"


def test_the_latest_twenty_are_listed(conversation, notes, tmp_path):
    store = SessionStore(tmp_path / "sessions")
    for number in range(22):
        path = store.save_new(ChatSession("m", None, (Turn(f"message {number}", "said"),)))
        os.utime(path, (1e9 + number, 1e9 + number))
    kept = Tools(notes.append, lambda _: None, None, kept=KeptSession(store))
    do(Actions(conversation, kept), "/sessions")
    assert [row.split()[-1] for row in notes[0].splitlines()] == [str(n) for n in range(21, 1, -1)]


def test_the_last_turns_are_shown_as_they_were(conversation, tmp_path, monkeypatch):
    screen = TerminalScreen(60, 24)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    actions = Actions(conversation, Tools(print, lambda _: None, None, lambda: 60))
    file = Attachment(tmp_path / "a.py", "print(1)")
    long = "\n\n".join(f"line {number}" for number in range(30))
    turns = (
        Turn("first", "gone"),
        Turn(with_attachments("what is\nit?", [file]), f"<think>\nwell\n</think>\n\n{long}"),
        Turn("pasted " + "x" * 10_000, "some **bold** words"),
    )
    save_session(tmp_path / "s.json", ChatSession("fake", None, turns))
    do(actions, f"/load {tmp_path}/s.json")
    rows = screen.rows()
    place = rows.index("with a.py")
    assert rows[place + 1 : place + 4] == ["> what is", "  it?", ""]
    # A whole reply, and Markdown as it is drawn.
    assert [row for row in rows if row.startswith("line")] == long.split("\n\n")
    assert "some bold words" in rows
    assert screen.cells("bold").bold
    assert "  [10,007 characters]" in rows
    text = screen.text()
    assert "gone" not in text
    assert "well" not in text


def test_options_of_drafters_are_set_and_taken_back(actions, conversation, notes):
    do(actions, "/set drafter ngram-window")
    do(actions, "/set ngram-window 99")
    assert notes[-1] == "ngram_window 99"
    assert conversation.config.draft_options == {"ngram_window": 99}
    do(actions, "/show")
    assert "ngram_window 99" in notes[-1]
    with pytest.raises(ConfigError, match="the drafter 'lookup' has no ngram_window"):
        do(actions, "/set drafter lookup")
    do(actions, "/set ngram_window default")
    assert conversation.config.draft_options == {}
    assert shown(conversation.config, "ngram_window") == "512"
