"""/v1/responses over HTTP, as Codex and OpenAI's SDK use it; and items that a client refers to by id."""

import itertools
from dataclasses import replace

import pytest
from scripted_server import ACCEPTED, MODEL, USAGE, call, called, events_of, running, said, thought

from akunu_py.server.events import Finished, Logprob, Logprobs
from akunu_py.server.responses.tools import shown_name
from akunu_py.server.security import Access, digests
from akunu_py.values.constraint import Constraint
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

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


def test_usage(server):
    whole = server.post(PATH, ASK).json()["usage"]
    assert streamed(server, ASK)[-1]["response"]["usage"] == whole
    assert whole == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 42,
    }


def test_namespaces_come_back_as_given(server, backend):
    one, two = namespace("mcp__files__", READ), namespace("mcp__web", READ)
    backend.play(
        called((shown_name("mcp__web", "read"), {}), (shown_name("mcp__files__", "read"), {}))
    )
    made = server.post(PATH, ASK | {"tools": [one, two]}).json()["output"]
    assert [item["namespace"] for item in made] == ["mcp__web", "mcp__files__"]
    assert [item["name"] for item in made] == ["read", "read"]
    names = [tool.name for tool in backend.request.tools]
    assert len(set(names)) == 2
    items = [user("x"), function_call("c1", namespace="mcp__web"), output("c1")]
    request = asked(server, items, tools=[one, two])
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
        user("b"),
    ]
    body = {"model": "tiny", "input": items, "tools": tools, "client_metadata": {}, "novel": 1}
    response = server.post(PATH, body)
    assert response.status_code == 200
    for word in ("web_search", "hologram", "compaction", "novel"):
        assert word in response.headers["x-akunu-ignored"]
    assert [message.text for message in backend.request.messages] == ["a", "b"]
    assert [tool.name for tool in backend.request.tools] == ["read"]


def test_tools_that_come_later_are_described_where_they_come(server, backend):
    """The list of tools at the beginning of the prompt stays as it is."""
    search = {"type": "tool_search_call", "call_id": "s", "arguments": {"query": "x"}}
    offered = [namespace("mcp__x", READ), READ]
    found = {"type": "tool_search_output", "call_id": "s", "tools": offered}
    added = {"type": "additional_tools", "role": "developer", "tools": [PATCH, READ]}
    items = [user("a"), search, function_call("c1"), found, output("c1"), added, user("b"), found]
    request = asked(server, items, tools=[READ])
    later = shown_name("mcp__x", "read")
    assert [(tool.name, tool.deferred) for tool in request.tools] == [
        ("read", False), (later, True), ("apply_patch", True)
    ]  # fmt: skip
    assert [message.role for message in request.messages] == [
        "user", "assistant", "tool", "tool", "system", "user", "tool"
    ]  # fmt: skip
    first, _, note, *_, again = (message.text for message in request.messages[2:])
    for text, name in ((first, later), (note, "apply_patch"), (again, later)):
        opens, shown, closes = text.splitlines()
        assert (opens, closes) == ("<functions>", "</functions>")
        assert f'"name": "{name}"' in shown


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
    summary = [{"type": "summary_text", "text": "So."}]
    item = {"type": "reasoning", "encrypted_content": hidden, "summary": summary}
    assert asked(server, [user("a"), item, assistant("b")]).messages[1].reasoning == "So."


def test_instructions_come_before_developer_messages(server):
    developer = {"role": "developer", "content": "Two."}
    later = {"role": "developer", "content": "Later."}
    messages = asked(server, [developer, user("a"), later, user("b")], instructions="One.").messages
    assert [message.role for message in messages] == ["system", "system", "user", "system", "user"]
    assert [message.text for message in messages] == ["One.", "Two.", "a", "Later.", "b"]


def test_json_schema(server):
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    assert asked(server, "a", text={"format": form}).config.constraint == Constraint.json_schema(
        SCHEMA
    )


GREETING = {"type": "message", "role": "user", "content": "Hi"}
NEXT = {"type": "message", "role": "user", "content": "And now?"}
TOOLS = [
    {"type": "function", "name": "read", "parameters": SCHEMA},
    {"type": "namespace", "name": "web", "tools": [{"type": "function", "name": "get"}]},
    {"type": "custom", "name": "patch"},
]


def reference(item):
    return {"type": "item_reference", "id": item["id"]}


def replied(server, *, stream, **fields):
    """The output of a reply; of a stream, the items as they were announced."""
    response = server.post(PATH, {"input": [GREETING], "tools": TOOLS, "stream": stream, **fields})
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()["output"]
    events = [value for _, value in events_of(response)]
    return [value["item"] for value in events if value["type"] == "response.output_item.added"]


def asked_with(server, *items, **fields):
    """The messages that a backend gets."""
    response = server.post(PATH, {"input": [GREETING, *items], "tools": TOOLS, **fields})
    assert response.status_code == 200, response.text
    return server.backend.request.messages


CUTS = {
    "within a text": [ContentDelta("Hello wor")],
    "within thoughts": [ReasoningDelta("Let me")],
    "within a call": call(0, "read", {"path": "abcdefgh"})[:-2],
    "within a patch": call(0, "patch", {"input": "abcdefgh"})[:-2],
    "after a text": [ContentDelta("Hello"), *call(0, "read", {"path": "abc"})[:1]],
}
ENDS = {"limit": Finished("length", USAGE), "error": RuntimeError("x")}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("deltas", CUTS.values(), ids=CUTS)
def test_items_of_cut_replies(server, backend, deltas, end):
    backend.play([ACCEPTED, *deltas, end])
    items = replied(server, stream=True)
    backend.play(said("Yes."))
    _, said_, _ = asked_with(server, *map(reference, items), NEXT)
    assert said_.role == "assistant"
    whole = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    thoughts = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    assert (said_.text, said_.reasoning) == (whole, thoughts)
    assert len(said_.tool_calls) == sum(item["type"].endswith("call") for item in items)


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_kept_without_store(server, backend, stream):
    [item] = replied(server, stream=stream, store=False)
    response = server.post(PATH, {"input": [GREETING, reference(item), NEXT]})
    assert response.status_code == 400
    assert not server.service.items.get(("local", item["id"]))


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_x"},
        {"type": "item_reference"},
        {"type": "item_reference", "id": None},
        {"type": "item_reference", "id": ["msg_x"]},
        {"id": "msg_x"},
    ],
)
def test_an_item_that_is_not_kept_is_refused(server, backend, item):
    response = server.post(PATH, {"input": [GREETING, item, NEXT]})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "input[1].id"
    assert "store: false" in error["message"]
    assert not backend.requests


def test_items_of_another_client_are_not_found():
    keys = [{"authorization": f"Bearer {name * 20}"} for name in "ab"]
    with running(access=Access(key_digests=digests(["a" * 20, "b" * 20]))) as server:
        [item] = server.post(PATH, {"input": "Hi"}, headers=keys[0]).json()["output"]
        body = {"input": [GREETING, reference(item)]}
        statuses = [server.post(PATH, body, headers=key).status_code for key in keys]
    assert statuses == [200, 400]


def test_references_bring_no_more_than_a_body_has(server, backend):
    backend.play([ACCEPTED, ContentDelta("x" * 2**20), Finished("stop", USAGE)])
    [item] = replied(server, stream=False)
    for count, status in ((31, 200), (32, 413)):
        response = server.post(PATH, {"input": [GREETING, *[reference(item)] * count]})
        assert response.status_code == status


def test_log_probabilities_are_not_kept(server, backend):
    logprobs = Logprobs((Logprob("x", b"x", -1.0),))
    backend.play([ACCEPTED, logprobs, ContentDelta("x"), Finished("stop", USAGE)])
    body = {"input": "Hi", "include": ["message.output_text.logprobs"]}
    [item] = server.post(PATH, body).json()["output"]
    assert item["content"][0]["logprobs"]
    assert b'"logprobs":[]' in server.service.items.get(("local", item["id"]))
