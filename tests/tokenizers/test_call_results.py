"""Results that come in another order than their calls, which most templates write without ids."""

import pytest

from akunu_py.tokenizers.accepted_turns import in_order_of_calls
from akunu_py.values.messages import Message, ToolCall


def called(*ids, name="f"):
    return Message("assistant", tool_calls=tuple(ToolCall(name + id_, {}, id_) for id_ in ids))


def result(id_="", text="", name=""):
    return Message("tool", text or id_, tool_call_id=id_, name=name)


def texts(messages):
    return [message.text for message in messages if message.role != "assistant"]


USER = Message("user", "u")
ORDERS = {
    "by id": ([called("a", "b"), result("b"), result("a")], ["a", "b"]),
    "in two messages": ([called("a"), called("b"), result("b"), result("a")], ["a", "b"]),
    "a text between": ([called("a", "b"), result("b"), USER, result("a")], ["a", "u", "b"]),
    "one without an id": ([called("a", "b"), result("b"), result(text="1")], ["1", "b"]),
    "an unknown id": ([called("a", "b"), result("b"), result("x")], ["x", "b"]),
    "by the tool's name, as Ollama has it": (
        [
            Message("assistant", tool_calls=(ToolCall("one"), ToolCall("two"), ToolCall("two"))),
            result(text="1", name="two"),
            result(text="2", name="one"),
            result(text="3", name="two"),
        ],
        ["2", "1", "3"],
    ),
    "no labels": ([called("a", "b"), result(text="1"), result(text="2")], ["1", "2"]),
    "the same id twice": (
        [called("a", "a"), result("a", "1"), result("a", "2"), result("a", "3")],
        ["1", "2", "3"],
    ),
    "the same id twice, and names": (
        [
            Message("assistant", tool_calls=(ToolCall("one", {}, "a"), ToolCall("two", {}, "a"))),
            result("a", "1", "two"),
            result("a", "2"),
            result("a", "3", "two"),
        ],
        ["2", "1", "3"],
    ),
    "one has two": (
        [called("a", "b"), result("b", "1"), result("b", "2"), result("a")],
        ["a", "1", "2"],
    ),
    "the first has none": ([called("a", "b"), result("b")], ["(no result)", "b"]),
    "the last has none": ([called("a", "b"), result("a"), USER], ["a", "u"]),
    "too many": ([called("a"), result("x"), result("a")], ["a", "x"]),
    "an id of an earlier turn": (
        [called("a"), result("a", "1"), called("b", "a"), result("a", "2"), result("b", "3")],
        ["1", "3", "2"],
    ),
    "calls that were given up": ([called("a"), USER, called("b"), result("b")], ["u", "b"]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_results_are_in_the_order_of_their_calls(name):
    said, wanted = ORDERS[name]
    assert texts(in_order_of_calls(said)) == wanted
    assert in_order_of_calls(in_order_of_calls(said)) == in_order_of_calls(said)


def test_results_without_an_id_get_that_of_their_call():
    *_, one, two = in_order_of_calls([called("a", "b"), result("b"), result(text="1")])
    assert (one.tool_call_id, two.tool_call_id) == ("a", "b")
