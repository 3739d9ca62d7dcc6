"""/api/chat and /api/generate: Ollama's formats of chats and of texts.

Fields are those of `api/types.go` of Ollama 0.33. Its clients send options of Ollama's loader with
every request, which have no effect here; an option that is nobody's is refused. A request without a
prompt only loads the model.
"""

from typing import Any, ClassVar, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py.server.backend import ChatRequest, CompletionRequest
from akunu_py.server.conversation import (
    call_at,
    check_counts,
    function_tool,
    message_at,
    newest_of_user,
    read_roles,
    unread_part,
    without_equal_names,
)
from akunu_py.server.errors import RequestError
from akunu_py.server.generation_fields import (
    JSON_OBJECT,
    REFUSED_SAMPLING,
    OptionFields,
    RequestBody,
    refuse,
    with_options,
    with_other_values,
)
from akunu_py.server.incoming import Incoming, receive
from akunu_py.server.json_body import decode, unknown_fields
from akunu_py.server.logprobs import logprobs_option
from akunu_py.server.ollama.form import OllamaForm
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, ToolCall
from akunu_py.values.option_fields import WireFormat

CHAT, GENERATE = "/api/chat", "/api/generate"

_REFUSED = {
    "template": "akunu uses the model's own; send a laid out prompt with raw",
    "context": "send the conversation to /api/chat",
    "_debug_render_only": "leave it out",
    "width": "akunu's models write only text",
    "height": "akunu's models write only text",
    "steps": "akunu's models write only text",
}
_LOADING = frozenset({
    "numa", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "logits_all", "vocab_only",
    "use_mmap", "use_mlock", "embedding_only", "num_thread", "draft_num_predict", "num_keep",
    "mirostat_tau", "mirostat_eta", "penalize_newline", "num_gqa", "rope_frequency_base",
    "rope_frequency_scale",
})  # fmt: skip
"""Options of Ollama that say nothing about a reply of akunu."""

_EFFORTS = ("low", "medium", "high", "max")
_TO_THE_END = -2
"""What Ollama's clients write for a reply that ends with the context."""


class _Options(OptionFields, kw_only=True):
    wire: ClassVar[WireFormat] = "ollama"

    num_ctx: float | None = None

    def settings(self, context: int) -> dict[str, Any]:
        """Return the options of the reply, of a model with that context."""
        given = with_other_values(self.options())
        if given["max_tokens"] == _TO_THE_END:
            given["max_tokens"] = None
        if given["penalty_window"] == -1:
            given["penalty_window"] = context
        return given


class _Function(msgspec.Struct):
    name: str = ""
    arguments: Any = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[_Call] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _Body(RequestBody, kw_only=True):
    """What both formats have."""

    stream: bool | None = None
    think: bool | str | None = None
    format: str | dict[str, Any] | None = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    given_options: msgspec.Raw = msgspec.field(
        name="options", default_factory=lambda: msgspec.Raw(b"null")
    )


class OllamaChat(_Body, kw_only=True):
    """The body of a chat."""

    messages: list[_Message] | None = None
    tools: list[dict[str, Any]] | None = None


class OllamaText(_Body, kw_only=True):
    """The body of a request to answer or continue a text, or to fill a gap in one."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: list[Any] | None = None


_Given = TypeVar("_Given", bound=_Body)


async def chat(http: HttpRequest) -> Response:
    """Answer `POST /api/chat`."""
    asked = await receive(http, OllamaChat, refused=_REFUSED)
    body = asked.body
    form = OllamaForm(body.model or asked.model.id, chat=True)
    if not body.messages:
        return JSONResponse(form.empty(await load(asked, asked.body.keep_alive)))
    request = await asked.lay_out(_read_chat)
    return await asked.respond(request, form=form, stream=body.stream is not False)


def _read_chat(asked: Incoming[OllamaChat]) -> ChatRequest:
    """Return the request of a body; raises RequestError that names the field."""
    messages, tools = asked.body.messages or (), asked.body.tools or ()
    check_counts(messages, tools)
    thinks = read_roles(messages, asked.ignored)
    newest = newest_of_user(message.role for message in messages)
    return ChatRequest(
        model=asked.model.id,
        messages=tuple(
            _message(message, f"messages[{place}]", asked.ignored, newest=place == newest)
            for place, message in enumerate(messages)
            if message.role
        ),
        config=_config(asked, thinks),
        tools=without_equal_names(
            [function_tool(f"tools[{index}]", tool) for index, tool in enumerate(tools)]
        ),
    )


async def generate(http: HttpRequest) -> Response:
    """Answer `POST /api/generate`."""
    asked = await receive(http, OllamaText, refused=_REFUSED)
    body, model = asked.body, asked.model
    form = OllamaForm(body.model or model.id, chat=False)
    if body.images:
        raise RequestError("images: akunu's models read only text", param="images")
    if not body.prompt:
        return JSONResponse(form.empty(await load(asked, asked.body.keep_alive)))
    if body.raw and body.system:
        raise RequestError(
            "system has no place in a raw prompt; write it there, or leave raw out", param="system"
        )
    config = await asked.lay_out(_config)
    request: ChatRequest | CompletionRequest
    if body.raw or body.suffix:
        asked.check_suffix(body.suffix)
        request = CompletionRequest(
            model=model.id, prompt=body.prompt, suffix=body.suffix or None, config=config
        )
    else:
        system = (Message("system", body.system),) if body.system else ()
        messages = (*system, Message("user", body.prompt))
        request = ChatRequest(model=model.id, messages=messages, config=config)
    return await asked.respond(request, form=form, stream=body.stream is not False)


async def load(asked: Incoming[Any], keep_alive: float | str | None) -> str:
    """Load the model, or take it out of memory; return "load" or "unload"."""
    if str(keep_alive).rstrip("smh") in {"0", "0.0"}:
        asked.service.backend.unload(asked.model.id)
        return "unload"
    await asked.service.backend.load(asked.model.id)
    return "load"


def _config(asked: Incoming[_Given], thinks: bool | None = None) -> GenerationConfig:
    """Return the configuration of a reply; `thinks` is what messages say of thinking.

    Raises RequestError that names the field.
    """
    body, context = asked.body, asked.model.context
    kind = with_options(_Options)
    raw = bytes(body.given_options)
    raw = b"{}" if raw == b"null" else raw
    given = decode(raw, kind, within="options")
    refuse(REFUSED_SAMPLING, decode(raw, dict[str, Any]), within="options.")
    for name in unknown_fields(raw, kind):
        if name not in _LOADING and name not in REFUSED_SAMPLING:
            raise RequestError(
                f"options.{name:.60} is not an option of Ollama or akunu; leave it out",
                param=f"options.{name:.60}",
            )
    if given.num_ctx is not None and given.num_ctx > context:
        asked.ignored.append("options.num_ctx")
    if body.keep_alive is not None:
        asked.ignored.append("keep_alive")
    options = given.settings(context) | _thinking(asked, thinks)
    options["constraint"] = _answer_form(body.format)
    options["logprobs"] = logprobs_option(body.logprobs, body.top_logprobs, field="top_logprobs")
    return asked.config(options, given.spelling(within="options."))


def _thinking(asked: Incoming[_Given], thinks: bool | None) -> dict[str, Any]:
    think = asked.body.think
    if think is None:
        return asked.thinking(thinking=thinks, by="control")
    if isinstance(think, bool):
        return asked.thinking(thinking=think, by="think")
    if think not in _EFFORTS:
        raise RequestError(
            f"think is {think!r:.60}; give true, false or one of {', '.join(_EFFORTS)}",
            param="think",
        )
    return asked.thinking(thinking=True, by="think", effort=think, effort_by="think")


def _answer_form(given: str | dict[str, Any] | None) -> Constraint | None:
    match given:
        case None | "":
            return None
        case "json":
            return JSON_OBJECT
        case dict(schema):
            return Constraint.json_schema(schema)
    raise RequestError(f"format is {given!r:.60}; give 'json' or a JSON schema", param="format")


def _message(message: _Message, place: str, ignored: list[str], *, newest: bool) -> Message:
    content = message.content or ""
    if message.images:
        if newest:
            raise RequestError(
                f"{place}.images: akunu's models read only text", param=f"{place}.images"
            )
        unread = unread_part("image", place, ignored, newest=False)
        content = f"{content}\n{unread}" if content else unread
    return message_at(
        place,
        role=message.role,
        content=content,
        name=message.tool_name or "",
        tool_calls=tuple(
            _call(call, f"{place}.tool_calls[{index}]")
            for index, call in enumerate(message.tool_calls or ())
        ),
        tool_call_id=message.tool_call_id or "",
        reasoning=(message.thinking or "") if message.role == "assistant" else "",
    )


def _call(call: _Call, place: str) -> ToolCall:
    return call_at(place, call.function.name, call.function.arguments, call.id or "")
