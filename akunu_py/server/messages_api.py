"""/v1/messages and /v1/messages/count_tokens: Anthropic's format.

Claude Code adds fields faster than servers learn them, and a refusal ends its session. So unknown
fields, blocks and tools are ignored and listed in a header. Refused are only images and documents
of the user's newest message, and what asks for a conversation that the server would have.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py.server import sse
from akunu_py.server.backend import ChatRequest
from akunu_py.server.conversation import (
    Part,
    announced,
    call_at,
    check_messages,
    choice_of,
    message_at,
    newest_of_user,
    part_text,
    tool_at,
    without_equal_names,
)
from akunu_py.server.errors import NO_THREAD, Api, Problem, RequestError, anthropic_error
from akunu_py.server.events import Accepted, Addition, Finished, Logprobs, Usage
from akunu_py.server.generation_fields import RequestBody, answer_form
from akunu_py.server.incoming import Incoming, receive
from akunu_py.server.json_body import begun_object
from akunu_py.server.reply_response import ReplyForm
from akunu_py.tokenizers.accepted_turns import with_one_turn_each
from akunu_py.values.messages import Message, Tool, ToolChoice
from akunu_py.values.option_fields import WireFormat
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    UnfinishedCall,
)
from akunu_py.values.types import FinishReason

PATH = "/v1/messages"

_MODEL_PREFIXES = ("claude", "anthropic")
"""Claude Code asks small tasks of models that it names itself."""

_BILLING = "x-anthropic-billing-header:"
"""Beginning of a line of Claude Code that differs in every request and is not for the model.

It is a block of its own; proxies that join the blocks leave it as the first line of the text.
"""

_READ = frozenset({
    "text", "image", "document", "search_result", "video", "audio", "file", "container_upload",
})  # fmt: skip
_REFUSED = {"compaction": "ask for a summary in a message"}
_NO_EFFECT = frozenset({"metadata", "service_tier", "betas", "container"})
_EDITS = ("clear_tool_uses", "compact")
"""Edits of a conversation that change the prompt; old thoughts are what templates leave out."""

_STOP: dict[FinishReason, str] = {
    "stop": "end_turn", "length": "max_tokens", "loop": "end_turn", "tool_calls": "tool_use",
}  # fmt: skip


class _Block(Part):
    """A block of any type: each has some of the fields."""

    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    tool_name: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Block] | None = None


class _Tool(msgspec.Struct):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


class CountBody(RequestBody, kw_only=True):
    """The body of a request to count tokens, and the conversation of one for a reply."""

    messages: list[_Message]
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    context_management: Any = None
    thread: Any = None


class MessagesBody(CountBody, kw_only=True):
    """The body of a request for a reply."""

    wire: ClassVar[WireFormat] = "messages"

    stream: bool | None = None


_Count = TypeVar("_Count", bound=CountBody)


async def messages(http: HttpRequest) -> Response:
    """Answer `POST /v1/messages`."""
    asked = await receive(
        http, MessagesBody, refused=_REFUSED, no_effect=_NO_EFFECT, prefixes=_MODEL_PREFIXES
    )
    body = asked.body
    request = await asked.lay_out(_read_request)
    form = MessageForm(body.model or request.model)
    return await asked.respond(request, form=form, stream=body.stream)


async def count_tokens(http: HttpRequest) -> Response:
    """Answer `POST /v1/messages/count_tokens`."""
    asked = await receive(http, CountBody, prefixes=_MODEL_PREFIXES)
    ids = await asked.service.backend.chat_ids(await asked.lay_out(_read_request))
    return JSONResponse({"input_tokens": len(ids)})


def _read_request(asked: Incoming[_Count]) -> ChatRequest:
    """Return the request of a body; raises RequestError that names the field at fault."""
    body, ignored = asked.body, asked.ignored
    if body.thread is not None:
        raise RequestError(
            "thread: akunu keeps no conversations; send the whole one in messages, without thread",
            param="thread",
            code=NO_THREAD,
        )
    check_messages(body.messages, body.tools or ())
    said = _system(body.system, ignored)
    last = body.messages[-1]
    if last.role == "assistant" and _ends_with_space(last):
        raise RequestError(
            "messages: final assistant content cannot end with trailing whitespace",
            param="messages",
        )
    newest = newest_of_user(message.role for message in body.messages)
    offered = _Tools(body.tools or [], ignored)
    for index, message in enumerate(body.messages):
        place = f"messages[{index}]"
        said += _messages(message, place, offered, ignored, newest=index == newest)
    if any(edit in str(body.context_management) for edit in _EDITS):
        ignored.append("context_management")
    tools = offered.callable
    choice = body.tool_choice
    output = body.output_config or _OutputConfig()
    form = answer_form(output.format or body.output_format, "output_config.format")
    return ChatRequest(
        model=asked.model.id,
        messages=with_one_turn_each(said),
        config=asked.config(body.options() | _thinking(asked) | {"constraint": form}),
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
    )


def _thinking(asked: Incoming[_Count]) -> dict[str, Any]:
    """Return the options about thinking; "adaptive" leaves it to the template, or to the effort."""
    given = asked.body.thinking or _Thinking("adaptive")
    if given.budget_tokens is not None:
        asked.ignored.append("thinking.budget_tokens")
    return asked.thinking(
        thinking={"enabled": True, "disabled": False}.get(given.type),
        effort=(asked.body.output_config or _OutputConfig()).effort,
        effort_by="output_config.effort",
    )


def _system(system: str | list[_Block] | None, ignored: list[str]) -> list[Message]:
    if isinstance(system, str):
        texts = [system]
    else:
        blocks = enumerate(system or [])
        texts = [part_text(block, f"system[{place}]", ignored) for place, block in blocks]
    text = "\n\n".join(filter(None, map(_without_billing, texts)))
    return [Message("system", text)] if text else []


def _without_billing(text: str) -> str:
    """Return a system text without a billing line at its beginning."""
    if not text.startswith(_BILLING):
        return text
    _, _, rest = text.partition("\n")
    return rest.lstrip("\n")


def _messages(
    message: _Message, place: str, tools: "_Tools", ignored: list[str], *, newest: bool
) -> list[Message]:
    """Return the messages of one of Anthropic's, in which results of tools are blocks.

    `newest` says whether it is the last one of the user, whose images are an error.
    """
    blocks = message.content
    if isinstance(blocks, str) or blocks is None:
        blocks = [_Block(text=blocks or "")]
    if message.role == "assistant":
        return [_assistant(blocks, place, ignored)]
    found: list[Message] = []
    texts: list[str] = []
    for index, block in enumerate(blocks):
        where = f"{place}.content[{index}]"
        if block.type == "tool_result":
            _add_text(found, message.role, texts, place)
            result = _result_text(block, where, tools, ignored)
            call = block.tool_use_id or ""
            found.append(message_at(where, role="tool", content=result, tool_call_id=call))
        elif _is_read(block):
            texts.append(part_text(block, where, ignored, newest=newest))
        else:
            ignored.append(block.type)
    _add_text(found, message.role, texts, place)
    return found or [message_at(place, role=message.role)]


def _ends_with_space(message: _Message) -> bool:
    """Whether the text at the end of a message, which a reply would continue, ends with a space."""
    content = message.content
    text = content if isinstance(content, str) else content[-1].text if content else ""
    return text is not None and text != text.rstrip()


def _add_text(found: list[Message], role: str, texts: list[str], place: str) -> None:
    if texts:
        found.append(message_at(place, role=role, content="\n\n".join(texts)))
        texts.clear()


def _assistant(blocks: list[_Block], place: str, ignored: list[str]) -> Message:
    reasoning, texts, calls = [], [], []
    for index, block in enumerate(blocks):
        where = f"{place}.content[{index}]"
        match block.type:
            case "thinking":
                reasoning.append(block.thinking or "")
            case "tool_use":
                arguments = {} if block.input is None else block.input
                calls.append(call_at(where, block.name or "", arguments, block.id or ""))
            case _ if _is_read(block):
                texts.append(part_text(block, where, ignored))
            case _:
                ignored.append(block.type)
    return message_at(
        place,
        role="assistant",
        content="".join(texts),
        reasoning="\n\n".join(reasoning),
        tool_calls=tuple(calls),
    )


def _is_read(block: _Block) -> bool:
    """Whether the model reads a block; a compaction that failed is without content."""
    compacted = block.type == "compaction" and block.content is not None
    return compacted or block.type in _READ or block.text is not None


def _result_text(block: _Block, place: str, tools: "_Tools", ignored: list[str]) -> str:
    """Return the text of a tool's result, which is a text or a list of blocks."""
    content = block.content
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        try:
            parts = msgspec.convert(content, list[_Block])
        except msgspec.ValidationError:
            raise RequestError(
                f"{place}.content is neither a text nor a list of blocks", param=f"{place}.content"
            ) from None
        found = tools.found(part.tool_name for part in parts if part.type == "tool_reference")
        texts = [found] if found else []
        for index, part in enumerate(parts):
            if _is_read(part):
                texts.append(part_text(part, f"{place}.content[{index}]", ignored))
            elif not (found and part.type == "tool_reference"):
                ignored.append(part.type)
        text = "\n".join(texts)
    if block.is_error:
        # Templates have no place for it.
        return f"Error: {text}" if text else "the tool failed"
    return text


class _Tools:
    """The tools that a client carries out; those of Anthropic's servers have no schema.

    A client such as Claude Code adds tools in the middle of a conversation, with `defer_loading`
    and a `tool_reference` in a result. The prompt would begin differently if it listed them.
    """

    def __init__(self, given: list[_Tool], ignored: list[str]) -> None:
        found = []
        for index, tool in enumerate(given):
            if tool.type not in {None, "custom"}:
                ignored.append(str(tool.type))
                continue
            place, schema, strict = f"tools[{index}]", tool.input_schema, tool.strict
            one = tool_at(place, tool.name, tool.description, schema, strict=strict)
            found.append(replace(one, deferred=bool(tool.defer_loading)))
        self._given = {tool.name: tool for tool in without_equal_names(found)}
        self._found: set[str] = set()

    def found(self, names: Iterable[str | None]) -> str:
        """Return the text of deferred tools that a result refers to, which may be called then."""
        tools = [self._given[name] for name in names if name in self._given]
        self._found |= {tool.name for tool in tools}
        return announced([tool for tool in tools if tool.deferred])

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools without deferred ones that no result refers to."""
        return tuple(
            tool for name, tool in self._given.items() if not tool.deferred or name in self._found
        )


def _tool_choice(given: _ToolChoice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    match given:
        case None | _ToolChoice(type="auto"):
            return "auto"
        case _ToolChoice(type="none"):
            return "none"
        case _ToolChoice(type="any"):
            return choice_of("required", (), tools)
        case _ToolChoice(type="tool", name=str(name)):
            return choice_of("required", (name,), tools)
    raise RequestError(
        "tool_choice is malformed; give the type auto, any, none, or tool with a name",
        param="tool_choice",
    )


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the usage of a reply; `input_tokens` are those that no cache had."""
    return {
        "input_tokens": usage.prefilled_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


class MessageForm(ReplyForm):
    """A reply as message or its stream, in which one block after the other is open."""

    api: Api = "anthropic"
    prompt_field = "messages"

    def __init__(self, model: str) -> None:
        self._model = model
        self._id = "msg_" + secrets.token_hex(12)
        self._content: list[dict[str, Any]] = []  # the blocks so far, the last one open or not
        self._is_open = False
        self._arguments = ""  # of the open call

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return `message_start`, whose usage must have numbers even if none is known yet."""
        usage = Usage(prompt_tokens=0, completion_tokens=0)
        if accepted is not None:
            usage = Usage(
                prompt_tokens=accepted.num_prompt_tokens,
                cached_tokens=accepted.num_cached_tokens,
                completion_tokens=0,
            )
        message = self._fields([], None, None, usage)
        return sse.named({"type": "message_start", "message": message})

    def addition(self, delta: Addition) -> bytes:
        match delta:
            case ReasoningDelta(text):
                opened = self._block("thinking", thinking="", signature="")
                return opened + self._added("thinking", text)
            case ContentDelta(text):
                return self._block("text", text="") + self._added("text", text)
            case CallStart(_, id_, name):
                self._arguments = ""
                ended = self._end_block()
                return ended + self._block("tool_use", id=id_, name=name, input={})
            case ArgumentsDelta(_, text):
                self._arguments += text
                return self._delta(type="input_json_delta", partial_json=text)
            case CallEnd():
                return self._end_block()
            case UnfinishedCall() | Logprobs():
                return b""

    def keep_alive(self) -> bytes:
        return sse.named({"type": "ping"})

    def closing(self, finished: Finished) -> bytes:
        """Return the end of the open block and of the message."""
        reason, sequence = _stop(finished)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        ended = {"type": "message_delta", "delta": delta, "usage": usage_fields(finished.usage)}
        ended |= finished.own_fields
        return self._end_block() + sse.named(ended) + sse.named({"type": "message_stop"})

    def failing(self, problem: Problem, request_id: str) -> bytes:
        return sse.named(anthropic_error(problem, request_id))

    def whole(self, finished: Finished) -> dict[str, Any]:
        """Return the message; of a call that was cut, the arguments that were whole."""
        self._end_block()
        fields = self._fields(self._content, *_stop(finished), finished.usage)
        return fields | finished.own_fields

    def _block(self, kind: str, **fields: Any) -> bytes:
        """Open a block of a type, unless one is open."""
        if self._is_open and self._content[-1]["type"] == kind:
            return b""
        ended = self._end_block()
        self._is_open = True
        self._content.append({"type": kind, **fields})
        return ended + self._event("content_block_start", content_block=self._content[-1])

    def _end_block(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        signed = b""
        block = self._content[-1]
        if block["type"] == "thinking":
            signed = self._added("signature", _signature(block["thinking"]))
        elif block["type"] == "tool_use":
            block["input"] = begun_object(self._arguments)
        return signed + self._event("content_block_stop")

    def _added(self, field: str, text: str) -> bytes:
        """Add a text to a field of the open block."""
        self._content[-1][field] += text
        return self._delta(type=f"{field}_delta", **{field: text})

    def _delta(self, **delta: str) -> bytes:
        return self._event("content_block_delta", delta=delta)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse.named({"type": kind, "index": len(self._content) - 1, **fields})

    def _fields(
        self, content: list[dict[str, Any]], reason: str | None, sequence: str | None, usage: Usage
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage_fields(usage),
        }


def _stop(finished: Finished) -> tuple[str, str | None]:
    if finished.reason == "stop" and finished.stop_text is not None:
        return "stop_sequence", finished.stop_text
    return _STOP[finished.reason], None


def _signature(reasoning: str) -> str:
    """Return a name of reasoning; clients expect one, and send it back with the text."""
    return "akunu-" + hashlib.sha256(reasoning.encode()).hexdigest()
