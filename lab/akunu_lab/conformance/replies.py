"""Checks of replies: calls, forms of answers, seeds."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from akunu_lab.conformance.apis import CHAT, RESPONSES, Api, ApiReply, ReplyCall
from akunu_lab.conformance.client import FailedError, SkippedError
from akunu_lab.conformance.examined import ExaminedServer

# A model that is too weak to write a call still ends these: all values are given.
_PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Zürich", "東京"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_NESTED = {
    "type": "object",
    "properties": {"place": _PLACE, "days": {"enum": [1, 2]}},
    "required": ["place", "days"],
    "additionalProperties": False,
}
_TOOLS: Mapping[str, Mapping[str, Any]] = {"weather": _NESTED, "time": _PLACE}
_QUESTION = "What is the weather in Zürich for two days? Use a tool."
_CALL_TOKENS = 200
_ANSWER = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}, "size": {"enum": [1, 2]}},
    "required": ["color", "size"],
    "additionalProperties": False,
}


def calls(server: ExaminedServer) -> str:
    """Check calls, whole and streamed: valid arguments, names and ids once."""
    for api in server.apis:
        if server.ask(api, "Say hello.", 8).calls:
            raise FailedError(f"{api.path}: a reply without tools has a call")
        body = server.body(api, _QUESTION, _CALL_TOKENS, tools=_TOOLS, choice="required")
        for reply in (server.send(api, body), server.stream(api, body)):
            for call in _required_calls(api, reply):
                _check_arguments(api, call)
    return "parallel and very long calls depend on the model"


def tool_choice(server: ExaminedServer) -> str:
    """Check tool_choice none, required and by name."""
    refused = []
    for api in server.apis:
        reply = server.ask(api, _QUESTION, 30, tools=_TOOLS, choice="none")
        if reply.calls:
            raise FailedError(f"{api.path}: a call in spite of tool_choice none")
        for choice in ("required", "time"):
            body = server.body(api, _QUESTION, _CALL_TOKENS, tools=_TOOLS, choice=choice)
            answer = server.client.post(api.path, body)
            if answer.status == 400 and api.is_error(answer.value):
                refused.append(f"{api.path} refuses {choice}")
                continue
            made = _required_calls(api, server.send(api, body))
            if choice in _TOOLS and {call.name for call in made} != {choice}:
                raise FailedError(f"{api.path}: {made[0].name} was called instead of {choice}")
    return "; ".join(refused)


def cut_call(server: ExaminedServer) -> str:
    """Check that a reply that ends inside of a call says so."""
    for api in server.apis:
        body = server.body(api, _QUESTION, 3, tools=_TOOLS, choice="required")
        for reply in (server.send(api, body), server.stream(api, body)):
            if reply.cut:
                continue  # what it has of the call is a beginning
            if not reply.calls:
                raise FailedError(f"{api.path}: a reply of 3 tokens does not say that it was cut")
            for call in reply.calls:
                _check_arguments(api, call)
    return ""


def namespaces(server: ExaminedServer) -> str:
    """Check two namespaces with a function of the same name, as Codex sends them."""
    api = server.require_api(RESPONSES)
    body = server.body(api, _QUESTION, _CALL_TOKENS)
    member = {"type": "function", "name": "ask", "description": "Asks.", "parameters": _PLACE}
    body["tools"] = [
        {"type": "namespace", "name": name, "description": "A server.", "tools": [member]}
        for name in ("mcp__one", "mcp__two")
    ]
    body["tool_choice"] = "required"
    for call in _required_calls(api, server.send(api, body)):
        if call.name != "ask" or call.namespace not in {"mcp__one", "mcp__two"}:
            raise FailedError(f"the call has the name {call.name!r}, namespace {call.namespace!r}")
    return ""


def custom_tool(server: ExaminedServer) -> str:
    """Check a custom tool with a grammar, as Codex sends apply_patch."""
    api = server.require_api(RESPONSES)
    body = server.body(api, "Do you agree? Use the tool.", _CALL_TOKENS)
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "yes" | "no"'}
    body["tools"] = [
        {"type": "custom", "name": "answer", "description": "Answers.", "format": grammar}
    ]
    body["tool_choice"] = "required"
    output = server.expect_success(api.path, body).value["output"]
    made = [
        item
        for item in output
        if item["type"] == "custom_tool_call" and item.get("status") != "incomplete"
    ]
    if not made:
        raise SkippedError("the model made no call")
    for item in made:
        if item["name"] != "answer" or item["input"] not in {"yes", "no"}:
            raise FailedError(f"the input is {item['input']!r:.100}; the grammar allows yes and no")
    return ""


def answer_schema(server: ExaminedServer) -> str:
    """Check answers by a JSON schema, and that a malformed one is refused."""
    for api in server.apis:
        body = server.body(api, "Which color and size?", _CALL_TOKENS, schema=_ANSWER)
        for reply in (server.send(api, body), server.stream(api, body)):
            _check_answer(api, reply)
        wrong = {"type": "object", "properties": {"x": {"type": "no such type"}}}
        server.expect_refusal(api, server.body(api, "Which?", 8, schema=wrong))
        both = server.body(api, "Which color?", _CALL_TOKENS, schema=_ANSWER, tools=_TOOLS)
        answer = server.client.post(api.path, both)
        if answer.status == 200:
            reply = server.send(api, both)
            if not reply.calls:
                _check_answer(api, reply)
        elif not (answer.status == 400 and api.is_error(answer.value)):
            raise FailedError(f"{api.path}: a schema with tools: {answer.status}")
    return ""


def seeds(server: ExaminedServer) -> str:
    """Check that a seed gives the same text, alone and in company."""
    api = server.require_api(CHAT)
    body = server.body(api, "Tell a story about a river.", 24) | {"temperature": 1.0, "seed": 7}
    alone = server.send(api, body).text
    again = server.send(api, body).text
    others = [{**body, "seed": seed} for seed in (7, 8, 9)]
    with ThreadPoolExecutor(len(others)) as pool:
        company, *_ = pool.map(lambda one: server.send(api, one).text, others)
    for name, text in (("again", again), ("beside two others", company)):
        if text != alone:
            raise FailedError(f"alone {alone!r:.60}, {name} {text!r:.60}")
    return "drafts and batches cannot be turned on and off from outside"


def _required_calls(api: Api, reply: ApiReply) -> list[ReplyCall]:
    """Return the calls of a reply that must have one; raises SkippedError if it was cut before."""
    made = reply.calls[:-1] if reply.cut else reply.calls  # the last one may be a beginning
    if not made:
        if reply.cut:
            raise SkippedError(f"{api.path}: the model ended no call in {_CALL_TOKENS} tokens")
        raise FailedError(f"{api.path}: no call in spite of tool_choice; text: {reply.text!r:.80}")
    return made


def _check_arguments(api: Api, call: ReplyCall) -> None:
    schema = _TOOLS.get(call.name)
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, TypeError):
        raise FailedError(f"{api.path}: arguments are not JSON: {call.arguments!r:.100}") from None
    if schema is None or not _fits(arguments, schema):
        raise FailedError(f"{api.path}: {call.name} does not take {call.arguments:.100}")


def _check_answer(api: Api, reply: ApiReply) -> None:
    if reply.cut:
        raise SkippedError(f"{api.path}: the model ended no answer in {_CALL_TOKENS} tokens")
    try:
        fits = _fits(json.loads(reply.text), _ANSWER)
    except ValueError:
        fits = False
    if not fits:
        raise FailedError(f"{api.path}: the answer does not fit the schema: {reply.text!r:.100}")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value fits one of the schemas above: objects of given values."""
    if "enum" in schema:
        return value in schema["enum"]
    properties = schema["properties"]
    return (
        isinstance(value, dict)
        and value.keys() == properties.keys()
        and all(_fits(one, properties[name]) for name, one in value.items())
    )
