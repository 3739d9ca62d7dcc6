"""/v1/chat/completions over HTTP: what the backend is asked, and what the client gets."""

import asyncio
import json
import sys
from dataclasses import replace

import pytest
from scripted_server import MODEL, USAGE, Pause, called, events_of, said, thought

from akunu_py.server.events import Accepted, Decoded, Finished, Loading, Prefilled
from akunu_py.server.generation_fields import JSON_OBJECT
from akunu_py.server.reply_response import Patience
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import TEMPLATE_NAMES
from akunu_py.values.messages import TextPart
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

PATH = "/v1/chat/completions"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
BEGUN = [*ASK["messages"], {"role": "assistant", "content": "The answer is "}]
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "I thought"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        "strict": True,
    },
}
OTHER = {"type": "function", "function": {"name": "list"}}


def streamed(server, body):
    response = server.post(PATH, body | {"stream": True})
    assert response.status_code == 200, response.text
    events = events_of(response)
    assert events[-1] == (None, "[DONE]")
    return [value for _, value in events[:-1]]


def joined(chunks, field):
    return "".join(
        chunk["choices"][0]["delta"].get(field) or "" for chunk in chunks if chunk["choices"]
    )


def test_reply_is_an_object(server):
    response = server.post(PATH, ASK)
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    [choice] = body["choices"]
    assert choice["message"]["content"] == "Hello world"
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {
            "reasoning_tokens": 4,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    assert response.headers["x-akunu-cache"] == "reused=20; prefilled=10; note=new text"


def test_stream_has_the_same_text_and_usage(server):
    whole = server.post(PATH, ASK).json()
    chunks = streamed(server, ASK | {"stream_options": {"include_usage": True}})
    assert joined(chunks, "content") == "Hello world"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:-1]] == ["stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert all({"id", "created", "model", "object"} <= chunk.keys() for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_usage_is_streamed_only_if_asked_for(server):
    assert all("usage" not in chunk for chunk in streamed(server, ASK))


def test_thoughts_come_under_both_names(server, backend):
    backend.play(thought("Let me see.", "Yes."))
    message = server.post(PATH, ASK).json()["choices"][0]["message"]
    assert message["content"] == "Yes."
    assert message["reasoning"] == message["reasoning_content"] == "Let me see."
    chunks = streamed(server, ASK)
    assert joined(chunks, "reasoning") == joined(chunks, "reasoning_content") == "Let me see."
    assert joined(chunks, "content") == "Yes."


@pytest.mark.parametrize(
    "echoed",
    [
        {"reasoning": "I thought"},
        {"reasoning_content": "I thought"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "I thought", "index": 0}]},
        {"content": [THOUGHT, {"type": "text", "text": "Yes."}]},
        {
            "content": [
                {"type": "thinking", "thinking": "I thought"},
                {"type": "text", "text": "Yes."},
            ]
        },
    ],
)
def test_thoughts_come_back_under_any_name(server, backend, echoed):
    said_before = {"role": "assistant", "content": "Yes.", **echoed}
    server.post(PATH, ASK | {"messages": [*ASK["messages"], said_before, ASK["messages"][0]]})
    assert backend.request.messages[1].reasoning == "I thought"
    assert backend.request.messages[1].text == "Yes."


def test_tools_and_history_reach_the_backend(server, backend):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "x"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "out"}]},
    ]
    server.post(PATH, {"messages": messages, "tools": [TOOL, OTHER], "parallel_tool_calls": False})
    asked = backend.request
    assert [message.role for message in asked.messages] == ["system", "user", "assistant", "tool"]
    assert asked.messages[1].content == (TextPart("a"), TextPart("b"))
    assert asked.messages[2].tool_calls[0].arguments == {"path": "x"}
    assert asked.messages[3].text == "out"
    assert asked.messages[3].tool_call_id == "c1"
    assert [tool.name for tool in asked.tools] == ["read", "list"]
    assert asked.tools[0].parameters["properties"] == {"path": {"type": "string"}}
    assert not asked.parallel_tool_calls


def test_json_formats(server, backend):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    server.post(PATH, ASK | {"response_format": given})
    assert backend.request.config.constraint == Constraint.json_schema(schema)
    server.post(PATH, ASK | {"response_format": {"type": "json_object"}})
    assert backend.request.config.constraint == Constraint.json_schema({"type": "object"})
    server.post(PATH, ASK | {"response_format": {"type": "text"}})
    assert backend.request.config.constraint is None


@pytest.mark.parametrize(
    ("given", "thinking", "effort"),
    [
        ({"enable_thinking": False}, False, None),
        ({"reasoning": {"effort": "low"}}, None, "low"),
        ({"reasoning": {"enabled": False}}, False, None),
        ({"reasoning_effort": "none"}, None, "none"),
        ({"reasoning_effort": "xhigh"}, None, "xhigh"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, None),
        ({"chat_template_kwargs": {"thinking": True}}, True, None),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}}, None, "low"),
        ({"thinking": {"type": "disabled"}}, False, None),
        ({"thinking": {"type": "enabled"}}, True, None),
        ({"thinking": {"type": "adaptive"}}, None, None),
        ({}, None, None),
    ],
)
def test_thinking(server, backend, given, thinking, effort):
    assert server.post(PATH, ASK | given).status_code == 200
    config = backend.request.config
    assert (config.thinking, config.effort) == (thinking, effort)


def test_variables_of_the_template_are_passed_on(server, backend):
    given = {"enable_thinking": False, "documents": [{"text": "a"}], "custom": {"x": [1, None]}}
    response = server.post(PATH, ASK | {"chat_template_kwargs": given | {"other": None}})
    assert response.status_code == 200
    assert backend.request.config.template_variables == given
    assert backend.request.config.thinking is False


def test_variables_of_the_template_have_limits(server, backend):
    for name in TEMPLATE_NAMES:
        response = server.post(PATH, ASK | {"chat_template_kwargs": {name: "x"}})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "chat_template_kwargs"
        assert name in response.json()["error"]["message"]
    deep = 1
    for _ in range(900):
        deep = [deep]
    levels = json.loads("[" * 80 + "]" * 80)
    long = ("y" * 2**17, "at most 131,072 in 64")
    for value, told in (long, (deep, "too deep"), (levels, "in 81 levels")):
        response = server.post(PATH, ASK | {"chat_template_kwargs": {"x": value}})
        assert response.status_code == 400
        assert told in response.json()["error"]["message"]
    assert not backend.requests


def test_wishes_that_the_template_cannot_heed_are_listed(server, backend):
    backend.served = [replace(MODEL, heeds=frozenset({"thinking"}))]
    asked = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}
    response = server.post(PATH, ASK | asked)
    assert response.headers["x-akunu-ignored"] == "reasoning_effort"
    response = server.post(PATH, ASK | {"reasoning_effort": "none"})
    assert "x-akunu-ignored" not in response.headers


@pytest.mark.parametrize("stream", [False, True])
def test_wishes_to_a_model_that_is_loaded_first_are_listed(server, backend, stream):
    """What its template heeds is known once it is there."""
    backend.served = [replace(MODEL, loaded=False)]

    def script(request):
        yield Loading("tiny")
        backend.served = [replace(MODEL, heeds=frozenset(), holds_grammars=False)]
        yield from said("Hello")

    backend.scripts = script
    asked = {"reasoning_effort": "low", "tools": [custom()], "stream": stream}
    response = server.post(PATH, ASK | asked)
    assert response.status_code == 200
    assert response.headers["x-akunu-ignored"] == "reasoning_effort, tools.format"


def test_other_unknown_fields_are_ignored_and_listed(server):
    body = ASK | {"user": "me", "store": True, "logprobs": False, "n": 1, "mystery": 3, "x-y": []}
    response = server.post(PATH, body)
    assert response.status_code == 200
    assert response.headers["x-akunu-ignored"] == "mystery, x-y"


def test_figures_only_for_those_who_ask(server):
    assert not {"timings", "metrics"} & server.post(PATH, ASK).json().keys()
    body = server.post(PATH, ASK | {"akunu": {"metrics": True}}).json()
    assert body["timings"]["draft_n"] == 9
    assert body["timings"]["draft_n_accepted"] == 7
    assert body["timings"]["prompt_n"] == 10
    assert body["timings"]["prompt_per_second"] == 20
    assert body["timings"]["predicted_per_second"] == 6
    drafts = body["metrics"]["speculative_decoding"]
    assert drafts["acceptance_histogram"] == [0, 2, 1, 1]
    assert sum(n * count for n, count in enumerate(drafts["acceptance_histogram"])) == 7
    assert streamed(server, ASK | {"timings_per_token": True})[-1]["timings"] == body["timings"]


def test_loop_ends_with_stop(server, backend):
    backend.play(said("la la", reason="loop"))
    assert server.post(PATH, ASK).json()["choices"][0]["finish_reason"] == "stop"


def test_defaults_of_the_server_hold_where_a_request_says_nothing():
    from scripted_server import running

    from akunu_py.values.generation_config import GenerationConfig

    with running(defaults=GenerationConfig(temperature=0.7, top_k=20)) as server:
        server.post(PATH, ASK | {"top_k": 3})
        assert server.backend.request.config == GenerationConfig(temperature=0.7, top_k=3)


@pytest.mark.parametrize(
    "content",
    ["the old text", [{"type": "text", "text": "the old "}, {"type": "text", "text": "text"}]],
)
def test_prediction_is_handed_on(server, backend, content):
    given = {"type": "content", "content": content}
    assert server.post(PATH, ASK | {"prediction": given}).status_code == 200
    assert backend.request.prediction == "the old text"
    server.post(PATH, ASK)
    assert backend.request.prediction == ""


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        ({"guided_json": {"type": "object"}}, Constraint.json_schema({"type": "object"})),
        ({"guided_regex": "[a-z]+"}, Constraint.regex("[a-z]+")),
        ({"guided_choice": ["a", "b"]}, Constraint.choices(["a", "b"])),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Constraint.choices(["a", "b"])),
        (
            {"structured_outputs": {"grammar": "start: A\nA: /::=/"}},
            Constraint.grammar("start: A\nA: /::=/"),
        ),
        ({"structured_outputs": {"json_object": True}}, JSON_OBJECT),
        ({"structured_outputs": {"json_object": False}}, None),
        ({"guided_grammar": 'start: "a"'}, Constraint.grammar('start: "a"')),
        ({"regex": "[a-z]+"}, Constraint.regex("[a-z]+")),
        ({"json_schema": {"type": "array"}}, Constraint.json_schema({"type": "array"})),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "array"}}},
            Constraint.json_schema({"type": "array"}),
        ),
    ],
)
def test_forms_of_other_servers(server, backend, given, constraint):
    assert server.post(PATH, ASK | given).status_code == 200
    assert backend.request.config.constraint == constraint


def test_values_of_other_servers_that_mean_no_limit(server, backend):
    assert server.post(PATH, ASK | {"max_tokens": -1, "top_k": -1, "seed": -1}).status_code == 200
    config = backend.request.config
    assert (config.max_tokens, config.top_k, config.seed) == (None, 0, None)


def test_reply_without_content_or_calls_is_empty(server, backend):
    before = [*ASK["messages"], {"role": "assistant", "content": None}, *ASK["messages"]]
    assert server.post(PATH, ASK | {"messages": before}).status_code == 200
    assert backend.request.messages[1].text == ""


READ_AND_DRAFTED = [
    Accepted(30, 20, "new text"),
    Prefilled(24),
    Prefilled(30),
    Decoded(1, 1),
    ReasoningDelta("So: "),
    Decoded(4, 2),
    ContentDelta("one two", "prompt"),
    ContentDelta(" three"),
    Finished("stop", USAGE),
]


@pytest.mark.parametrize("late", [False, True])
def test_progress_of_the_prompt_has_llama_cpps_fields(server, backend, monkeypatch, late):
    monkeypatch.setattr(server.service, "patience", Patience(first_s=0.01))
    backend.play([*([Pause(0.05)] if late else []), *READ_AND_DRAFTED])
    chunks = streamed(server, ASK | {"return_progress": True})
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    found = [(one["total"], one["cache"], one["processed"]) for one in progress]
    assert found == [(30, 20, 20), (30, 20, 24), (30, 20, 30)]
    assert all(isinstance(one["time_ms"], int) and one["time_ms"] >= 0 for one in progress)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert joined(chunks, "content") == "one two three"
    response = server.post(PATH, ASK | {"return_progress": True})
    assert "x-akunu-ignored" not in response.headers
    assert "prompt_progress" not in response.json()


def custom(definition="start: /[a-z]+/", syntax="lark"):
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": "patch", "description": "x", "format": grammar}}


def test_custom_tools(server, backend):
    patch = '*** Begin\nü "quoted"\n'
    backend.play(called(("patch", {"input": patch}), ("read", {"path": "a"})))
    body = ASK | {"tools": [custom(), TOOL]}
    choice = {"type": "custom", "custom": {"name": "patch"}}
    message = server.post(PATH, body | {"tool_choice": choice}).json()["choices"][0]["message"]
    one, other = message["tool_calls"]
    assert message["content"] is None
    assert one["custom"] == {"name": "patch", "input": patch}
    assert (one["type"], other["type"]) == ("custom", "function")
    assert json.loads(other["function"]["arguments"]) == {"path": "a"}
    assert backend.request.tools[0].input_form == Constraint.grammar("start: /[a-z]+/")
    assert backend.request.tool_choice == {"name": "patch"}
    pieces = [
        call
        for chunk in streamed(server, body)
        for call in chunk["choices"][0]["delta"].get("tool_calls", ())
    ]
    begun, given = (piece for piece in pieces if piece["index"] == 0)
    assert (begun["id"], begun["type"], begun["custom"]["name"]) == (one["id"], "custom", "patch")
    assert given["custom"] == {"input": patch}
    result = {"role": "tool", "tool_call_id": one["id"], "content": "Done"}
    history = [*ASK["messages"], message, result]
    assert server.post(PATH, body | {"messages": history}).status_code == 200
    assert backend.request.messages[1].tool_calls[0].arguments == {"input": patch}


def test_grammar_that_calls_cannot_follow_is_refused(server, backend):
    assert server.post(PATH, ASK | {"tools": [custom()]}).status_code == 200
    backend.served = [replace(MODEL, holds_grammars=False)]
    response = server.post(PATH, ASK | {"tools": [TOOL, custom()]})
    assert response.status_code == 400
    assert "the input of patch as JSON" in response.json()["error"]["message"]
    tool = custom("[a-z]+", "regex")
    assert server.post(PATH, ASK | {"tools": [tool]}).status_code == 200
    assert backend.request.tools[0].input_form == Constraint.regex("[a-z]+")


@pytest.mark.parametrize("stream", [False, True])
def test_parts_of_a_tool_that_cannot_be_enforced_are_listed(server, backend, monkeypatch, stream):
    """They are looked for in a thread: that may take a while, and others are answered meanwhile."""

    def looked_at(tools):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return enforceable(tools)

    monkeypatch.setattr("akunu_py.server.incoming.enforceable", looked_at)
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    function = {"name": "find", "parameters": schema}
    backend.play(said("No."))
    tools = [{"type": "function", "function": function}]
    response = server.post(PATH, ASK | {"tools": tools, "stream": stream})
    ignored = "tools.find.parameters.properties.tags.uniqueItems"
    assert response.headers["x-akunu-ignored"] == ignored
    assert backend.request.tools[0].parameters == schema
    function["strict"] = True
    error = server.post(PATH, ASK | {"tools": tools, "stream": stream}).json()["error"]
    assert error["param"] == "tools"
    assert error["message"].startswith(f"the tool 'find' is strict, and {ignored} cannot")


def test_arguments_that_the_model_cannot_write_are_listed(server, backend):
    def unwritten(tools):
        return [f"tools.{tool.name}.parameters.properties.a b" for tool in tools]

    backend.served = [replace(MODEL, unwritten=unwritten)]
    response = server.post(PATH, ASK | {"tools": [OTHER]})
    assert response.headers["x-akunu-ignored"] == "tools.list.parameters.properties.a b"


def test_numbers_of_a_schema_beyond_the_range_are_the_largest(server, backend):
    schema = {"properties": {"x": {"maximum": "LARGE", "enum": ["-LARGE", 2.5]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = json.dumps(ASK | {"tools": [tool]}).replace('"LARGE"', "1e400")
    response = server.post(PATH, body.replace('"-LARGE"', "-1e999").encode())
    assert response.status_code == 200, response.text
    largest = sys.float_info.max
    found = backend.request.tools[0].parameters["properties"]["x"]
    assert found == {"maximum": largest, "enum": [-largest, 2.5]}


@pytest.mark.parametrize(
    ("fields", "continued"),
    [
        ({}, True),
        ({"continue_final_message": True}, True),
        ({"add_generation_prompt": False}, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, True),
        ({"continue_final_message": False}, False),
        ({"add_generation_prompt": True}, False),
    ],
)
def test_a_last_message_of_the_assistant_is_continued(server, backend, fields, continued):
    assert server.post(PATH, ASK | {"messages": BEGUN} | fields).status_code == 200
    assert backend.request.continued == continued
    assert backend.request.messages[-1].text == "The answer is "
