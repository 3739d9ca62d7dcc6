"""A reply in Ollama's form: lines of JSON, the last with counts and with times in nanoseconds."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from akunu_py.server import sse
from akunu_py.server.errors import Api, Problem, ollama_error
from akunu_py.server.events import Accepted, Addition, Finished, Logprob, Logprobs, Progress
from akunu_py.server.logprobs import logprob_fields
from akunu_py.server.reply_response import ReplyForm
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    UnfinishedCall,
)
from akunu_py.values.types import FinishReason

HEADERS = {**sse.HEADERS, "content-type": "application/x-ndjson"}

_FINISH: Mapping[FinishReason, str] = {
    "stop": "stop", "length": "length", "loop": "stop", "tool_calls": "stop",
}  # fmt: skip

_encode = msgspec.json.Encoder().encode


def line(value: Mapping[str, Any]) -> bytes:
    """Return an object as a line."""
    return _encode(value) + b"\n"


def written_time(since_1970_s: float) -> str:
    """Return a time as Go writes it."""
    return datetime.fromtimestamp(since_1970_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class OllamaForm(ReplyForm):
    """A reply to a chat, or to a text; `model` is the name that was asked for.

    A call comes whole. One that was cut is left out, since clients carry out what they get.
    """

    api: Api = "ollama"
    stream_headers = HEADERS

    def __init__(self, model: str, *, chat: bool) -> None:
        self.prompt_field = "messages" if chat else "prompt"
        self._chat = chat
        self._model = model
        self._started = time.perf_counter()
        self._load_s = 0.0
        self._ids: dict[int, str] = {}  # of calls, by index
        self._logprobs: list[Logprob] = []  # of the text that comes next
        # What all lines had together.
        self._text = self._thinking = ""
        self._calls: list[dict[str, Any]] = []
        self._all_logprobs: list[Logprob] = []

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return nothing; take note of the time."""
        return b"" if accepted is None else self.progress(accepted)

    def progress(self, event: Progress) -> bytes:
        """Return nothing; what came before the prompt was read counts as loading."""
        if isinstance(event, Accepted):
            self._load_s = time.perf_counter() - self._started
        return b""

    def addition(self, delta: Addition) -> bytes:
        match delta:
            case Logprobs(tokens):
                self._logprobs += tokens
                self._all_logprobs += tokens
            case ContentDelta(text):
                self._text += text
                return self._line(text)
            case ReasoningDelta(text):
                self._thinking += text
                return self._line(thinking=text)
            case CallStart(index, id_, _):
                self._ids[index] = id_
            case CallEnd(index, call):
                function = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
                self._calls.append({"id": self._ids[index], "function": function})
                return self._line(tool_calls=self._calls[-1:])
            case ArgumentsDelta() | UnfinishedCall():
                pass
        return b""

    def keep_alive(self) -> bytes:
        """Return a line that adds nothing."""
        return self._line()

    def closing(self, finished: Finished) -> bytes:
        return line(self.empty(_FINISH[finished.reason]) | self._figures(finished))

    def failing(self, problem: Problem, request_id: str) -> bytes:
        """Return the error as a line, as Ollama ends a stream."""
        del request_id
        return line(ollama_error(problem))

    def whole(self, finished: Finished) -> dict[str, Any]:
        more: dict[str, Any] = {"thinking": self._thinking} if self._thinking else {}
        if self._calls:
            more["tool_calls"] = self._calls
        end = {"done": True, "done_reason": _FINISH[finished.reason]}
        fields = self._fields(self._text, more, self._all_logprobs)
        return fields | end | self._figures(finished)

    def empty(self, reason: str) -> dict[str, Any]:
        """Return an answer that ends for a reason, without text."""
        return self._fields("", {}) | {"done": True, "done_reason": reason}

    def _line(self, text: str = "", **more: Any) -> bytes:
        logprobs, self._logprobs = self._logprobs, []
        return line(self._fields(text, more, logprobs) | {"done": False})

    def _fields(
        self, text: str, more: dict[str, Any], logprobs: Sequence[Logprob] = ()
    ) -> dict[str, Any]:
        """Return a line with a text, and with the thinking and calls in `more`."""
        said: dict[str, Any] = {"response": text} | more
        if self._chat:
            said = {"message": {"role": "assistant", "content": text} | more}
        if logprobs:
            said["logprobs"] = logprob_fields(logprobs)
        return {"model": self._model, "created_at": written_time(time.time())} | said

    def _figures(self, finished: Finished) -> dict[str, Any]:
        usage = finished.usage
        times_s = {
            "total_duration": time.perf_counter() - self._started,
            "load_duration": self._load_s,
            "prompt_eval_duration": usage.prefill_s,
            "eval_duration": usage.decode_s,
        }
        counts = {
            "prompt_eval_count": usage.prompt_tokens, "eval_count": usage.completion_tokens,
        }  # fmt: skip
        times = {name: round(seconds * 1e9) for name, seconds in times_s.items()}
        return times | counts | finished.own_fields
