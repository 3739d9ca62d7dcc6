"""The route: a body to a request.

Codex adds fields, items and tools faster than servers learn them. So unknown ones are ignored and
listed in a header; refused is only what asks for a response that this server does not have.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from akunu_py.server.backend import ChatRequest
from akunu_py.server.conversation import check_counts, newest_of_user
from akunu_py.server.errors import RequestError
from akunu_py.server.generation_fields import RequestBody, answer_form
from akunu_py.server.incoming import Incoming, receive
from akunu_py.server.logprobs import logprobs_option
from akunu_py.server.responses.form import ResponseForm
from akunu_py.server.responses.items import InputItem, InputReader
from akunu_py.server.responses.kept import KeptResponses, as_items
from akunu_py.server.responses.tools import ToolBook
from akunu_py.values.messages import Message
from akunu_py.values.option_fields import WireFormat

PATH = "/v1/responses"

_REFUSED = {
    "conversation": "akunu keeps no conversations; give previous_response_id",
    "background": "akunu answers while the client waits; leave it out",
    "prompt": "akunu has no stored prompts; send the text as instructions",
}
_NO_EFFECT = frozenset({
    "client_metadata", "metadata", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "service_tier", "stream_options", "text.verbosity", "truncation", "user",
})  # fmt: skip
_LOGPROBS = "message.output_text.logprobs"
_ECHOED = ("metadata", "truncation", "prompt_cache_key", "service_tier")


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class _Text(msgspec.Struct):
    format: dict[str, Any] | None = None


class ResponsesBody(RequestBody, kw_only=True):
    """The body of a request."""

    wire: ClassVar[WireFormat] = "responses"

    input: str | list[InputItem]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    stream: bool | None = None
    include: list[str] | None = None
    store: bool | None = None
    top_logprobs: int | None = None
    previous_response_id: str | None = None


async def responses(http: HttpRequest) -> Response:
    """Answer `POST /v1/responses`."""
    asked = await receive(http, ResponsesBody, refused=_REFUSED, no_effect=_NO_EFFECT)
    book, kept = ToolBook(), _kept(http)

    def read(asked: Incoming[ResponsesBody]) -> tuple[ChatRequest, dict[str, Any], bytes]:
        request = _read_request(asked, book, kept)
        fields = asked.fields()
        return request, _echoed(asked, fields), msgspec.json.encode(fields["input"])

    request, echoed, given = await asked.lay_out(read)

    def keep(made: Mapping[str, Any]) -> None:
        if asked.body.store is not False:
            kept.keep(made, given)

    form = ResponseForm(echoed, book, keep)
    return await asked.respond(request, form=form, stream=asked.body.stream)


async def input_tokens(http: HttpRequest) -> Response:
    """Answer `POST /v1/responses/input_tokens`."""
    asked = await receive(http, ResponsesBody, refused=_REFUSED, no_effect=_NO_EFFECT)
    request = await asked.lay_out(lambda asked: _read_request(asked, ToolBook(), _kept(http)))
    ids = await asked.service.backend.chat_ids(request)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": len(ids)})


async def kept_response(http: HttpRequest) -> Response:
    """Answer `GET` and `DELETE` of a response."""
    id_, kept = http.path_params["id"], _kept(http)
    found = kept.get(id_) if id_.startswith("resp_") else None
    if found is None:
        raise RequestError(f"the response {id_!r:.100} is not kept, or not any more", status=404)
    if http.method == "DELETE":
        kept.drop(id_)
        return JSONResponse({"id": id_, "object": "response", "deleted": True})
    if http.query_params.get("stream") == "true":
        raise RequestError("a kept response is not streamed; leave stream out", param="stream")
    return Response(found, media_type="application/json")


ROUTES = [
    route
    for path in (PATH, "/responses")
    for route in (
        Route(path, responses, methods=["POST"]),
        Route(f"{path}/input_tokens", input_tokens, methods=["POST"]),
        Route(f"{path}/{{id}}", kept_response, methods=["GET", "DELETE"]),
    )
]


def _kept(http: HttpRequest) -> KeptResponses:
    return KeptResponses(http.app.state.service.items, http.state.client)


def _read_request(
    asked: Incoming[ResponsesBody], book: ToolBook, kept: KeptResponses
) -> ChatRequest:
    """Return the request of a body, and fill the book; raises RequestError naming the field."""
    body, ignored = asked.body, asked.ignored
    book.add(body.tools or [], "tools", ignored)
    said = [Message("system", body.instructions)] if body.instructions else []
    earlier, given = kept.items_until(body.previous_response_id), as_items(body.input)
    check_counts(earlier + given, body.tools or (), name="input")
    conversation = InputReader(book, ignored, kept.get)
    for item in earlier:
        conversation.add(item, "previous_response_id")
    newest = newest_of_user(item.role for item in given)
    for place, item in enumerate(given):
        conversation.add(item, f"input[{place}]", newest=place == newest)
    said += conversation.messages()
    if not said:
        raise RequestError("input is empty; give a text or at least one item", param="input")
    asked.check_grammars(book.shown, refuse=False)
    options = {
        **body.options(),
        "constraint": answer_form(body.text.format if body.text else None, "text.format"),
        "logprobs": logprobs_option(
            _LOGPROBS in (body.include or ()) or bool(body.top_logprobs),
            body.top_logprobs,
            field="top_logprobs",
        ),
    }
    return ChatRequest(
        model=asked.model.id,
        messages=tuple(said),
        continued=False,  # an item of the assistant is whole
        config=asked.config(options | _thinking(asked)),
        tools=book.shown,
        tool_choice=book.choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls is not False,
    )


def _thinking(asked: Incoming[ResponsesBody]) -> dict[str, Any]:
    effort = (asked.body.reasoning or _Reasoning()).effort
    return asked.thinking(effort=effort, effort_by="reasoning.effort")


def _echoed(asked: Incoming[ResponsesBody], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, of which some were `given`, that its response repeats."""
    body, options = asked.body, asked.body.options()
    reasoning = body.reasoning or _Reasoning()
    return {
        **{name: given.get(name) for name in _ECHOED},
        **({"user": given["user"]} if given.get("user") is not None else {}),
        "model": body.model or asked.model.id,
        "instructions": body.instructions,
        "max_output_tokens": options["max_tokens"],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id or None,
        "store": body.store is not False,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "temperature": options["temperature"],
        "text": {"format": (body.text and body.text.format) or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": options["top_p"],
        "truncation": "disabled",
    }
