"""Calls that were cut off come back as history, and must not end the conversation."""

import pytest
from scripted_server import said

ARGUMENTS = ["null", "[]", '"text"', "NaN", '{"a": NaN}', "Infinity", "", "3", '{"path": "x', "{", None, [], 3, "[" * 100_000]  # fmt: skip
ASK = {"role": "user", "content": "Hi"}


def history(api, arguments):
    if api == "chat":
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "read", "arguments": arguments},
        }
        said_ = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "cut"},
        ]
        return "/v1/chat/completions", {"messages": [ASK, *said_, ASK]}
    if api == "messages":
        use = {"type": "tool_use", "id": "c1", "name": "read", "input": arguments}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "cut"}
        said_ = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        return "/v1/messages", {"max_tokens": 5, "messages": [ASK, *said_]}
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": arguments}
    result = {"type": "function_call_output", "call_id": "c1", "output": "cut"}
    return "/v1/responses", {"input": [{"type": "message", **ASK}, call, result]}


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda value: repr(value)[:12])
def test_arguments_that_are_no_object_are_none(server, backend, api, arguments):
    backend.play(said("Yes."))
    path, body = history(api, arguments)
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    [call] = [call for message in backend.request.messages for call in message.tool_calls]
    assert (call.name, call.arguments) == ("read", {})


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_whole_arguments_are_taken_as_they_are(server, backend, api):
    backend.play(said("Yes."))
    path, body = history(api, {"path": "x"})
    assert server.post(path, body).status_code == 200
    [call] = [call for message in backend.request.messages for call in message.tool_calls]
    assert call.arguments == {"path": "x"}
