"""Thoughts come back to the replies that they belong to, and to no others."""

from akunu_py.server.conversation_memory import ReasoningMemory
from akunu_py.values.messages import Message, ToolCall

ASKED = (Message("system", "be kind"), Message("user", "why?"))
REPLY = Message("assistant", "because", reasoning="hm")
SENT = Message("assistant", " because\n")


def test_dropped_thoughts_are_put_back():
    thoughts = ReasoningMemory()
    thoughts.remember("a", ASKED, REPLY)
    *_, reply, later = thoughts.restore("a", [*ASKED, SENT, Message("user", "and?")])
    assert reply == Message("assistant", " because\n", reasoning="hm")
    assert later == Message("user", "and?")


def test_calls_count_without_their_ids():
    thoughts = ReasoningMemory()
    made = Message(
        "assistant", tool_calls=(ToolCall("f", {"x": 1, "y": 2}, "one"),), reasoning="hm"
    )
    thoughts.remember("a", ASKED, made)
    back = Message("assistant", tool_calls=(ToolCall("f", {"y": 2, "x": 1}, "two"),))
    assert thoughts.restore("a", [*ASKED, back])[-1].reasoning == "hm"
    other = Message("assistant", tool_calls=(ToolCall("f", {"x": 2, "y": 2}),))
    assert thoughts.restore("a", [*ASKED, other])[-1].reasoning == ""


def test_a_note_that_is_sent_once_does_not_count():
    """Agents put `total_tokens ... left` behind a turn, and leave it out later, or change it."""
    thoughts = ReasoningMemory()
    note, other = (Message("system", f"{count} tokens left") for count in (9, 8))
    thoughts.remember("a", [*ASKED, note], REPLY)
    for said in ([*ASKED, SENT], [*ASKED, note, SENT], [*ASKED, other, SENT]):
        assert thoughts.restore("a", said)[-1].reasoning == "hm"
    assert thoughts.restore("a", [ASKED[0], note, ASKED[1], SENT])[-1].reasoning == ""


def test_other_clients_conversations_and_replies_get_none():
    thoughts = ReasoningMemory()
    thoughts.remember("a", ASKED, REPLY)
    for client, messages in (
        ("b", [*ASKED, SENT]),
        ("a", [*ASKED[1:], SENT]),
        ("a", [*ASKED, Message("assistant", "no")]),
        ("a", [*ASKED, Message("user", "because")]),
    ):
        assert thoughts.restore(client, messages) == tuple(messages)


def test_thoughts_that_a_client_sent_stay():
    thoughts = ReasoningMemory()
    thoughts.remember("a", ASKED, REPLY)
    own = Message("assistant", "because", reasoning="mine")
    assert thoughts.restore("a", [*ASKED, own])[-1] == own
