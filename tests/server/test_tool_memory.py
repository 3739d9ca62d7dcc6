"""Tools that come in the middle of a conversation leave its beginning as it was."""

import pytest

from akunu_py.server.conversation import announced
from akunu_py.server.conversation_memory import ToolMemory
from akunu_py.values.messages import Message, Tool

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
    assert memory.arrange("x", [SYSTEM, asked], [A]) == ([SYSTEM, asked], [A])
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
