"""Turns and the context of a chat, with an engine that counts words."""

import pytest
from fake_chat import FakeEngine, say

from akunu_py.engine.conversation import Conversation, Question, Turn
from akunu_py.system.errors import ConfigError, ContextOverflowError
from akunu_py.values.messages import Message
from akunu_py.values.types import GenerationConfig


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def conversation(engine):
    return Conversation(engine, GenerationConfig(), None)


def test_turns_go_on_and_replies_are_counted(conversation, engine):
    conversation.system = "be brief"
    say(conversation, "a")
    assert say(conversation, "b").text == "fine thanks"
    assert conversation.turns == (Turn("a", "fine thanks"), Turn("b", "fine thanks"))
    before = [Message("system", "be brief"), Message("user", "a")]
    assert engine.asked[1] == [*before, Message("assistant", "fine thanks"), Message("user", "b")]
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
    assert engine.asked[1][1] == Message("assistant", sent)


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
    assert last[0] == Message("system", "be brief")
    assert [m.text.split()[0] for m in last if m.role == "user"] == ["w4", "w5", "w6"]
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


@pytest.mark.parametrize(("most", "dropped"), [(2, 0), (3, 1)])
def test_a_turn_stays_where_a_short_reply_leaves_room(conversation, most, dropped):
    conversation.config = GenerationConfig(max_tokens=most)
    say(conversation, "a")
    assert say(conversation, "b " * 91).dropped == dropped  # 98 with the turn


def test_another_engine_sees_all_turns_again(conversation, engine):
    for number in range(9):
        say(conversation, f"w{number} " * 10)
    assert conversation.forgotten == 4
    other = FakeEngine()
    other.context = 1000
    conversation.exchange(other)
    assert say(conversation, "a").dropped == 0
    assert len(other.asked[0]) == 2 * 9 + 1
