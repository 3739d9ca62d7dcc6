"""Checks of what a server takes and refuses: probes, unknown fields, errors."""

import re
from typing import Any

from akunu_lab.conformance.apis import CHAT, MESSAGES, RESPONSES
from akunu_lab.conformance.client import FailedError, SkippedError
from akunu_lab.conformance.examined import ExaminedServer

_LISTED = (
    ((CHAT, RESPONSES), ("object", "created", "owned_by"), ()),
    ((MESSAGES,), ("type", "display_name", "created_at"), ("has_more", "first_id", "last_id")),
    ((RESPONSES,), (), ("models",)),
)
"""Formats, and what their clients read of an entry and of the list."""
_MOST_CONTEXT = 1_000_000
_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
_READ = {"type": "object", "properties": {"path": {"type": "string"}}}


def probes(server: ExaminedServer) -> str:
    """Check HEAD of the paths with which Claude Code looks for a server."""
    server.require_api(MESSAGES)
    for path in ("/", "/api/hello", "/v1/models"):
        answer = server.client.call("HEAD", path)
        if answer.status != 200 or answer.body:
            raise FailedError(f"HEAD {path}: {answer.status}, {len(answer.body)} bytes")
    return ""


def model_list(server: ExaminedServer) -> str:
    """Check that the clients of the formats that a server speaks can read the list of models."""
    value = server.client.call("GET", "/v1/models").value
    entries = value["data"]
    if not entries:
        raise FailedError("the list is empty")
    for apis, of_entries, of_list in _LISTED:
        if not set(apis) & set(server.apis):
            continue
        for place, has, needed in (
            ("an entry", entries[0], of_entries),
            ("the list", value, of_list),
        ):
            if missing := [name for name in needed if name not in has]:
                raise FailedError(f"{place} lacks {', '.join(missing)}")
    return f"{len(entries)} names"


def unknown_fields(server: ExaminedServer) -> str:
    """Send a request of Claude Code with all its fields, and one that nobody has heard of."""
    api = server.require_api(MESSAGES)
    cache = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "Say hello.", **cache}
    server.expect_success(f"{api.path}?beta=true", {
        "model": server.model,
        "max_tokens": 1,
        "system": [{"type": "text", "text": "You are an agent.", **cache}],
        "messages": [{"role": "user", "content": [text]}],
        "tools": [
            {"name": "read", "description": "Reads.", "input_schema": _READ, **cache},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "u"},
        "a_field_of_tomorrow": {"x": 1},
    })  # fmt: skip
    counted = server.expect_success(
        f"{api.path}/count_tokens",
        {"model": server.model, "messages": [{"role": "user", "content": "Say hello."}]},
    )
    if not isinstance(counted.value.get("input_tokens"), int):
        raise FailedError("count_tokens answers no input_tokens")
    return ""


def tool_results(server: ExaminedServer) -> str:
    """Send results of tools as Claude Code sends them."""
    api = server.require_api(MESSAGES)
    image = {"type": "base64", "media_type": "image/png", "data": _PIXEL}
    contents: dict[str, dict[str, Any]] = {
        "a text": {"content": "42"},
        "blocks": {"content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]},
        "an error": {"content": "no such file", "is_error": True},
        "nothing": {},
        "an image": {"content": [{"type": "image", "source": image}]},
    }
    for name, content in contents.items():
        call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", **content}
        body = server.body(api, "Read a.", tools={"read": _READ})
        body["messages"] += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        answer = server.client.post(api.path, body)
        refused = name == "an image" and 400 <= answer.status < 500 and api.is_error(answer.value)
        if answer.status != 200 and not refused:
            raise FailedError(f"a result that is {name}: {answer.status} {answer.body[:200]!r}")
    return ""


def foreign_tools(server: ExaminedServer) -> str:
    """Send tools and items that only OpenAI's servers have, and unknown ones."""
    api = server.require_api(RESPONSES)
    body = server.body(api, "Say hello.", tools={"read": _READ})
    kinds = ("web_search", "tool_search", "image_generation", "a_tool_of_tomorrow")
    body["tools"] += [{"type": kind} for kind in kinds]
    body["include"] = ["reasoning.encrypted_content"]
    body["input"] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "an_item_of_tomorrow", "content": "x"},
        *body["input"],
    ]
    server.expect_success(api.path, body)
    return ""


def overflow(server: ExaminedServer) -> str:
    """Check that a prompt longer than the context is refused in the words clients look for."""
    if server.context is None:
        raise SkippedError("the server does not say how long its context is")
    if server.context > _MOST_CONTEXT:
        raise SkippedError(f"a context of {server.context} tokens is too long to fill")
    for api in server.apis:
        said = "word " * (server.context + 500)
        answer = server.expect_refusal(api, server.body(api, said))
        error = answer.value["error"]
        numbers = re.findall(r"\d{2,}", error["message"])
        if api is MESSAGES:
            words = r"prompt is too long: \d+ tokens > \d+ maximum"
            known = re.search(words, error["message"]) is not None
        else:
            known = error.get("code") == "context_length_exceeded" and len(numbers) > 1
        if not known:
            raise FailedError(f"{api.path}: {error.get('code')}, {error['message']:.200}")
    return ""


def errors(server: ExaminedServer) -> str:
    """Check that malformed requests are refused in each API's shape."""
    for api in server.apis:
        server.expect_refusal(api, b"{")
        server.expect_refusal(api, b'{"model": ["x"], "messages": 5, "input": 5}')
        server.expect_refusal(api, {"model": server.model})
    return "not tried: a queue that is full, a model that is loading"


def thinking(server: ExaminedServer) -> str:
    """Turn thinking on and off, and send thoughts back in the fields of each API."""
    efforts = ("none", "low", "high")
    bodies: dict[str, list[dict[str, Any]]] = {
        CHAT.path: [{"reasoning_effort": effort} for effort in efforts],
        RESPONSES.path: [{"reasoning": {"effort": one, "summary": "auto"}} for one in efforts],
        MESSAGES.path: [
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            {"thinking": {"type": "disabled"}},
            {"thinking": {"type": "adaptive"}},
        ],
    }
    for api in server.apis:
        for fields in bodies[api.path]:
            server.expect_success(api.path, {**server.body(api, "Say hello."), **fields})
    said = [("user", "Hi"), ("assistant", "Hello."), ("user", "Again.")]
    for api in server.apis:
        for echoed in _ECHOES[api.path]:
            body = server.body(api, said)
            if api is RESPONSES:
                body["input"].insert(1, echoed)
            elif api is MESSAGES:
                text = {"type": "text", "text": "Hello."}
                body["messages"][1]["content"] = [echoed, text]
            else:
                body["messages"][1] |= echoed
            server.expect_success(api.path, body)
    return "taken; whether they change the reply depends on the model"


_ECHOES: dict[str, list[dict[str, Any]]] = {
    CHAT.path: [
        {"reasoning_content": "A greeting."},
        {"reasoning": "A greeting."},
        {"reasoning_details": [{"type": "reasoning.text", "text": "A greeting."}]},
    ],
    MESSAGES.path: [{"type": "thinking", "thinking": "A greeting.", "signature": "x"}],
    RESPONSES.path: [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A greeting."}],
            "content": None,
            "encrypted_content": None,
        }
    ],
}
