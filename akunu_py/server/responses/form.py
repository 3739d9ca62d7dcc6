"""A reply as response object or its stream.

Each item is announced, grows, and is sent whole when it is done. Codex reads calls from the latter
alone, so a call that was cut is never sent as done.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from akunu_py.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    UnfinishedCall,
)
from akunu_py.server import sse
from akunu_py.server.chances import chance_fields
from akunu_py.server.custom_tools import custom_input
from akunu_py.server.errors import Api, Problem, openai_message
from akunu_py.server.events import Accepted, Addition, Chances, Finished, Usage
from akunu_py.server.responses.items import hidden_thoughts
from akunu_py.server.responses.tools import ToolBook
from akunu_py.server.whole_reply import Call, Text, Thoughts, WholeReply


class ResponseForm:
    """A reply of `/v1/responses`.

    Args:
        echoed: fields of the request that the response repeats.
        book: the tools that may be called.

    """

    api: Api = "openai"
    prompt_field = "input"

    def __init__(self, echoed: Mapping[str, Any], book: ToolBook) -> None:
        self._echoed = dict(echoed)
        self._book = book
        self._id = secrets.token_hex(12)
        self._created = int(time.time())
        self._sequence = 0
        self._output: list[dict[str, Any]] = []  # items that are done
        self._open: Thoughts | Text | Call | None = None
        self._open_calls: dict[int, Call] = {}
        # How likely tokens were: of the open text, and of the addition that comes next.
        self._chances: list[dict[str, Any]] = []
        self._next_chances: list[dict[str, Any]] = []

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        del accepted
        created = self._event("response.created", response=self._response("in_progress"))
        return created + self.alive()

    def addition(self, delta: Addition) -> bytes:
        """Return the events of an addition, with the borders of items."""
        match delta:
            case Chances(tokens):
                self._next_chances += chance_fields(tokens)
                return b""
            case ReasoningDelta(text):
                return self._grow(Thoughts(text), "reasoning_summary_text.delta", delta=text)
            case ContentDelta(text):
                chances, self._next_chances = self._next_chances, []
                grown = self._grow(Text(text), "output_text.delta", delta=text, logprobs=chances)
                self._chances += chances
                return grown
            case CallStart(index, id_, name):
                call = Call(id_, name)
                self._open_calls[index] = call
                return self._end_item() + self._announce(call)
            case ArgumentsDelta(index, text):
                return self._added_arguments(self._open_calls[index], text)
            case CallEnd(index):
                self._open_calls[index].complete = True
                return self._end_item()
            case UnfinishedCall():
                return b""

    def alive(self) -> bytes:
        """Return `response.in_progress` again; clients do not count comments."""
        return self._event("response.in_progress", response=self._response("in_progress"))

    def closing(self, finished: Finished) -> bytes:
        """Return the end of the open item and of the response."""
        status = _status(finished)
        ended = self._end_item(status)
        response = self._response(status, finished.usage)
        return ended + self._event(f"response.{status}", response=response)

    def failing(self, problem: Problem, request_id: str) -> bytes:
        """Return `response.failed`."""
        del request_id
        code = problem.code or ("invalid_prompt" if problem.status < 500 else "server_error")
        error = {"code": code, "message": openai_message(problem)}
        response = self._response("failed") | {"error": error}
        return self._event("response.failed", response=response)

    def whole(self, reply: WholeReply, finished: Finished) -> dict[str, Any]:
        """Return the response."""
        status = _status(finished)
        self._chances = chance_fields(reply.chances)
        for part in reply.parts:
            if not isinstance(part, Call) or part.complete:
                last = part is reply.parts[-1]
                self._output.append(self._item(part, status if last else "completed"))
                if isinstance(part, Text):
                    self._chances = []
        return self._response(status, finished.usage)

    def _grow(self, part: Thoughts | Text, kind: str, **fields: Any) -> bytes:
        """Add a part to the open item, or to a new one if that is of another kind."""
        if isinstance(self._open, Thoughts | Text) and type(self._open) is type(part):
            self._open.text += part.text
            opened = b""
        else:
            opened = self._end_item() + self._announce(part)
        return opened + self._part_event(kind, part, **fields)

    def _announce(self, part: Thoughts | Text | Call) -> bytes:
        self._open = part
        item = self._item(part, "in_progress")
        announced = self._item_event("output_item.added", item=item)
        match part:
            case Thoughts():
                announced += self._part_event(
                    "reasoning_summary_part.added", part, part=_summary("")
                )
            case Text():
                announced += self._part_event("content_part.added", part, part=_output_text("", []))
        return announced

    def _added_arguments(self, call: Call, text: str) -> bytes:
        call.arguments += text
        if self._book.called(call.name).custom:
            # The input is known once its JSON text is complete.
            return b""
        return self._part_event("function_call_arguments.delta", call, delta=text)

    def _end_item(self, status: str = "completed") -> bytes:
        """Return the end of the open item; of a call that was cut, nothing."""
        part, self._open = self._open, None
        if part is None or (isinstance(part, Call) and not part.complete):
            return b""
        item = self._item(part, status)
        match part:
            case Thoughts(text):
                ended = self._part_event("reasoning_summary_text.done", part, text=text)
                ended += self._part_event("reasoning_summary_part.done", part, part=_summary(text))
            case Text(text):
                chances = self._chances
                ended = self._part_event("output_text.done", part, text=text, logprobs=chances)
                ended += self._part_event(
                    "content_part.done", part, part=_output_text(text, chances)
                )
            case Call(arguments=arguments):
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
        self._output.append(item)
        self._chances = []
        return ended

    def _item(self, part: Thoughts | Text | Call, status: str) -> dict[str, Any]:
        """Return a part as an item; its id depends on its place alone."""
        place = len(self._output)
        done = status != "in_progress"
        match part:
            case Thoughts(text):
                return {
                    "id": f"rs_{self._id}_{place}",
                    "type": "reasoning",
                    "status": status,
                    "summary": [_summary(text)] if done else [],
                    "encrypted_content": hidden_thoughts(text) if done else None,
                }
            case Text(text):
                return {
                    "id": f"msg_{self._id}_{place}",
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": [_output_text(text, self._chances)] if done else [],
                }
            case Call(id_, shown, arguments):
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

    def _part_event(self, kind: str, of: Thoughts | Text | Call, **fields: Any) -> bytes:
        """Return an event of the item that is open, or that was until now."""
        place: dict[str, Any] = {"item_id": self._item(of, "in_progress")["id"]}
        if isinstance(of, Thoughts):
            place["summary_index"] = 0
        elif isinstance(of, Text):
            place["content_index"] = 0
        return self._item_event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        return sse.named({"type": kind, "sequence_number": number, **fields})

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
            "usage": None if usage is None else usage_fields(usage),
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


def _output_text(text: str, chances: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": chances}


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"
