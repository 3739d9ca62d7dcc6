"""Turns, the context and commands of a chat, with an engine that counts words."""

from types import SimpleNamespace

import pytest

from akunu_py import Engine
from akunu_py.cli.chat.actions import Actions, Tools
from akunu_py.cli.chat.commands import parse
from akunu_py.cli.chat.conversation import Conversation, Question, Turn
from akunu_py.cli.chat.session_file import Session, save_session
from akunu_py.errors import ConfigError, ContextOverflowError, ModelFormatError
from akunu_py.types import DecodeStats, GenerationConfig, GenerationResult, StreamEvent


class FakeStream:
    """Says `words`, one an event; `until` makes it stop as an interrupt does."""

    def __init__(self, prompt, words, reason):
        self._events = iter(words)
        self._words, self._reason, self._prompt = words, reason, prompt
        self._cancelled = False
        self.prompt = ()
        self.result = None
        self.closed = False

    def __iter__(self):
        said = []
        for number, word in enumerate(self._words, 1):
            said.append(word)
            reason = "cancelled" if self._cancelled else self._reason
            if self._cancelled or number == len(self._words):
                self.result = GenerationResult(
                    text="".join(said), token_ids=tuple(range(number)), finish_reason=reason,
                    seed=0, num_prompt_tokens=self._prompt, num_cached_tokens=0, prefill_s=0.1,
                    decode_s=0.1, peak_memory_bytes=0, stats=DecodeStats(),
                )  # fmt: skip
            yield StreamEvent(word, (number,), None, self.result)
            if self.result is not None:
                return

    def cancel(self):
        self._cancelled = True

    def close(self):
        self.closed = True


class FakeEngine:
    """A token a word, one more for each message and one for the reply's beginning."""

    def __init__(self, name="fake", context=100, template=True):
        self.context = context
        self.description = SimpleNamespace(name=name, path=f"models/{name}")
        self.draft_model, self.has_counts = None, False
        self.tokenizer = SimpleNamespace(
            encode_chat=lambda messages: (
                [0] * (1 + sum(1 + len(m["content"].split()) for m in messages))
            ),
            decode=lambda _ids, *, with_control: self.prompt_end,
            has_chat_template=template,
        )
        self.prompt_end = ""
        self.says, self.reason = ["fine ", "thanks"], "stop"
        self.asked, self.closed, self.resets = [], False, 0

    def stream_chat(self, messages, config, *, progress=None):
        prompt = len(self.tokenizer.encode_chat(messages))
        assert prompt < self.context
        self.asked.append(messages)
        self.stream = FakeStream(prompt, self.says, self.reason)
        return self.stream

    def reset(self):
        self.resets += 1

    def close(self):
        self.closed = True


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def conversation(engine):
    return Conversation(engine, GenerationConfig(), None)


def say(conversation, text, *, instead=False):
    with conversation.ask(Question(text, instead)) as reply:
        for _ in reply:
            pass
    return reply


def test_turns_go_on_and_replies_are_counted(conversation, engine):
    conversation.system = "be brief"
    say(conversation, "a")
    reply = say(conversation, "b")
    assert reply.text == "fine thanks"
    assert conversation.turns == (Turn("a", "fine thanks"), Turn("b", "fine thanks"))
    assert engine.asked[1] == [
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "fine thanks"}, {"role": "user", "content": "b"},
    ]  # fmt: skip
    assert conversation.replies == 2
    assert engine.stream.closed


def test_an_interrupted_reply_keeps_what_was_said(conversation):
    with conversation.ask(Question("a")) as reply:
        for _ in reply:
            reply.cancel()
    assert reply.result.finish_reason == "cancelled"
    events = iter(reply := conversation.ask(Question("b")))
    with pytest.raises(KeyboardInterrupt), reply:
        raise KeyboardInterrupt(next(events))
    assert conversation.turns == (Turn("a", "fine thanks"), Turn("b", "fine "))
    assert reply.stream.closed


def test_a_reply_without_text_changes_nothing_and_can_be_asked_again(conversation, engine):
    say(conversation, "a")
    engine.says = [""]
    say(conversation, "b")
    assert conversation.turns == (Turn("a", "fine thanks"),)
    assert conversation.last_question() == Question("b")
    say(conversation, "c", instead=True)
    assert conversation.turns == (Turn("a", "fine thanks"),)
    assert conversation.last_question() == Question("c", instead=True)


@pytest.mark.parametrize(
    ("prompt_end", "says", "kept", "sent"),
    [
        ("", "<think>a</think>b", "<think>a</think>b", "<think>a</think>b"),
        ("<a><think>\n", "a</think>b", "<think>\na</think>b", "<think>\na</think>b"),
        ("<|START_THINKING|>", "a<|END_THINKING|>b", "<|START_THINKING|>a<|END_THINKING|>b", "b"),
        ("", "[THINK]a[/THINK]b", "[THINK]a[/THINK]b", "b"),
    ],
)
def test_thoughts_are_kept_and_sent_where_templates_find_them(
    conversation, engine, prompt_end, says, kept, sent
):
    engine.says, engine.prompt_end = [says], prompt_end
    say(conversation, "q")
    assert conversation.turns == (Turn("q", kept),)
    say(conversation, "r")
    assert engine.asked[1][1] == {"role": "assistant", "content": sent}


def test_retry_and_undo(conversation, engine):
    for action in (conversation.undo, conversation.last_question):
        with pytest.raises(ConfigError, match="nothing has been said"):
            action()
    say(conversation, "a")
    say(conversation, "b")
    engine.says = ["again"]
    question = conversation.last_question()
    assert question == Question("b", instead=True)
    say(conversation, question.text, instead=question.instead)
    assert conversation.turns == (Turn("a", "fine thanks"), Turn("b", "again"))
    assert conversation.undo() == Turn("b", "again")
    assert conversation.turns == (Turn("a", "fine thanks"),)


def test_undo_takes_back_a_message_to_which_nothing_was_said(conversation, engine):
    say(conversation, "a")
    engine.says = [""]
    say(conversation, "b")
    assert conversation.undo() == Turn("b", "")
    assert conversation.turns == (Turn("a", "fine thanks"),)
    # A turn whose retry said nothing is still a turn.
    say(conversation, "a", instead=True)
    assert conversation.undo() == Turn("a", "fine thanks")
    with pytest.raises(ConfigError, match="nothing has been said"):
        conversation.undo()


def test_the_oldest_turns_are_dropped_where_the_context_is_full(conversation, engine):
    """A turn has 10 + 1 and 2 + 1 tokens; an eighth of 100 is kept for the reply."""
    conversation.system = "be brief"
    dropped = [say(conversation, f"w{n} " * 10).dropped for n in range(12)]
    # 1 + 3 + 11 tokens, and 14 a turn: five turns before it leave room, then half is dropped.
    assert dropped == [0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0]
    assert len(conversation.turns) == 12
    assert conversation.forgotten == 8
    last = engine.asked[6]
    assert last[0] == {"role": "system", "content": "be brief"}
    assert [m["content"].split()[0] for m in last if m["role"] == "user"] == ["w4", "w5", "w6"]
    assert max(len(engine.tokenizer.encode_chat(m)) for m in engine.asked) <= 100 - 100 // 8


def test_of_a_long_session_only_the_end_is_counted(conversation, engine):
    counted = []
    count = engine.tokenizer.encode_chat
    engine.tokenizer.encode_chat = lambda messages: counted.append(len(messages)) or count(messages)
    conversation.replace([Turn("word " * 9, "fine " * 4)] * 500, None)
    reply = say(conversation, "a")
    # Half of 100 tokens hold three turns of 15.
    assert (reply.dropped, len(engine.asked[0])) == (497, 7)
    assert max(counted) < 30
    # The same as where all is counted.
    conversation.replace([Turn("word " * 9, "fine " * 4)] * 20, None)
    assert say(conversation, "a").dropped == 17
    # Where the last turn is too large itself.
    conversation.replace([Turn("word " * 500, "fine " * 4)] * 20, None)
    assert say(conversation, "a").dropped == 20


def test_the_last_turn_goes_only_where_the_message_needs_its_room(conversation, engine):
    say(conversation, "a " * 10)
    say(conversation, "b " * 60)
    reply = say(conversation, "c " * 20)  # with the turn before 87, what is left of an eighth
    assert (reply.dropped, len(engine.asked[2])) == (1, 3)
    reply = say(conversation, "d " * 80)
    assert (reply.dropped, len(engine.asked[3])) == (2, 1)
    reply = say(conversation, "e " * 97)  # 99 with what is around it: one token for the reply
    assert len(engine.asked[4]) == 1


def test_a_message_too_long_for_the_context_is_refused_and_kept_for_edit(conversation):
    say(conversation, "a")
    with pytest.raises(ContextOverflowError, match="the message has 100 tokens and the context"):
        conversation.ask(Question("b " * 98))
    assert len(conversation.turns) == 1
    assert conversation.last_question() == Question("b " * 98)
    conversation.system = "be brief"
    with pytest.raises(ContextOverflowError, match="103 tokens with the system message"):
        conversation.ask(Question("b " * 98))


def test_a_reply_that_fills_the_context_says_so(conversation, engine):
    engine.reason = "length"
    assert not say(conversation, "a").filled_context
    engine.says = ["w "] * 90  # 1, 2 and 3 for the first turn, 3 for the message: 9
    assert not say(conversation, "a b").filled_context
    conversation.undo()
    engine.says = ["w "] * 91
    assert say(conversation, "a b").filled_context
    assert say(conversation, "c").dropped == 2


def test_max_tokens_bounds_the_room_for_a_reply(conversation, engine):
    conversation.config = GenerationConfig(max_tokens=2)
    say(conversation, "a " * 96)
    assert len(engine.tokenizer.encode_chat(engine.asked[0])) == 98


def test_a_turn_after_a_thousand_tokens_prefills_its_message_alone(roomy_gguf):
    with Engine.load(roomy_gguf) as engine:
        # A reply of a random model reads back as other tokens; this one does not.
        only = {engine.tokenizer.encode("the")[-1]: 1e6}
        conversation = Conversation(
            engine, GenerationConfig(max_tokens=12, logit_bias=only), "the system"
        )
        first = say(conversation, "the hello world " * 340).result
        second = say(conversation, "hello world").result
    assert first.num_cached_tokens == 0
    assert first.num_prompt_tokens > 1000
    prefilled = second.num_prompt_tokens - second.num_cached_tokens
    # The reply's last token had no pass yet.
    new = second.num_prompt_tokens - first.num_prompt_tokens - len(first.token_ids)
    assert prefilled == new + 1 < 12


def test_what_is_prefilled_after_each_way_to_go_on(roomy_gguf, tmp_path):
    """Of a conversation of a thousand tokens: the message alone, but after another model."""
    with Engine.load(roomy_gguf) as engine:
        # A reply of a random model reads back as other tokens; this one does not.
        only = {engine.tokenizer.encode("the")[-1]: 1e6}
        conversation = Conversation(engine, GenerationConfig(max_tokens=12, logit_bias=only), "sys")
        actions = Actions(
            conversation,
            Tools(lambda _: None, lambda _: Engine.load(roomy_gguf), lambda _: "the end"),
        )

        def prefilled(question):
            result = say(conversation, question.text, instead=question.instead).result
            assert result.num_prompt_tokens > 1000
            return result.num_prompt_tokens - result.num_cached_tokens

        def message():
            return Question("hello world")

        # The first reply is interrupted while it is read, and what was read is kept.
        first = Question("the hello world " * 340)
        with conversation.ask(first, lambda done, _: reply.cancel() if done else None) as reply:
            for _ in reply:
                pass
        assert reply.result.token_ids == ()
        read = prefilled(do(actions, "/retry"))
        assert 0 < read <= conversation.num_tokens() - 512
        own = prefilled(message())
        assert own < 12
        assert prefilled(do(actions, "/retry")) == 1
        do(actions, "/undo")
        # Its first token may have been the last that the caches were shown.
        assert prefilled(message()) <= own
        assert prefilled(do(actions, "/edit")) <= own + 2
        # Of an interrupted reply what was said is kept.
        with conversation.ask(message()) as reply:
            for event in reply:
                if len(event.token_ids):
                    reply.cancel()
        assert reply.text
        assert prefilled(message()) <= own + 2
        do(actions, f"/save {tmp_path}/s.json")
        do(actions, f"/load {tmp_path}/s.json")
        assert prefilled(message()) <= own + 2
        do(actions, "/system other")
        assert prefilled(message()) > 1000
        do(actions, "/model default")
        assert prefilled(message()) > 1000
        assert prefilled(message()) <= own + 2
        conversation.engine.close()


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


def do(actions, line):
    return actions.run(*parse(line))


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
    save_session(tmp_path / "t.json", Session("x", None, ()))
    do(actions, f"/load {tmp_path}/t.json")
    assert notes[-2] == "turns: 2, the last: b"
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


def test_system_set_draft_trace_and_show(actions, conversation, notes):
    do(actions, "/system be brief")
    do(actions, "/set temperature 0.5")
    assert (conversation.system, conversation.config.temperature) == ("be brief", 0.5)
    assert notes[-1] == "temperature 0.5"
    do(actions, "/set parameter top-k 7")
    assert notes[-1] == "top_k 7"
    with pytest.raises(ConfigError, match=r"there is no setting context.*akunu chat --help"):
        do(actions, "/set context 100")
    do(actions, "/set reasoning fold")
    assert (actions.reasoning, notes[-1]) == ("fold", "reasoning fold")
    with pytest.raises(ConfigError, match="give one of show, fold, hide"):
        do(actions, "/set reasoning perhaps")
    for line in ("/set", "/show"):
        do(actions, line)
        assert "reasoning fold" in notes[-1]
    do(actions, "/set reasoning default")
    assert actions.reasoning == "show"
    do(actions, "/set drafter lookup")
    do(actions, "/draft off")
    assert conversation.config.drafter == "none"
    do(actions, "/draft on")
    assert conversation.config.drafter == "lookup"
    with pytest.raises(ConfigError, match="needs a draft model"):
        do(actions, "/draft draft-model")
    for line in ("/draft corpus", "/set drafter corpus"):
        with pytest.raises(ConfigError, match=r"corpus needs counts .* begin with --counts FILE"):
            do(actions, line)
    with pytest.raises(ConfigError, match="there is no drafter 'nonsense'"):
        do(actions, "/draft nonsense")
    assert conversation.config.drafter == "lookup"
    do(actions, "/trace on")
    assert actions.show_steps
    with pytest.raises(ConfigError, match="/trace on or off"):
        do(actions, "/trace perhaps")
    do(actions, "/show")
    # Two quantizations of a model have one name.
    assert "model    fake\npath     models/fake\ncontext  4 of 100 tokens" in notes[-1]
    assert "temperature 0.5" in str(notes)
    do(actions, '/system ""')
    assert conversation.system is None
    do(actions, "/exit")
    assert actions.leaving


def test_draft_show_leaves_the_drafter_and_can_be_ended(actions, conversation, notes):
    do(actions, "/draft show")
    assert actions.show_drafts
    assert "tinted" in notes[-1]
    do(actions, "/draft show")
    assert not actions.show_drafts
    assert conversation.config.drafter is None


def test_draft_on_means_the_default_where_none_was_chosen(actions, conversation, notes):
    do(actions, "/draft off")
    do(actions, "/draft off")
    do(actions, "/draft on")
    assert conversation.config.drafter is None
    assert notes == ["nothing is drafted"] * 2 + ["drafter auto, the default"]


def test_retry_says_where_the_reply_will_be_the_same(actions, conversation, notes):
    say(conversation, "a")
    assert do(actions, "/retry") == Question("a", instead=True)
    assert "at temperature 0 a reply comes out as before" in notes[-1]
    notes.clear()
    with conversation.ask(Question("b")) as reply:
        for _ in reply:
            reply.cancel()
    do(actions, "/retry")  # this one had not come to its end
    assert not notes
    conversation.config = GenerationConfig(temperature=0.5)
    do(actions, "/retry")
    assert not notes


def test_names_of_files_as_a_shell_and_a_terminal_write_them(actions, notes, tmp_path, monkeypatch):
    (tmp_path / "a b.txt").write_text("one")
    (tmp_path / "'a b.txt'").write_text("quotes are part of the name")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ('"a b.txt"', r"a\ b.txt", "~/a b.txt", r"~/a\ b.txt", "'a b.txt'"):
        do(actions, f"/file {name}")
    assert [notes[0]] * 4 == notes[:4] == ["a b.txt, 3 characters, goes with the next message"] * 4
    assert notes[4].startswith("'a b.txt', 27 characters")
    do(actions, r"/save s\ t.json")
    assert (tmp_path / "s t.json").is_file()


def test_clear_says_that_the_conversation_goes_on(actions, conversation, notes):
    do(actions, "/clear")
    assert notes == []
    say(conversation, "a")
    do(actions, "/clear")
    assert notes == ["the conversation goes on; /reset forgets it"]
    assert len(conversation.turns) == 1
