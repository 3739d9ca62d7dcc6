"""Calls that were cut off: streamed and whole replies agree, and take them back as history."""

import json
from dataclasses import replace

import jiter  # with which Anthropic's SDK reads the arguments of a stream
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ACCEPTED, USAGE, events_of, said

from akunu_py.server.events import Finished
from akunu_py.server.json_body import begun_object
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.parser import CallParser
from akunu_py.values.messages import Tool
from akunu_py.values.reply_deltas import CallEnd, CallStart, ReasoningDelta, UnfinishedCall

ARGUMENTS = ["null", "[]", '"text"', "NaN", '{"a": NaN}', "Infinity", "", "3", '{"path": "x', "{", None, [], 3, "[" * 100_000]  # fmt: skip
ASK = {"role": "user", "content": "Hi"}


def history(api, arguments):
    if api == "chat":
        function = {"name": "read", "arguments": arguments}
        call = {"id": "c1", "type": "function", "function": function}
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
@pytest.mark.parametrize(
    "arguments", [*ARGUMENTS, {"path": "x"}], ids=lambda value: repr(value)[:12]
)
def test_arguments_that_are_no_object_are_none(server, backend, api, arguments):
    path, body = history(api, arguments)
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    [call] = [call for message in backend.request.messages for call in message.tool_calls]
    assert (call.name, call.arguments) == ("read", arguments if type(arguments) is dict else {})


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
# As each API has a function and a custom tool.
TOOLS = {
    "/v1/chat/completions": [
        {"type": "function", "function": {"name": "read", "parameters": SCHEMA}},
        {"type": "custom", "custom": {"name": "patch"}},
    ],
    "/v1/messages": [{"name": name, "input_schema": SCHEMA} for name in ("read", "patch")],
    "/v1/responses": [
        {"type": "function", "name": "read", "parameters": SCHEMA},
        {"type": "custom", "name": "patch"},
    ],
}
CALLS = """Hi
<tool_call>
{"name": "read", "arguments": {"p": "\\u00fc", "n": [10, true]}}
</tool_call>
<tool_call>
{"name": "patch", "arguments": {"input": "+1\\n"}}
</tool_call>"""


def cut_replies():
    """The scripts of a reply that thinks and writes CALLS, which a limit ends at each place."""
    scripts = {}
    for size in range(len(CALLS) + 1):
        parser = CallParser(HERMES, [Tool("read"), Tool("patch")])
        deltas = [delta for sign in CALLS[:size] for delta in parser.feed(sign)]
        deltas += parser.finish(cut=True)
        said_ = [replace(d, id="c") if isinstance(d, CallStart) else d for d in deltas]
        said_ = [d for d in said_ if not isinstance(d, UnfinishedCall) or d.name]
        shown = [type(d) if isinstance(d, UnfinishedCall | CallEnd) else d for d in said_]
        scripts[repr(shown)] = [ACCEPTED, ReasoningDelta("So."), *said_, Finished("length", USAGE)]
    return list(scripts.values())


def chat_of(events):
    message, calls, reason = {"content": ""}, {}, None
    for _, value in events[:-1]:
        [choice] = value["choices"]
        delta, reason = choice["delta"], choice["finish_reason"]
        message["content"] += delta.get("content", "")
        for part in delta.get("tool_calls", ()):
            call = calls.setdefault(part["index"], {})
            for name, added in part.items():
                assert name not in call or isinstance(added, dict) or name == "index"
                if isinstance(added, dict):
                    texts = call.setdefault(name, {})
                    for field, text in added.items():
                        texts[field] = texts.get(field, "") + text
                elif name != "index":
                    call[name] = added
    return message["content"] or None, list(calls.values()), reason


def message_of(events):
    """What a client makes of a stream; fails where a block is not open, or two are."""
    blocks, reason, is_open = [], None, False
    for name, value in events:
        assert name == value["type"]
        if "index" in value:
            assert is_open == (name != "content_block_start")
            is_open = name != "content_block_stop"
            assert value["index"] == len(blocks) - (name != "content_block_start")
        if name == "content_block_start":
            blocks.append(dict(value["content_block"]))
            arguments = ""
        elif name == "content_block_delta":
            delta = value["delta"]
            arguments += delta.get("partial_json", "")
            for field in {"text", "thinking", "signature"} & set(delta):
                blocks[-1][field] += delta[field]
        elif name == "content_block_stop" and arguments:
            blocks[-1]["input"] = jiter.from_json(arguments.encode(), partial_mode=True)
        elif name == "message_delta":
            reason = value["delta"]["stop_reason"]
    return blocks, reason


def response_of(events):
    items, grown = [], {}
    for number, (name, value) in enumerate(events):
        assert (name, number) == (value["type"], value["sequence_number"])
        kind = name.removeprefix("response.")
        if kind.endswith(".delta"):
            grown[value["item_id"]] = grown.get(value["item_id"], "") + value["delta"]
        elif kind == "output_item.done":
            item = value["item"]
            items.append(item)
            [text] = {
                "reasoning": lambda item: [part["text"] for part in item["summary"]],
                "message": lambda item: [part["text"] for part in item["content"]],
                "function_call": lambda item: [item["arguments"]],
                "custom_tool_call": lambda item: [item["input"]],
            }[item["type"]](item)
            assert grown.get(item["id"], "") == text
            if (item["type"], item["status"]) == ("function_call", "completed"):
                assert isinstance(json.loads(text), dict)
            assert value["output_index"] == len(items) - 1
    assert value["response"]["output"] == items
    incomplete = value["response"]["incomplete_details"]
    assert incomplete in (None, {"reason": "max_output_tokens"})
    assert (incomplete is None) == (value["response"]["status"] == "completed")
    return [item | {"id": ""} for item in items], value["response"]["status"]


def whole_chat(body):
    [choice] = body["choices"]
    message = choice["message"]
    return message["content"] or None, message.get("tool_calls", []), choice["finish_reason"]


FOLDS = {
    "/v1/chat/completions": (chat_of, whole_chat),
    "/v1/messages": (message_of, lambda body: (body["content"], body["stop_reason"])),
    "/v1/responses": (
        response_of,
        lambda body: ([item | {"id": ""} for item in body["output"]], body["status"]),
    ),
}
ENDS = {
    "/v1/chat/completions": "length",
    "/v1/messages": "max_tokens",
    "/v1/responses": "incomplete",
}
FIELDS = {"/v1/responses": "input"}


@pytest.mark.parametrize("path", FOLDS)
def test_streamed_and_whole_replies_agree_wherever_they_are_cut(server, backend, path):
    fold, of_body = FOLDS[path]
    ask = {"tools": TOOLS[path], "max_tokens": 9, FIELDS.get(path, "messages"): [ASK]}
    for script in cut_replies():
        backend.play(script)
        body = server.post(path, ask).json()
        whole, streamed = of_body(body), fold(events_of(server.post(path, ask | {"stream": True})))
        assert streamed == whole
        assert whole[-1] == ENDS[path]
    assert '"read"' in json.dumps(whole)
    assert "+1" in json.dumps(whole)


def sent_back(path, body):
    """A request that goes on after a reply."""
    more = {"role": "user", "content": "Go on."}
    if path == "/v1/responses":
        return {"input": [ASK, *body["output"], more]}
    if path == "/v1/messages":
        said_ = {"role": "assistant", "content": body["content"]}
    else:
        said_ = body["choices"][0]["message"]
    return {"max_tokens": 9, "messages": [ASK, said_, more]}


@pytest.mark.parametrize("path", FOLDS)
def test_cut_replies_are_taken_back(server, backend, path):
    ask = {"tools": TOOLS[path], "max_tokens": 9, FIELDS.get(path, "messages"): [ASK]}
    most = []
    for script in cut_replies()[::5]:
        backend.play(script)
        body = server.post(path, ask).json()
        response = server.post(path, sent_back(path, body) | {"tools": TOOLS[path]})
        assert response.status_code == 200, response.text
        begun = [call.name for message in backend.request.messages for call in message.tool_calls]
        assert begun == ["read", "patch"][: len(begun)]
        most = max(most, begun, key=len)
    assert most == ["read", "patch"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(
    st.dictionaries(st.text(max_size=3), JSON, max_size=3), st.booleans(), st.none() | st.just(1)
)
def test_cut_arguments_are_read_as_clients_read_them(values, ascii_, indent):
    text = json.dumps(values, ensure_ascii=ascii_, indent=indent)
    for size in range(1, len(text) + 1):
        begun = text[:size]
        assert begun_object(begun) == jiter.from_json(begun.encode(), partial_mode=True)


@pytest.mark.parametrize(
    "text", ["", " ", "[1", "null", "}", '{"a" 1', "{'a", '{"a": ' + "[" * 9999]
)
def test_texts_that_begin_no_object_have_no_values(text):
    assert begun_object(text) == {}


def call_history(path, name):
    """A conversation with a call of a name, which may be none that a tool can have."""
    if path == "/api/chat":
        return [ASK, {"role": "assistant", "tool_calls": [{"function": {"name": name}}]}, ASK]
    if path == "/v1/messages":
        use = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
        return [ASK, {"role": "assistant", "content": [use]}, ASK]
    if path == "/v1/responses":
        call = {"type": "function_call", "call_id": "c1", "name": name, "arguments": "{}"}
        return [{"type": "message", **ASK}, call, {"type": "message", **ASK}]
    call = {"id": "c1", "type": "", "function": {"name": name, "arguments": "{}"}}
    return [ASK, {"role": "assistant", "content": None, "tool_calls": [call]}, ASK]


@pytest.mark.parametrize("name", ["functions.read:0", "github/search", "my tool", "", "x" * 2000, "<|im_end|>\n", "读"])  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])  # fmt: skip
def test_any_name_in_the_history_is_taken(server, backend, path, name):
    backend.play(said("Yes."))
    body = {"input" if "responses" in path else "messages": call_history(path, name)}
    response = server.post(path, body | {"max_tokens": 5, "stream": False})
    assert response.status_code == 200, response.text
    [call] = [call for message in backend.request.messages for call in message.tool_calls]
    assert call.name == name


@pytest.mark.parametrize("type_", ["", None, "function", "tool"])
def test_any_type_of_a_call_in_the_history_is_taken(server, backend, type_):
    call = {"type": type_, "function": {"name": "read", "arguments": '{"path": "x"}'}}
    said_ = [ASK, {"role": "assistant", "tool_calls": [call]}, ASK]
    assert server.post("/v1/chat/completions", {"messages": said_}).status_code == 200
    [call] = backend.request.messages[1].tool_calls
    assert (call.name, call.arguments) == ("read", {"path": "x"})
