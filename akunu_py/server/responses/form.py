"""A reply as response object or its stream.

Each item is announced, grows, and is sent whole when it is done; Codex reads calls from the latter
alone. A call that was cut is done with the status "incomplete".
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from akunu_py.server import sse
from akunu_py.server.custom_tools import custom_input
from akunu_py.server.errors import Api, Problem, openai_message
from akunu_py.server.events import Accepted, Addition, Finished, Logprobs, Usage
from akunu_py.server.logprobs import logprob_fields
from akunu_py.server.reply_response import ReplyForm
from akunu_py.server.responses.items import hidden_reasoning
from akunu_py.server.responses.tools import ToolBook
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    UnfinishedCall,
)


@dataclass(slots=True)
class _Reasoning:
    text: str


@dataclass(slots=True)
class _Text:
    text: str


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str = ""
    complete: bool = False


_Part = _Reasoning | _Text | _Call


class ResponseForm(ReplyForm):
    """A reply of `/v1/responses`.

    Args:
        echoed: fields of the request that the response repeats.
        book: the tools that may be called.
        keep: called with each item that the client may refer to later, and with the response.

    """

    api: Api = "openai"
    prompt_field = "input"

    def __init__(
        self,
        echoed: Mapping[str, Any],
        book: ToolBook,
        keep: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._echoed = dict(echoed)
        self._book = book
        self._keep = keep
        self._id = secrets.token_hex(12)
        self._created = int(time.time())
        self._sequence = 0
        self._output: list[dict[str, Any]] = []  # items that are done
        self._open: _Part | None = None
        self._ended = False
        # How likely tokens were: of the open text, and of the addition that comes next.
        self._logprobs: list[dict[str, Any]] = []
        self._next_logprobs: list[dict[str, Any]] = []

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        del accepted
        created = self._event("response.created", response=self._response("in_progress"))
        return created + self.keep_alive()

    def addition(self, delta: Addition) -> bytes:
        match delta:
            case Logprobs(tokens):
                self._next_logprobs += logprob_fields(tokens)
                return b""
            case ReasoningDelta(text):
                return self._grow(_Reasoning(text), "reasoning_summary_text.delta", delta=text)
            case ContentDelta(text):
                logprobs, self._next_logprobs = self._next_logprobs, []
                grown = self._grow(_Text(text), "output_text.delta", delta=text, logprobs=logprobs)
                self._logprobs += logprobs
                return grown
            case CallStart(_, id_, name):
                return self._end_item() + self._announce(_Call(id_, name))
            case ArgumentsDelta(_, text) if isinstance(self._open, _Call):
                return self._added_arguments(self._open, text)
            case CallEnd() if isinstance(self._open, _Call):
                self._open.complete = True
                return self._end_item()
            case UnfinishedCall() if isinstance(self._open, _Call):
                return self._end_item()
            case ArgumentsDelta() | CallEnd() | UnfinishedCall():
                return b""  # of a call that never began

    def keep_alive(self) -> bytes:
        """Return `response.in_progress` again; clients do not count comments."""
        return self._event("response.in_progress", response=self._response("in_progress"))

    def closing(self, finished: Finished) -> bytes:
        """Return the end of the open item and of the response."""
        status = _status(finished)
        ended = self._end_item(status)
        response = self._finished(status, finished)
        return ended + self._event(f"response.{status}", response=response)

    def failing(self, problem: Problem, request_id: str) -> bytes:
        """Return `response.failed`."""
        del request_id
        cut = []
        if self._open is not None:
            # Not sent as done, since clients would act on it; but they know its id.
            self._logprobs = []
            cut = [self._item(self._open, "incomplete")]
            self._keep(cut[0])
        code = problem.code or ("invalid_prompt" if problem.status < 500 else "server_error")
        error = {"code": code, "message": openai_message(problem)}
        response = self._response("failed") | {"error": error}
        if not self._ended:
            self._keep(response | {"output": self._output + cut})
        return self._event("response.failed", response=response)

    def whole(self, finished: Finished) -> dict[str, Any]:
        status = _status(finished)
        self._end_item(status)
        return self._finished(status, finished)

    def _grow(self, part: _Reasoning | _Text, kind: str, **fields: Any) -> bytes:
        """Add a part to the open item, or to a new one if that is of another kind."""
        if isinstance(self._open, _Reasoning | _Text) and type(self._open) is type(part):
            self._open.text += part.text
            opened = b""
        else:
            opened = self._end_item() + self._announce(part)
        return opened + self._part_event(kind, part, **fields)

    def _announce(self, part: _Part) -> bytes:
        self._open = part
        item = self._item(part, "in_progress")
        announced = self._item_event("output_item.added", item=item)
        match part:
            case _Reasoning():
                announced += self._part_event(
                    "reasoning_summary_part.added", part, part=_summary("")
                )
            case _Text():
                announced += self._part_event("content_part.added", part, part=_output_text("", []))
        return announced

    def _added_arguments(self, call: _Call, text: str) -> bytes:
        call.arguments += text
        if self._book.called(call.name).custom:
            # The input is known once its JSON text is complete.
            return b""
        return self._part_event("function_call_arguments.delta", call, delta=text)

    def _end_item(self, status: str = "completed") -> bytes:
        """Return the end of the open item, if one is open; a call that was cut is incomplete."""
        part, self._open = self._open, None
        if part is None:
            return b""
        if isinstance(part, _Call) and not part.complete:
            status = "incomplete"
        item = self._item(part, status)
        match part:
            case _Reasoning(text):
                ended = self._part_event("reasoning_summary_text.done", part, text=text)
                ended += self._part_event("reasoning_summary_part.done", part, part=_summary(text))
            case _Text(text):
                logprobs = self._logprobs
                ended = self._part_event("output_text.done", part, text=text, logprobs=logprobs)
                ended += self._part_event(
                    "content_part.done", part, part=_output_text(text, logprobs)
                )
            case _Call(arguments=arguments):
                if item["type"] == "custom_tool_call":
                    entered = item["input"]
                    ended = self._part_event("custom_tool_call_input.delta", part, delta=entered)
                    ended += self._part_event("custom_tool_call_input.done", part, input=entered)
                else:
                    name = item["name"]
                    ended = self._part_event(
                        "function_call_arguments.done", part, arguments=arguments, name=name
                    )
        ended += self._item_event("output_item.done", item=item)
        self._logprobs = []
        self._keep(self._item(part, status))
        self._output.append(item)
        return ended

    def _item(self, part: _Part, status: str) -> dict[str, Any]:
        """Return a part as an item; its id depends on its place alone."""
        place = len(self._output)
        done = status != "in_progress"
        match part:
            case _Reasoning(text):
                return {
                    "id": f"rs_{self._id}_{place}",
                    "type": "reasoning",
                    "status": status,
                    "summary": [_summary(text)] if done else [],
                    "encrypted_content": hidden_reasoning(text) if done else None,
                }
            case _Text(text):
                return {
                    "id": f"msg_{self._id}_{place}",
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": [_output_text(text, self._logprobs)] if done else [],
                }
            case _Call(id_, shown, arguments):
                tool = self._book.called(shown)
                kind = "custom_tool_call" if tool.custom else "function_call"
                item = {
                    "id": f"{'ctc' if tool.custom else 'fc'}_{self._id}_{place}",
                    "type": kind,
                    "status": status,
                    "call_id": id_,
                    "name": tool.name,
                }
                if tool.namespace:
                    item["namespace"] = tool.namespace
                if tool.custom:
                    return item | {"input": custom_input(arguments) if done else ""}
                return item | {"arguments": arguments if done else ""}

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        return self._event(f"response.{kind}", output_index=len(self._output), **fields)

    def _part_event(self, kind: str, of: _Part, **fields: Any) -> bytes:
        """Return an event of the item that is open, or that was until now."""
        place: dict[str, Any] = {"item_id": self._item(of, "in_progress")["id"]}
        if isinstance(of, _Reasoning):
            place["summary_index"] = 0
        elif isinstance(of, _Text):
            place["content_index"] = 0
        return self._item_event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        return sse.named({"type": kind, "sequence_number": number, **fields})

    def _finished(self, status: str, finished: Finished) -> dict[str, Any]:
        response = self._response(status, finished.usage) | finished.own_fields
        self._keep(response)
        self._ended = True  # the client may leave yet
        return response

    def _response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self._echoed | {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": incomplete,
            "output": list(self._output),
            **({} if usage is None else {"usage": usage_fields(usage)}),
        }


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the usage of a reply."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"
