"""Thoughts and tools that come in the middle of a conversation stay where they were."""

import pytest

from akunu_py.server.conversation import announced
from akunu_py.server.conversation_memory import ReasoningMemory, ToolMemory
from akunu_py.values.messages import Message, Tool, ToolCall

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


SYSTEM, ASKED = Message("system", "be kind"), Message("user", "why?")
REMINDED = Message("user", "why?\n<system-reminder>now</system-reminder>")
REPLY, RESULT = Message("assistant", "because"), Message("tool", "done")
MORE, LAST = Message("assistant", "and"), Message("user", "so?")
A, B, C, OTHER_A = Tool("a"), Tool("b"), Tool("c"), Tool("a", "another")
FOUND = Tool("d", deferred=True)


def names(tools):
    return "".join(tool.name.upper() if tool.deferred else tool.name for tool in tools)


@pytest.mark.parametrize("asked", [ASKED, REMINDED])
def test_later_tools_are_told_of_where_they_came(asked):
    memory = ToolMemory()
    first = memory.arrange("x", [SYSTEM, asked], [A])
    assert first == ([SYSTEM, asked], [A])
    told = [Message("system", announced([tool])) for tool in (B, C)]
    for messages, tools, expected, arranged in (
        ([REPLY, RESULT], [B, A], [REPLY, RESULT, told[0]], "aB"),
        ([REPLY, RESULT, MORE, LAST], [C, B, A], [REPLY, RESULT, told[0], MORE, LAST, told[1]], "aCB"),
        ([REPLY, RESULT, MORE, LAST, MORE], [A, B, C, FOUND],
         [REPLY, RESULT, told[0], MORE, LAST, told[1], MORE], "aDCB"),
    ):  # fmt: skip
        said, found = memory.arrange("x", [SYSTEM, ASKED, *messages], tools)
        assert said == [SYSTEM, ASKED, *expected]
        assert names(found) == arranged


@pytest.mark.parametrize(
    ("client", "messages", "tools"),
    [
        ("y", [SYSTEM, ASKED, REPLY, RESULT], [A, B, C]),
        ("x", [SYSTEM, LAST, REPLY, RESULT], [A, B, C]),
        ("x", [SYSTEM, ASKED], [B, A, C]),  # no reply since
        ("x", [SYSTEM, ASKED, REPLY, RESULT], [A, C]),
        ("x", [SYSTEM, ASKED, REPLY, RESULT], [OTHER_A, B, C]),
        ("x", [SYSTEM, ASKED, REPLY], [A, B, C]),  # is continued
        ("x", [SYSTEM, ASKED, REPLY, RESULT], []),
    ],
)
def test_others_are_listed_at_the_beginning(client, messages, tools):
    memory = ToolMemory()
    memory.arrange("x", [SYSTEM, ASKED], [A, B])
    assert memory.arrange(client, messages, tools) == (messages, tools)
