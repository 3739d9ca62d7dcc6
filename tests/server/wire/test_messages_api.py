"""/v1/messages over HTTP, as Claude Code and Anthropic's SDK use it."""

import json

import pytest
from scripted_server import ACCEPTED, USAGE, Pause, events_of, read_until, running, said

from akunu_py.server.events import Accepted, Finished, Prefilled
from akunu_py.server.reply_response import Patience
from akunu_py.values.constraint import Constraint
from akunu_py.values.reply_deltas import ContentDelta

PATH = "/v1/messages"
ASK = {
    "model": "claude-akunu-tiny",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hi"}],
}
TOOL = {
    "name": "read",
    "description": "Reads.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}


def streamed(server, body):
    response = server.post(PATH, body | {"stream": True})
    assert response.status_code == 200, response.text
    events = events_of(response)
    assert all(name == value["type"] for name, value in events)
    return [value for _, value in events]


@pytest.mark.parametrize(
    ("finished", "reason", "sequence"),
    [
        (Finished("stop", USAGE), "end_turn", None),
        (Finished("length", USAGE), "max_tokens", None),
        (Finished("loop", USAGE), "end_turn", None),
        (Finished("stop", USAGE, "END"), "stop_sequence", "END"),
        (Finished("tool_calls", USAGE), "tool_use", None),
    ],
)
def test_stop_reason(server, backend, finished, reason, sequence):
    backend.play([ACCEPTED, ContentDelta("x"), finished])
    body = server.post(PATH, ASK).json()
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, sequence)


EVERYTHING = ASK | {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=a1b2;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        }
    ],
    "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}],
    "thinking": {"type": "enabled", "budget_tokens": 1000},
    "output_config": {"effort": "high"},
    "context_management": {"edits": []},
    "metadata": {"user_id": "u"},
    "brand_new_field": {"x": 1},
}


def test_every_field_of_claude_code_is_taken(server, backend):
    response = server.post(
        PATH + "?beta=true", EVERYTHING, headers={"anthropic-beta": "x", "anthropic-version": "y"}
    )
    assert response.status_code == 200
    ignored = response.headers["x-akunu-ignored"]
    assert "brand_new_field" in ignored
    assert "web_search_20250305" in ignored
    asked = backend.request
    assert [message.text for message in asked.messages] == ["You are an agent.\n\nBe brief.", "Hi"]
    assert [tool.name for tool in asked.tools] == ["read"]
    assert "thinking.budget_tokens" in ignored
    assert (asked.config.thinking, asked.config.effort) == (True, "high")
    assert asked.config.max_tokens == 100


@pytest.mark.parametrize(
    "system",
    ["{}\n\nAgent.", [{"type": "text", "text": "{}"}, {"type": "text", "text": "Agent."}]],
    ids=["line", "block"],
)
def test_billing_line_does_not_change_the_prompt(server, backend, system):
    for cch in ("a1b2", "c3d4"):
        line = f"x-anthropic-billing-header: cch={cch};"
        body = json.dumps(ASK | {"system": system}).replace("{}", line)
        assert server.post(PATH, body.encode()).status_code == 200
    first, second = backend.requests
    assert first == second
    assert first.messages[0].text == "Agent."


def test_deferred_tools_are_described_where_a_result_refers_to_them(server, backend):
    """The list of tools at the beginning of the prompt stays as it is: Claude Code's ToolSearch."""
    deferred = {"name": "fetch", "input_schema": TOOL["input_schema"], "defer_loading": True}
    tools = [TOOL, deferred, deferred | {"name": "placeholder"}]
    assert server.post(PATH, ASK | {"tools": tools}).status_code == 200
    assert [tool.name for tool in backend.request.tools] == ["read"]
    use = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"query": "fetch"}}
    names = ["fetch", "unknown"]
    found = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": found}
    said = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = ASK | {"tools": tools, "messages": ASK["messages"] + said}
    assert server.post(PATH, body).status_code == 200
    assert [(one.name, one.deferred) for one in backend.request.tools] == [
        ("read", False), ("fetch", True)
    ]  # fmt: skip
    first, shown, last = backend.request.messages[-1].text.splitlines()
    assert (first, last) == ("<functions>", "</functions>")
    assert json.loads(shown.removeprefix("<function>").removesuffix("</function>")) == {
        "name": "fetch", "description": "", "parameters": TOOL["input_schema"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("out", "out"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (None, ""),
        ([], ""),
        ([{"type": "tool_reference", "tool_name": "x"}], ""),
    ],
)
@pytest.mark.parametrize("is_error", [False, True])
def test_results_of_tools(server, backend, content, text, is_error):
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": is_error}
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "x"}}
    body = ASK | {
        "messages": [
            ASK["messages"][0],
            {"role": "assistant", "content": [{"type": "text", "text": "Reading."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        ]
    }
    assert server.post(PATH, body).status_code == 200
    _, assistant, tool, user = backend.request.messages
    assert assistant.text == "Reading."
    assert assistant.tool_calls[0].arguments == {"path": "x"}
    assert (tool.role, tool.tool_call_id) == ("tool", "t1")
    told = f"Error: {text}" if text else "the tool failed"
    assert tool.text == (told if is_error else text)
    assert (user.role, user.text) == ("user", "Go on.")


def test_redacted_thoughts_are_skipped(server, backend):
    blocks = [{"type": "redacted_thinking", "data": "xx"}, {"type": "text", "text": "Yes."}]
    body = ASK | {"messages": [*ASK["messages"], {"role": "assistant", "content": blocks}]}
    assert "redacted_thinking" in server.post(PATH, body).headers["x-akunu-ignored"]
    assert backend.request.messages[1].text == "Yes."


def test_json_schema(server, backend):
    schema = {"type": "object"}
    form = {"type": "json_schema", "schema": schema}
    server.post(PATH, ASK | {"output_config": {"format": form}})
    assert backend.request.config.constraint == Constraint.json_schema(schema)


def test_count_tokens(server, backend):
    body = {name: EVERYTHING[name] for name in ("model", "messages", "system", "tools", "thinking")}
    response = server.post(PATH + "/count_tokens", body)
    assert response.json() == {"input_tokens": len("You are an agent.\n\nBe brief.") + len("Hi")}


def test_model_names_of_claude_code_stand_for_the_default(server, backend):
    for name in ("claude-haiku-4-5-20251001", "claude-akunu-tiny", "tiny"):
        assert server.post(PATH, ASK | {"model": name}).status_code == 200
        assert backend.request.model == "tiny"
    response = server.post(PATH, ASK | {"model": "gpt-5"})
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


def test_pings_while_the_prompt_is_read():
    waits = [Accepted(30), *[step for n in range(6) for step in (Prefilled(n), Pause(0.06))]]
    script = [*waits, ContentDelta("x"), Pause(0.2), Finished("stop", USAGE)]
    with running(patience=Patience(keep_alive_s=0.1)) as server:
        server.backend.play(script)
        kinds = [event["type"] for event in streamed(server, ASK)]
    assert kinds[0] == "message_start"
    text = kinds.index("content_block_start")
    assert kinds[1:text].count("ping") >= 2
    assert "ping" in kinds[text:]
    assert set(kinds[1:text]) == {"ping"}


def test_stream_begins_before_the_size_of_the_prompt_is_known():
    with running(patience=Patience(first_s=0.05, keep_alive_s=0.1)) as server:
        server.backend.play([Pause(), *said("x")])
        events = read_until(server, PATH, ASK, "event: ping")
    [start, second, *_, delta, _] = [event for _, event in events]
    assert start["message"]["usage"]["input_tokens"] == 0
    assert second == {"type": "ping"}
    assert delta["usage"]["input_tokens"] == 10


def test_neighbours_are_one_turn(server, backend):
    said = [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")]
    messages = [{"role": role, "content": text} for role, text in said]
    assert server.post(PATH, ASK | {"messages": messages}).status_code == 200
    found = [(message.role, message.text) for message in backend.request.messages]
    assert found[-3:] == [("user", "a\n\nb"), ("assistant", "c\n\nd"), ("user", "e")]


def test_a_last_message_of_the_assistant_is_continued(server, backend):
    messages = [*ASK["messages"], {"role": "assistant", "content": "The answer is"}]
    assert server.post(PATH, ASK | {"messages": messages}).status_code == 200
    assert backend.request.continued
    assert backend.request.messages[-1].text == "The answer is"


@pytest.mark.parametrize(
    "thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}, {}]
)
def test_a_conversation_that_the_server_would_have_is_refused(server, backend, thread):
    for path in (PATH, f"{PATH}/count_tokens"):
        response = server.post(path, ASK | {"thread": thread})
        assert response.status_code == 400
        error = response.json()["error"]
        assert "send the whole one" in error["message"]
        assert error["details"] == {
            "error_code": "thread_unsupported_request", "unsupported": ["thread"],
        }  # fmt: skip
    response = server.post(PATH, ASK | {"compaction": {"type": "summarize"}})
    assert response.status_code == 400
    assert "details" not in response.json()["error"]
    assert not backend.requests
    assert server.post(PATH, ASK | {"thread": None, "compaction": None}).status_code == 200


def test_edits_of_the_conversation_are_listed(server):
    for kind in ("clear_tool_uses_20250919", "compact_20260112", "clear_thinking_20251015"):
        edits = {"context_management": {"edits": [{"type": kind}]}}
        ignored = server.post(PATH, ASK | edits).headers.get("x-akunu-ignored", "")
        assert ignored == ("" if "thinking" in kind else "context_management")
