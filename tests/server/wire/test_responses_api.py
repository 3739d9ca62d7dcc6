"""/v1/responses over HTTP, as Codex and OpenAI's SDK use it."""

import itertools
from dataclasses import replace

import pytest
from scripted_server import (
    ACCEPTED,
    MODEL,
    USAGE,
    Pause,
    call,
    called,
    events_of,
    read_until,
    running,
    said,
    thought,
)

from akunu_py.server.events import Finished
from akunu_py.server.reply_response import Patience
from akunu_py.server.responses.tools import shown_name
from akunu_py.system.errors import ContextOverflowError
from akunu_py.values.constraint import Constraint
from akunu_py.values.reply_deltas import ContentDelta

PATH = "/v1/responses"
ASK = {"model": "tiny", "input": "Hi"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "name": "read", "description": "", "parameters": SCHEMA, "strict": True}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin"'},
}


def namespace(name, *members):
    return {"type": "namespace", "name": name, "description": "", "tools": list(members)}


def streamed(server, body):
    response = server.post(PATH, body | {"stream": True})
    assert response.status_code == 200, response.text
    events = events_of(response)
    assert all(name == value["type"] for name, value in events)
    values = [value for _, value in events]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    return values


def asked(server, items, **fields):
    response = server.post(PATH, {"model": "tiny", "input": items, **fields})
    assert response.status_code == 200, response.text
    return server.backend.request


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "msg_1", "content": content}


def function_call(call_id, name="read", **fields):
    arguments = '{"path": "x"}'
    return {
        "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields
    }  # fmt: skip


def output(call_id, value="out", kind="function_call_output"):
    return {"type": kind, "call_id": call_id, "output": value}


SCRIPTS = {
    "text": said("Hello", " world"),
    "thoughts": thought("Let me see.", "Yes", "."),
    "a call": called(("read", {"path": "a"})),
    "thoughts, text and two calls": called(
        ("read", {"path": 'ü "x" {'}), ("read", {}), before=thought("So.", "Reading.")[1:3]
    ),
    "a patch": called(("apply_patch", {"input": "*** Begin\nü\n"})),
    "nothing": said(),
    "too long": said("Hello", reason="length"),
    "a call and no room for more": [*called(("read", {}))[:-1], Finished("length", USAGE)],
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_stream_and_object_are_equal(server, backend, script):
    backend.play(script)
    body = ASK | {"tools": [READ, PATCH]}
    whole = server.post(PATH, body).json()
    events = streamed(server, body)
    last = events[-1]["response"]
    ids = [item.pop("id") for item in last["output"]]
    assert len(set(ids)) == len(ids)
    for response in (whole, last):
        for name in ("id", "created_at"):
            del response[name]
        for item in response["output"]:
            item.pop("id", None)
    assert last == whole
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    for item in done:
        assert item.pop("id") in ids
    assert done == whole["output"]
    assert whole["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 42,
    }


def test_order_of_a_stream(server, backend):
    backend.play(called(("read", {"path": "a"}), before=thought("So.", "Reading.")[1:3]))
    kinds = [event["type"].removeprefix("response.") for event in streamed(server, ASK)]
    assert kinds == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


def test_deltas_make_up_what_is_done(server, backend):
    backend.play(called(("read", {"path": "abcdefghij"}), before=thought("So.", "A", "b")[1:4]))
    events = streamed(server, ASK)
    for kind, field in (
        ("output_text", "text"),
        ("reasoning_summary_text", "text"),
        ("function_call_arguments", "arguments"),
    ):
        deltas = [event for event in events if event["type"] == f"response.{kind}.delta"]
        [done] = [event for event in events if event["type"] == f"response.{kind}.done"]
        assert "".join(event["delta"] for event in deltas) == done[field]
        places = {(event["item_id"], event["output_index"]) for event in [*deltas, done]}
        assert len(places) == 1


def test_namespaces_come_back_as_given(server, backend):
    one, two = namespace("mcp__files__", READ), namespace("mcp__web", READ)
    backend.play(
        called((shown_name("mcp__web", "read"), {}), (shown_name("mcp__files__", "read"), {}))
    )
    output_items = server.post(PATH, ASK | {"tools": [one, two]}).json()["output"]
    assert [(item["namespace"], item["name"]) for item in output_items] == [
        ("mcp__web", "read"),
        ("mcp__files__", "read"),
    ]
    names = [tool.name for tool in backend.request.tools]
    assert len(set(names)) == 2
    request = asked(
        server,
        [user("x"), function_call("c1", namespace="mcp__web"), output("c1")],
        tools=[one, two],
    )
    assert request.messages[1].tool_calls[0].name == shown_name("mcp__web", "read") == names[1]


def test_names_too_long_for_a_model_stay_apart():
    names = {shown_name("n" * 100, "m" * 60 + end) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 128 for name in names)


def test_apply_patch(server, backend):
    patch = '*** Begin Patch\n+ü "quoted"\n'
    backend.play(called(("apply_patch", {"input": patch})))
    body = ASK | {"tools": [PATCH]}
    [item] = server.post(PATH, body).json()["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", patch)
    assert "arguments" not in item
    request = backend.request
    assert request.tools[0].input_form == Constraint.grammar('start: "*** Begin"')
    assert request.tools[0].parameters["required"] == ["input"]
    events = streamed(server, body)
    [done] = [e for e in events if e["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == patch
    history = [user("x"), item, output(item["call_id"], "Done", "custom_tool_call_output")]
    messages = asked(server, history, tools=[PATCH]).messages
    assert messages[1].tool_calls[0].arguments == {"input": patch}
    assert messages[2].text == "Done"


def test_grammar_that_calls_cannot_follow_is_listed(server, backend):
    assert "x-akunu-ignored" not in server.post(PATH, ASK | {"tools": [PATCH]}).headers
    backend.served = [replace(MODEL, holds_grammars=False)]
    response = server.post(PATH, ASK | {"tools": [PATCH]})
    assert response.headers["x-akunu-ignored"] == "tools.format"
    followed = PATCH | {"format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}
    assert "x-akunu-ignored" not in server.post(PATH, ASK | {"tools": [followed]}).headers
    assert "x-akunu-ignored" not in server.post(PATH, ASK | {"tools": [READ]}).headers


def test_unknown_tools_items_and_fields_are_skipped(server, backend):
    tools = [READ, {"type": "web_search"}, {"type": "tool_search"}, {"type": "hologram"}, {}]
    items = [
        user("a"),
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "x"}},
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"type": "hologram"},
        {"type": "tool_search_call", "call_id": "s", "arguments": {"query": "x"}},
        user("b"),
    ]
    body = {"model": "tiny", "input": items, "tools": tools, "client_metadata": {}, "novel": 1}
    response = server.post(PATH, body)
    assert response.status_code == 200
    for word in ("web_search", "hologram", "compaction", "novel"):
        assert word in response.headers["x-akunu-ignored"]
    assert [message.text for message in backend.request.messages] == ["a", "b"]
    assert [tool.name for tool in backend.request.tools] == ["read"]


def test_tools_that_a_search_found_can_be_called(server, backend):
    found = {"type": "tool_search_output", "call_id": "s", "tools": [namespace("mcp__x", READ)]}
    request = asked(server, [user("a"), found])
    assert [tool.name for tool in request.tools] == [shown_name("mcp__x", "read")]


def test_parts_of_a_turn_are_one_message(server):
    items = [
        user("a"),
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "So."}]},
        assistant("Reading."),
        function_call("c1"),
        function_call("c2"),
        output("c1"),
        assistant("Meanwhile."),
        output("c2", [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]),
        function_call("c3"),
        output("c3"),
        user("b"),
    ]
    messages = asked(server, items).messages
    assert [message.role for message in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "user"
    ]  # fmt: skip
    turn = messages[1]
    assert (turn.reasoning, turn.text) == ("So.", "Reading.\n\nMeanwhile.")
    assert [one.id for one in turn.tool_calls] == ["c1", "c2"]
    assert messages[3].text == "x\ny"


def test_history_grows_at_its_end_only(server, backend):
    """Each request of a session begins with the messages of the one before."""
    items = [user("a"), function_call("c1"), output("c1"), assistant("ok"), user("b")]
    for size in (1, 3, 4, 5):
        asked(server, items[:size])
    grown = [request.messages for request in backend.requests]
    for shorter, longer in itertools.pairwise(grown):
        assert longer[: len(shorter)] == shorter


def test_thoughts_come_back_word_for_word(server, backend):
    thoughts = "Let me see: ü\n\n  twice  "
    backend.play(thought(thoughts, "Yes."))
    items = server.post(PATH, ASK).json()["output"]
    assert items[0]["type"] == "reasoning"
    items[0]["summary"] = []
    assert asked(server, [user("a"), *items]).messages[1].reasoning == thoughts


@pytest.mark.parametrize("hidden", ["gAAAAforeign", "akunu1.%%%", None])
def test_foreign_thoughts_are_read_from_their_summary(server, hidden):
    item = {
        "type": "reasoning",
        "encrypted_content": hidden,
        "summary": [{"type": "summary_text", "text": "So."}],
    }
    assert asked(server, [user("a"), item, assistant("b")]).messages[1].reasoning == "So."


def test_instructions_come_before_developer_messages(server):
    developer = {"role": "developer", "content": "Two."}
    later = {"role": "developer", "content": "Later."}
    messages = asked(server, [developer, user("a"), later, user("b")], instructions="One.").messages
    assert [(message.role, message.text) for message in messages] == [
        ("system", "One."),
        ("system", "Two."),
        ("user", "a"),
        ("system", "Later."),
        ("user", "b"),
    ]


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "read"}, {"name": "read"}),
        ({"type": "custom", "name": "apply_patch"}, {"name": "apply_patch"}),
        (
            {"type": "function", "name": "read", "namespace": "n"},
            {"name": "n__read"},
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "read"}],
            },
            {"mode": "auto", "names": ["read"]},
        ),
    ],
)
def test_tool_choice(server, given, choice):
    tools = [READ, PATCH, namespace("n", READ)]
    assert asked(server, "a", tools=tools, tool_choice=given).tool_choice == choice


def test_json_schema(server):
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    assert asked(server, "a", text={"format": form}).config.constraint == Constraint.json_schema(
        SCHEMA
    )


def test_images_are_refused_clearly(server):
    image = {"type": "input_image", "image_url": "file:///etc/passwd"}
    response = server.post(PATH, {"input": [{"role": "user", "content": [image]}]})
    assert response.status_code == 400
    assert "only text" in response.json()["error"]["message"]


def test_cut_call_is_incomplete(server, backend):
    events = [*call(0, "read", {"path": "a"}), *call(1, "read", {"path": "b"})[:-2]]
    backend.play([ACCEPTED, *events, Finished("length", USAGE)])
    sent = streamed(server, ASK)
    assert sent[-1]["type"] == "response.incomplete"
    response = sent[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert [(item["status"], item["arguments"]) for item in done] == [
        ("completed", '{"path": "a"}'),
        ("incomplete", '{"path"'),
    ]
    assert response["output"] == done


def test_signs_of_life():
    script = [ACCEPTED, Pause(), ContentDelta("x"), Finished("stop", USAGE)]
    with running(patience=Patience(keep_alive_s=0.1)) as server:
        server.backend.play(script)
        sign = "event: response.in_progress"
        kinds = [name for name, _ in read_until(server, PATH, ASK, sign, count=3)]
    assert kinds.count("response.in_progress") >= 3
    assert kinds[-1] == "response.completed"


def test_overflow_has_the_code_that_codex_looks_for(server, backend):
    backend.play([ContextOverflowError("too long", num_tokens=300, context=200)])
    error = server.post(PATH, ASK).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "300" in error["message"]
    assert "200" in error["message"]
