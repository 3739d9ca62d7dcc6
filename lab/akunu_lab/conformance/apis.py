"""The three APIs as one: a conversation in their formats, and their replies as one value.

What is asked of several APIs is written once, against `Api`. Fields that only one of them has are
in the checks of that API.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from akunu_lab.conformance.client import Event, FailedError

Body = dict[str, Any]
Turns = Sequence[tuple[str, str]]
"""A conversation: roles and texts."""

Tools = Mapping[str, Mapping[str, Any]]
"""Tools: a JSON schema of the arguments by name."""


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A call: the tool's name, its namespace ("" for none), and the arguments as JSON."""

    name: str
    arguments: str
    namespace: str = ""


@dataclass(slots=True)
class ApiReply:
    """A reply; of its usage what the server does not say is None."""

    text: str = ""
    calls: list[ReplyCall] = field(default_factory=list)
    cut: bool = False  # Whether it ended at the limit of tokens.
    prompt: int | None = None  # Tokens, cached ones included.
    cached: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What is asked of any format."""

    model: str
    turns: Turns
    tokens: int
    tools: Tools | None = None
    choice: str = ""  # auto, none, required, or the name of a tool.
    schema: Mapping[str, Any] | None = None  # Of the answer.


class Api(Protocol):
    """One of the formats."""

    path: str

    def body(self, request: ApiRequest) -> Body:
        """Return a request in this format, at temperature 0."""

    def read_body(self, value: Any) -> ApiReply:
        """Return what a whole answer says."""

    def read_stream(self, events: Iterable[Event]) -> ApiReply:
        """Return what a stream says; raises FailedError if it does not end as it should."""

    def is_error(self, value: Any) -> bool:
        """Return whether a body has the shape of the API's errors."""
        return _has_error(value)


class ChatApi(Api):
    """/v1/chat/completions."""

    path = "/v1/chat/completions"

    def body(self, request: ApiRequest) -> Body:
        body: Body = {
            "model": request.model,
            "messages": [{"role": role, "content": text} for role, text in request.turns],
            "max_tokens": request.tokens,
            "temperature": 0,
        }
        if request.tools is not None:
            body["tools"] = [
                {"type": "function", "function": {"name": name, "parameters": parameters}}
                for name, parameters in request.tools.items()
            ]
        if request.choice in {"auto", "none", "required"}:
            body["tool_choice"] = request.choice
        elif request.choice:
            body["tool_choice"] = {"type": "function", "function": {"name": request.choice}}
        if request.schema is not None:
            form = {"name": "answer", "schema": request.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body

    def read_body(self, value: Any) -> ApiReply:
        choice = value["choices"][0]
        message = choice["message"]
        calls = [
            ReplyCall(call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        reply = ApiReply(message.get("content") or "", calls, choice["finish_reason"] == "length")
        return _with_chat_usage(reply, value.get("usage"))

    def read_stream(self, events: Iterable[Event]) -> ApiReply:
        reply, calls, ended = ApiReply(), dict[int, dict[str, str]](), False
        for event in events:
            value = event.value
            if not isinstance(value, dict):
                continue
            if value.get("usage"):
                _with_chat_usage(reply, value["usage"])
            for choice in value.get("choices") or ():
                delta = choice.get("delta") or {}
                reply.text += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    call = calls.setdefault(part["index"], {})
                    function = part.get("function") or {}
                    for name, found in (("name", function.get("name")), ("id", part.get("id"))):
                        if found and name in call:
                            raise FailedError(f"{self.path}: the {name} of a call comes twice")
                        if found:
                            call[name] = found
                    call["arguments"] = call.get("arguments", "") + (
                        function.get("arguments") or ""
                    )
                if choice.get("finish_reason"):
                    ended = True
                    reply.cut = choice["finish_reason"] == "length"
        if not ended:
            raise FailedError(f"{self.path}: the stream ends without a finish_reason")
        reply.calls = [
            ReplyCall(call.get("name", ""), call["arguments"]) for call in calls.values()
        ]
        return reply


class MessagesApi(Api):
    """/v1/messages."""

    path = "/v1/messages"

    def body(self, request: ApiRequest) -> Body:
        body: Body = {
            "model": request.model,
            "messages": [{"role": role, "content": text} for role, text in request.turns],
            "max_tokens": request.tokens,
            "temperature": 0,
        }
        if request.tools is not None:
            body["tools"] = [
                {"name": name, "input_schema": parameters}
                for name, parameters in request.tools.items()
            ]
        if request.choice:
            kinds = {"auto": "auto", "none": "none", "required": "any"}
            kind = kinds.get(request.choice)
            body["tool_choice"] = (
                {"type": kind} if kind else {"type": "tool", "name": request.choice}
            )
        if request.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        return body

    def read_body(self, value: Any) -> ApiReply:
        reply = ApiReply(cut=value["stop_reason"] == "max_tokens")
        for block in value["content"]:
            if block["type"] == "text":
                reply.text += block["text"]
            elif block["type"] == "tool_use":
                reply.calls.append(ReplyCall(block["name"], json.dumps(block["input"])))
        return _with_messages_usage(reply, value["usage"])

    def read_stream(self, events: Iterable[Event]) -> ApiReply:
        reply, usage, block, opened, last = ApiReply(), dict[str, Any](), Body(), -1, ""
        for event in events:
            if not isinstance(event.value, dict):
                continue
            value = event.value
            last = value.get("type", "")
            match last:
                case "message_start":
                    usage = dict(value["message"]["usage"])
                    if not isinstance(usage.get("input_tokens"), int):
                        raise FailedError(f"{self.path}: message_start has no usage.input_tokens")
                case "content_block_start":
                    if block or value["index"] != opened + 1:
                        raise FailedError(f"{self.path}: blocks are not one after the other")
                    opened = value["index"]
                    block = {**value["content_block"], "json": ""}
                case "content_block_delta":
                    if not block or value["index"] != opened:
                        raise FailedError(f"{self.path}: a delta comes without its block")
                    reply.text += value["delta"].get("text") or ""
                    block["json"] += value["delta"].get("partial_json") or ""
                case "content_block_stop":
                    if block.get("type") == "tool_use":
                        reply.calls.append(ReplyCall(block["name"], block["json"] or "{}"))
                    block = {}
                case "message_delta":
                    reply.cut = value["delta"].get("stop_reason") == "max_tokens"
                    usage |= {name: one for name, one in value["usage"].items() if one is not None}
        if last != "message_stop":
            raise FailedError(f"{self.path}: the stream ends without message_stop")
        return _with_messages_usage(reply, usage)

    def is_error(self, value: Any) -> bool:
        """Return whether a body is {"type": "error", "error": {"type": ..., "message": ...}}."""
        return _has_error(value) and value.get("type") == "error"


class ResponsesApi(Api):
    """/v1/responses."""

    path = "/v1/responses"

    def body(self, request: ApiRequest) -> Body:
        body: Body = {
            "model": request.model,
            "input": [
                {"type": "message", "role": role, "content": text} for role, text in request.turns
            ],
            "max_output_tokens": request.tokens,
            "temperature": 0,
            "store": False,
        }
        if request.tools is not None:
            body["tools"] = [
                {"type": "function", "name": name, "parameters": parameters, "strict": False}
                for name, parameters in request.tools.items()
            ]
        if request.choice:
            named = {"type": "function", "name": request.choice}
            body["tool_choice"] = (
                request.choice if request.choice in {"auto", "none", "required"} else named
            )
        if request.schema is not None:
            form = {
                "type": "json_schema",
                "name": "answer",
                "schema": request.schema,
                "strict": True,
            }
            body["text"] = {"format": form}
        return body

    def read_body(self, value: Any) -> ApiReply:
        reply = ApiReply(cut=value["status"] == "incomplete")
        for item in value["output"]:
            self._add(reply, item)
        return _with_responses_usage(reply, value.get("usage"))

    def read_stream(self, events: Iterable[Event]) -> ApiReply:
        reply, last = ApiReply(), None
        for event in events:
            value = event.value if isinstance(event.value, dict) else {}
            if value.get("type") == "response.output_item.done":
                self._add(reply, value["item"])
            elif value.get("type") in {"response.completed", "response.incomplete"}:
                last = value["response"]
        if last is None or not last.get("id"):
            raise FailedError(f"{self.path}: the stream ends without response.completed")
        reply.cut = last["status"] == "incomplete"
        return _with_responses_usage(reply, last.get("usage"))

    @staticmethod
    def _add(reply: ApiReply, item: Mapping[str, Any]) -> None:
        if item["type"] == "message":
            reply.text += "".join(part.get("text") or "" for part in item["content"])
        elif item["type"] == "function_call":
            call = ReplyCall(item["name"], item["arguments"], item.get("namespace") or "")
            reply.calls.append(call)


def _has_error(value: Any) -> bool:
    match value:
        case {"error": {"message": str(), "type": str()}}:
            return True
    return False


def _with_chat_usage(reply: ApiReply, usage: Any) -> ApiReply:
    if isinstance(usage, dict):
        reply.prompt, reply.completion = usage["prompt_tokens"], usage["completion_tokens"]
        reply.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return reply


def _with_messages_usage(reply: ApiReply, usage: Mapping[str, Any]) -> ApiReply:
    reply.cached = usage.get("cache_read_input_tokens")
    created = usage.get("cache_creation_input_tokens") or 0
    reply.prompt = usage["input_tokens"] + (reply.cached or 0) + created
    reply.completion = usage["output_tokens"]
    return reply


def _with_responses_usage(reply: ApiReply, usage: Any) -> ApiReply:
    if isinstance(usage, dict):
        reply.prompt, reply.completion = usage["input_tokens"], usage["output_tokens"]
        reply.cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    return reply


CHAT, MESSAGES, RESPONSES = ChatApi(), MessagesApi(), ResponsesApi()
APIS: tuple[Api, ...] = (CHAT, MESSAGES, RESPONSES)
