"""/v1/chat/completions: OpenAI's format, with the fields that other local servers have added.

A field that akunu lacks is refused if a reply without it would be another one than was asked for;
others are ignored and listed in a header. Reasoning is sent as `reasoning_content` and `reasoning`,
since clients read one or the other, and accepted as either and as `reasoning_details`.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py.server import sse
from akunu_py.server.backend import ChatRequest
from akunu_py.server.choices import ChoicePlace, in_choices
from akunu_py.server.conversation import (
    Part,
    call_at,
    check_messages,
    function_tool,
    message_at,
    newest_of_user,
    openai_choice,
    part_text,
    read_roles,
    without_equal_names,
)
from akunu_py.server.custom_tools import custom_input, custom_tool
from akunu_py.server.errors import RequestError
from akunu_py.server.events import (
    Accepted,
    Addition,
    ChoiceEnd,
    Decoded,
    Finished,
    Loading,
    Logprob,
    Logprobs,
    NextChoice,
    Prefilled,
    Progress,
)
from akunu_py.server.generation_fields import (
    REFUSED_BY_OPENAI_FORMATS,
    OpenAIBody,
    answer_form,
)
from akunu_py.server.incoming import Incoming, receive
from akunu_py.server.logprobs import logprob_fields, logprobs_option
from akunu_py.server.openai_form import OpenAIForm
from akunu_py.values.messages import Message, TextPart, Tool, ToolCall, ToolChoice
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    UnfinishedCall,
)
from akunu_py.values.types import FinishReason

PATH = "/v1/chat/completions"

_REFUSED = {
    **REFUSED_BY_OPENAI_FORMATS,
    "functions": "give the functions as tools",
    "function_call": "give tool_choice",
    "audio": "akunu's models read and write only text",
    "web_search_options": "akunu does not search; give the model a tool that does",
    "documents": "put them into a message",
    "previous_response_id": "send the whole conversation as messages",
    "conversation": "send the whole conversation as messages",
}
"""Fields that would change the reply, and what to do instead."""

_NO_EFFECT = frozenset({
    "user", "store", "metadata", "service_tier", "prompt_cache_key", "safety_identifier",
    "prompt_cache_retention", "verbosity",
})  # fmt: skip
"""Fields of OpenAI's API that say nothing about the text of a reply."""

_SWITCHES = {
    "enable_thinking": "true or false", "thinking": "true or false", "reasoning_effort": "a word",
}  # fmt: skip
"""Variables of templates that akunu translates for those which have others, and their values."""

_FINISH: dict[FinishReason, str] = {
    "stop": "stop", "length": "length", "loop": "stop", "tool_calls": "tool_calls",
}  # fmt: skip


class _Part(Part):
    refusal: str | None = None
    thinking: str | list[Part] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Custom(msgspec.Struct):
    name: str
    input: str = ""


class _Call(msgspec.Struct):
    function: _Function | None = None
    custom: _Custom | None = None
    id: str | None = None
    type: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: _Function | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class _Prediction(msgspec.Struct):
    content: str | list[_Part]
    type: str = "content"


class _Own(msgspec.Struct):
    """akunu's own wishes.

    `metrics` adds the figures of the reply; `sources` adds to each piece of a stream who drafted
    it.
    """

    metrics: bool = False
    sources: bool = False


class ChatBody(OpenAIBody, kw_only=True):
    """The body of a request."""

    messages: list[_Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prediction: _Prediction | None = None
    modalities: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    return_progress: bool | None = None
    akunu: _Own | None = None


async def chat_completions(http: HttpRequest) -> Response:
    """Answer `POST /v1/chat/completions`."""
    asked = await receive(http, ChatBody, refused=_REFUSED, no_effect=_NO_EFFECT)
    request, body = await asked.lay_out(_read_request), asked.body
    form = partial(
        ChatForm,
        request.model,
        include_usage=body.include_usage,
        figures=bool(body.timings_per_token or (body.akunu and body.akunu.metrics)),
        sources=bool(body.akunu and body.akunu.sources),
        progress=bool(body.return_progress),
        custom=_custom_names(body.tools or ()),
    )
    choices = asked.choices(body.n)
    return await asked.respond(
        request, form=in_choices("chatcmpl-", form, choices), stream=body.stream, choices=choices
    )


async def apply_template(http: HttpRequest) -> Response:
    """Answer `POST /apply-template` of llama.cpp with the prompt that a chat makes."""
    asked = await receive(http, ChatBody, refused=_REFUSED, no_effect=_NO_EFFECT)
    request, backend = await asked.lay_out(_read_request), asked.service.backend
    ids = await backend.chat_ids(request)
    tokenizer = await backend.tokenizer(request.model)
    return JSONResponse({"prompt": tokenizer.decode(ids, with_control=True)})


def _read_request(asked: Incoming[ChatBody]) -> ChatRequest:
    """Return the request of a body; raises RequestError and ConfigError naming the field."""
    body = asked.body
    if body.modalities and body.modalities != ["text"]:
        raise RequestError("modalities: akunu's models write only text", param="modalities")
    check_messages(body.messages, body.tools or ())
    options = body.options()
    if body.max_completion_tokens is not None:
        options["max_tokens"] = body.max_completion_tokens
    if (form := answer_form(body.response_format, "response_format")) is not None:
        if options["constraint"] not in {None, form}:
            raise RequestError(
                "a reply has one form; leave response_format or the other one out",
                param="response_format",
            )
        options["constraint"] = form
    options["logprobs"] = logprobs_option(body.logprobs, body.top_logprobs, field="top_logprobs")
    given = (body.chat_template_kwargs or {}).items()
    variables = {name: value for name, value in given if value is not None}
    thinks = read_roles(body.messages, asked.ignored)
    options |= _thinking(asked, thinks) | {"template_variables": variables}
    spelling = body.spelling() | {"template_variables": "chat_template_kwargs"}
    newest = newest_of_user(message.role for message in body.messages)
    messages = [
        _message(message, f"messages[{place}]", asked.ignored, newest=place == newest)
        for place, message in enumerate(body.messages)
        if message.role
    ]
    tools = _tools(body.tools or ())
    asked.check_grammars(tools, refuse=True)
    return ChatRequest(
        model=asked.model.id,
        messages=tuple(messages),
        continued=_continued(body),
        config=asked.config(options, spelling),
        tools=tools,
        tool_choice=_tool_choice(body.tool_choice, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        prediction=_prediction(body.prediction),
    )


def _continued(body: ChatBody) -> bool:
    """Return whether a last message of the assistant is continued; vLLM's fields say so or deny it.

    Raises RequestError for fields that contradict each other or the messages.
    """
    wish, opens = body.continue_final_message, body.add_generation_prompt
    if wish is not None and wish == opens:
        raise RequestError(
            "continue_final_message and add_generation_prompt are each the other's opposite; give "
            "one of them",
            param="continue_final_message",
        )
    if wish is None and opens is not None:
        wish = not opens
    if wish and body.messages[-1].role != "assistant":
        raise RequestError(
            "the last message is not the assistant's, so it cannot be continued; leave out "
            "continue_final_message and add_generation_prompt",
            param="messages",
        )
    return wish is not False


def _message(message: _Message, place: str, ignored: list[str], *, newest: bool) -> Message:
    role, given = message.role, message.tool_calls or []
    if message.function_call is not None:
        given = [_Call(message.function_call)]
    calls = tuple(_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(given))
    if message.content is None and role not in {"assistant", "tool"}:
        raise RequestError(f"{place}.content is missing; give a text", param=f"{place}.content")
    return message_at(
        place,
        role=role,
        content=_content(message.content, f"{place}.content", ignored, newest=newest),
        name=message.name or "",
        tool_calls=calls,
        tool_call_id=message.tool_call_id or "",
        reasoning=_reasoning(message) if role == "assistant" else "",
    )


def _call(call: _Call, place: str) -> ToolCall:
    match call:
        case _Call(function=_Function(name, arguments)):
            return call_at(place, name or "", arguments, call.id or "")
        case _Call(custom=_Custom(called, text)):
            return call_at(place, called, {"input": text}, call.id or "")
    raise RequestError(
        f"{place} has no function; give the type 'function' and a function, or 'custom' and a "
        "custom",
        param=place,
    )


def _content(
    content: str | list[_Part] | None, place: str, ignored: list[str], *, newest: bool
) -> str | tuple[TextPart, ...]:
    if not isinstance(content, list):
        return content or ""
    parts = []
    for index, part in enumerate(content):
        if part.type == "thinking":
            continue  # see `_reasoning`
        if part.type in {"refusal", "input_text", "output_text"}:
            part.text, part.type = part.refusal or part.text, "text"
        text = part_text(part, f"{place}[{index}]", ignored, newest=newest)
        parts.append(TextPart(text))
    if not parts:
        return ""
    return parts[0].text if len(parts) == 1 else tuple(parts)


def _prediction(given: _Prediction | None) -> str:
    given = given or _Prediction("")
    content = _content(given.content, "prediction.content", [], newest=True)
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _reasoning(message: _Message) -> str:
    if said := message.reasoning or message.reasoning_content:
        return said
    texts = [detail.get("text") for detail in message.reasoning_details or ()]
    for part in message.content if isinstance(message.content, list) else ():
        thought = part.thinking or ""  # Mistral's, or Anthropic's
        texts += [thought] if isinstance(thought, str) else [one.text for one in thought]
    return "".join(text for text in texts if isinstance(text, str))


def _tools(tools: Sequence[dict[str, Any]]) -> tuple[Tool, ...]:
    found = []
    for index, given in enumerate(tools):
        match given:
            case {"type": "custom", "custom": {"name": str(name)} as custom}:
                found.append(custom_tool(f"tools[{index}].custom", custom, name))
            case _:
                found.append(function_tool(f"tools[{index}]", given))
    return without_equal_names(found)


def _custom_names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of custom tools, of tools that were checked."""
    return frozenset(tool["custom"]["name"] for tool in tools if tool.get("type") == "custom")


def _tool_choice(given: str | dict[str, Any] | None, tools: tuple[Tool, ...]) -> ToolChoice:
    allowed = given.get("allowed_tools") if isinstance(given, dict) else None
    malformed = (
        "tool_choice is malformed; give 'auto', 'none', 'required' or "
        '{"type": "function", "function": {"name": ...}}'
    )
    return openai_choice(given, allowed, tools, name_of=_chosen_name, malformed=malformed)


def _chosen_name(tool: object) -> str | None:
    match tool:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
    return None


def _thinking(asked: Incoming[ChatBody], thinks: bool | None) -> dict[str, Any]:
    """Return the options about thinking, for which clients have several fields.

    `thinks` is what messages say. Those of the template's own variables come first.
    """
    body = asked.body
    thinking, by = thinks, "control"
    if body.enable_thinking is not None:
        thinking, by = body.enable_thinking, "enable_thinking"
    effort, effort_by = body.reasoning_effort, "reasoning_effort"
    match body.reasoning:  # OpenRouter's
        case {"effort": str(word)}:
            effort, effort_by = word, "reasoning"
        case {"enabled": bool(thinking)}:
            by = "reasoning"
    match body.thinking:
        case {"type": "disabled" | "enabled" as word}:
            thinking, by = word == "enabled", "thinking"
    for name, value in (body.chat_template_kwargs or {}).items():
        if name in {"enable_thinking", "thinking"} and isinstance(value, bool):
            thinking, by = value, "chat_template_kwargs"
        elif name == "reasoning_effort" and isinstance(value, str):
            effort, effort_by = value, "chat_template_kwargs"
        elif name in _SWITCHES and value is not None:
            raise RequestError(
                f"chat_template_kwargs.{name} is {value!r:.60}; give {_SWITCHES[name]}",
                param="chat_template_kwargs",
            )
    return asked.thinking(thinking=thinking, by=by, effort=effort, effort_by=effort_by, refuse=True)


class ChatForm(OpenAIForm):
    """A reply as chat completion or its chunks.

    `sources` says whether chunks tell who drafted their text, and `progress` whether they tell how
    much of the prompt is read. `custom` has the names of custom tools.
    """

    prompt_field = "messages"
    chunk_kind = "chat.completion.chunk"

    def __init__(
        self,
        model: str,
        place: ChoicePlace,
        *,
        sources: bool = False,
        progress: bool = False,
        custom: Collection[str] = (),
        **shared: bool,
    ) -> None:
        super().__init__(model, place, **shared)
        self._sources = sources
        self._tells_progress = progress
        self._accepted: Accepted | None = None
        self._reading_since = 0.0
        self._decoded = Decoded(0, 0)
        self._custom = custom
        self._inputs: dict[int, str] = {}  # arguments of open calls of custom tools, by index
        self._logprobs: list[Logprob] = []  # of the text that comes next
        # What all chunks had together.
        self._all_logprobs: list[Logprob] = []
        self._reasoning = ""
        self._calls: dict[int, dict[str, Any]] = {}

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return the chunk with the role."""
        role = self._chunk({"role": "assistant", "content": ""})
        return role if accepted is None else role + self.progress(accepted)

    def addition(self, delta: Addition) -> bytes:
        match delta:
            case Logprobs(tokens):
                self._logprobs += tokens
                self._all_logprobs += tokens
                return b""
            case ContentDelta(text, source):
                self._text += text
                return self._chunk({"content": text}, **self._own(source))
            case ReasoningDelta(text, source):
                self._reasoning += text
                both = {"reasoning_content": text, "reasoning": text}
                return self._chunk(both, **self._own(source))
            case CallStart(index, id_, name):
                if name in self._custom:
                    self._inputs[index] = ""
                    called = {"type": "custom", "custom": {"name": name, "input": ""}}
                else:
                    called = {"type": "function", "function": {"name": name, "arguments": ""}}
                # Some clients join the names of all chunks, so it comes once.
                self._calls[index] = {"id": id_, **called}
                return self._call_chunk(index, **self._calls[index])
            case ArgumentsDelta(index, text) if index in self._inputs:
                # The input is known once its JSON text is complete.
                self._inputs[index] += text
                return b""
            case ArgumentsDelta(index, text):
                self._calls[index]["function"]["arguments"] += text
                return self._call_chunk(index, function={"arguments": text})
            case CallEnd(index) | UnfinishedCall(index):
                return self._end_input(index)

    def keep_alive(self) -> bytes:
        """Return a chunk that adds nothing."""
        return self._chunk({})

    def progress(self, event: Progress) -> bytes:
        """Return a chunk with the progress of the prompt, under llama.cpp's name."""
        match event:
            case Accepted():
                self._accepted = event
                self._reading_since = time.perf_counter()
                processed = event.num_cached_tokens
            case Prefilled(processed):
                pass
            case Decoded():
                self._decoded = event
                return b""
            case Loading() | NextChoice() | ChoiceEnd():
                return b""
        if self._accepted is None or not self._tells_progress:
            return b""
        reading_s = time.perf_counter() - self._reading_since
        progress = {
            "total": self._accepted.num_prompt_tokens,
            "cache": self._accepted.num_cached_tokens,
            "processed": processed,
            "time_ms": round(reading_s * 1000),
        }
        return self._chunk({}, prompt_progress=progress)

    def last_chunk(self, finished: Finished) -> bytes:
        ended = b"".join(map(self._end_input, list(self._inputs)))
        reason = {"finish_reason": _FINISH[finished.reason]} | finished.own_fields
        return ended + self._chunk({}, reason, **self._own(""))

    def whole(self, finished: Finished) -> dict[str, Any]:
        """Return the chat completion."""
        self.last_chunk(finished)
        message: dict[str, Any] = {"role": "assistant", "content": self._text, "refusal": None}
        if self._reasoning:
            message |= {"reasoning_content": self._reasoning, "reasoning": self._reasoning}
        if self._calls:
            message["content"] = self._text or None
            message["tool_calls"] = list(self._calls.values())
        choice = {
            "index": self._place.index,
            "message": message,
            "logprobs": _logprobs(self._all_logprobs),
            "finish_reason": _FINISH[finished.reason],
        } | finished.own_fields
        fields = self._fields("chat.completion") | {"choices": [choice]}
        return fields | self._totals(finished.usage)

    def _call_chunk(self, index: int, **fields: Any) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, **fields}]})

    def _end_input(self, index: int) -> bytes:
        """Return the chunk with the input of a custom tool's call that ended; none of another."""
        if index not in self._inputs:
            return b""
        custom = {"input": custom_input(self._inputs.pop(index))}
        self._calls[index]["custom"] |= custom
        return self._call_chunk(index, custom=custom)

    def _own(self, source: str) -> dict[str, Any]:
        """Return akunu's field of a chunk: who drafted its text, and counts so far."""
        if not self._sources:
            return {}
        counts = {"tokens": self._decoded.num_tokens, "passes": self._decoded.num_passes}
        return {"akunu": {"source": source or None, **counts}}

    def _chunk(
        self, delta: dict[str, Any], end: Mapping[str, Any] | None = None, **more: Any
    ) -> bytes:
        logprobs, self._logprobs = _logprobs(self._logprobs), []
        choice = {
            "index": self._place.index,
            "delta": delta,
            "logprobs": logprobs,
            **(end or {"finish_reason": None}),
        }
        return sse.data(self._chunk_of(choice, **more))


def _logprobs(tokens: Sequence[Logprob]) -> dict[str, Any] | None:
    return {"content": logprob_fields(tokens), "refusal": None} if tokens else None
