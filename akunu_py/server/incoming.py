"""A request as it comes in: the same steps for all wire formats.

A format adds only how its fields become a `Request`, and how the reply is written.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from akunu_py.engine.request_checks import not_for_embeddings, not_for_replies
from akunu_py.server.backend import ChatRequest, EmbeddingRequest, Request, ServedModel
from akunu_py.server.choices import choice_count, submit_choices
from akunu_py.server.errors import Api, RequestError
from akunu_py.server.events import Finished, Usage, Vectors
from akunu_py.server.generation_fields import (
    EFFORTS,
    RequestBody,
    config_with,
    refuse,
    with_options,
)
from akunu_py.server.json_body import decode, read_body, unknown_fields
from akunu_py.server.reply_response import ReplyForm, ReplyResponse
from akunu_py.server.service import Service
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Tool

_MOST_TEXTS = 2048
"""Of a request for embeddings, as with OpenAI."""

_MOST_CHARACTERS = 4_000_000
"""Of its texts. More would keep a tokenizer busy for many seconds."""

_Body = TypeVar("_Body", bound=RequestBody)
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class Incoming(Generic[_Body]):
    """A request that was read."""

    body: _Body
    model: ServedModel
    ignored: list[str]
    """Fields, and types of parts and tools, that have no effect."""
    depends: list[tuple[str, Callable[[ServedModel], bool]]]
    """Fields whose effect depends on the model, and what it must have for them."""
    service: Service
    _http: HttpRequest
    _given: bytes

    def config(
        self, options: Mapping[str, Any], spelling: Mapping[str, str] | None = None
    ) -> GenerationConfig:
        """Return the model's configuration with options of the request, of which None counts not.

        `spelling` has the client's names of options; those of the body, if None. Raises
        RequestError that names the field.
        """
        defaults = self.service.defaults_of(self.model)
        return config_with(defaults, options, spelling or self.body.spelling())

    def thinking(
        self,
        *,
        thinking: bool | None = None,
        by: str = "thinking",
        effort: str | None = None,
        effort_by: str = "reasoning_effort",
        refuse: bool = False,
    ) -> dict[str, Any]:
        """Return the options about thinking; fields that the model ignores are listed.

        `by` and `effort_by` name the fields that ask for them. An unknown effort is ignored, or
        with `refuse` raises RequestError.
        """
        if effort is not None and effort not in EFFORTS:
            if refuse:
                words = ", ".join(EFFORTS)
                raise RequestError(
                    f"{effort_by} is {effort!r:.60}; give one of {words}", param=effort_by
                )
            self.ignored.append(effort_by)
            effort = None
        if thinking is not None:
            self.depends.append((by, lambda model: "thinking" in model.heeds))
        if effort is not None:
            needed = "thinking" if effort == "none" else "effort"
            self.depends.append((effort_by, lambda model: needed in model.heeds))
        return {"thinking": thinking, "effort": effort}

    def check_suffix(self, suffix: str | None) -> None:
        """Refuse a gap that the model cannot fill, as far as is known of it, by RequestError."""
        if suffix and self.model.loaded and not self.model.fills_in:
            raise RequestError(
                f"suffix: the vocabulary of {self.model.id} has no tokens to fill a gap; leave it "
                "out, or use a model made for code completion",
                param="suffix",
            )

    def check_grammars(self, tools: Sequence[Tool], *, refuse: bool) -> None:
        """Refuse Lark grammars of custom tools that calls of the model cannot follow.

        Without `refuse` they are listed as ignored. Raises RequestError.
        """
        forms = ((tool, tool.input_form) for tool in tools)
        found = next((tool for tool, form in forms if form and form.kind == "grammar"), None)
        if found is None:
            return
        if refuse and not self.model.holds_grammars:
            raise RequestError(
                f"calls of {self.model.id} write the input of {found.name} as JSON, where a Lark "
                "grammar cannot be followed; give a format of the syntax 'regex', or none",
                param="tools",
            )
        self.depends.append(("tools.format", lambda model: model.holds_grammars))

    def fields(self) -> dict[str, Any]:
        """Return all fields as they were given."""
        return decode(self._given, dict[str, Any])

    async def lay_out(self, read: Callable[["Incoming[_Body]"], _Read]) -> _Read:
        """Return the result of a function that reads this request; see `Bodies.read`."""
        return await self.service.bodies.read(len(self._given), lambda: read(self))

    def choices(self, n: int | None) -> int:
        """Return how many choices a request asks for; raises RequestError for too many."""
        return choice_count(n, self.service.backend.health().places)

    async def respond(
        self, *requests: Request, form: ReplyForm, stream: bool | None, choices: int = 1
    ) -> Response:
        """Queue requests and return the response of their replies, of `choices` for each of them.

        They are of one kind, and the tools of a conversation are those of the first. Raises
        ConfigError for a kind that the model does not answer, ServerBusyError without a place.
        """
        first, model, service = requests[0], self.model, self.service
        tools = first.tools if isinstance(first, ChatRequest) else ()
        # In a thread, and before the headers, which say what was left out.
        loosened = await asyncio.to_thread(self._unenforced_parts, tools) if tools else ()
        if not isinstance(first, EmbeddingRequest) and not model.replies:
            raise not_for_replies(model.id)
        if isinstance(first, EmbeddingRequest) and not model.embeds:
            raise not_for_embeddings(model.id)
        client, path = self._http.state.client, self._http.url.path
        return ReplyResponse(
            submit_choices(service.backend, requests, client, choices),
            form,
            stream=bool(stream),
            # When the answer begins: more is known of a model once it is loaded.
            headers=lambda: service.ignored_header(path, self._without_effect(loosened)),
            request_id=self._http.state.request_id,
            record=lambda outcome: service.record(path, client, outcome),
            patience=service.patience,
        )

    async def embed(
        self,
        given: str | Sequence[str | int | list[int]],
        form: "EmbeddingsForm",
        truncate: bool,
    ) -> Response:
        """Return the response of embeddings.

        Raises RequestError for more text than one request may have.
        """
        texts = texts_or_ids(given, "input", _MOST_TEXTS)
        characters = sum(len(text) for text in texts if isinstance(text, str))
        if characters > _MOST_CHARACTERS:
            raise RequestError(
                f"the texts have {characters:,} characters together; send at most "
                f"{_MOST_CHARACTERS:,} in a request",
                status=413,
            )
        body = cast("Any", self.body)
        request = EmbeddingRequest(
            model=self.model.id, texts=tuple(texts), dimensions=body.dimensions,
            prompt_name=body.prompt_name, truncate=truncate,
        )  # fmt: skip
        return await self.respond(request, form=form, stream=False)

    def _unenforced_parts(self, tools: Sequence[Tool]) -> Sequence[str]:
        """Return the parts of schemas that calls may ignore, as far as the model is known."""
        try:
            enforced = enforceable(tools)
        except ConfigError as error:  # a strict tool
            raise RequestError(error.message, param="tools") from None
        model = self.service.model(self.model.id)
        unwritten = model.unwritten([one.tool for one in enforced])
        return [*(part for one in enforced for part in one.loosened), *unwritten]

    def _without_effect(self, loosened: Sequence[str]) -> Sequence[str]:
        """Return the options without effect, as far as the model is known by now."""
        model = self.service.model(self.model.id)
        depending = (name for name, heeds in self.depends if not heeds(model))
        return [*self.ignored, *depending, *loosened]


class EmbeddingsForm(ReplyForm):
    """Embeddings as one object, which `write` makes of them; they are not streamed."""

    prompt_field = "input"

    def __init__(self, api: Api, write: Callable[[Vectors, Usage], dict[str, Any]]) -> None:
        self.api, self._write = api, write

    def _nothing(self, *_: Any, **__: Any) -> bytes:
        return b""

    opening = addition = keep_alive = closing = failing = _nothing

    def whole(self, finished: Finished) -> dict[str, Any]:
        assert finished.vectors is not None  # noqa: S101 - of those who asked for them
        return self._write(finished.vectors, finished.usage)


async def receive(
    http: HttpRequest,
    kind: type[_Body],
    *,
    refused: Mapping[str, str] | None = None,
    no_effect: Collection[str] = (),
    prefixes: Sequence[str] = (),
) -> Incoming[_Body]:
    """Read a request.

    Args:
        http: the request.
        kind: the struct of its body.
        refused: fields that akunu lacks, and what to do instead (`refuse`).
        no_effect: fields that say nothing about the text of a reply, and are not listed as ignored.
        prefixes: as in `Service.model`.

    Raises RequestError for a body that is not `kind`, a refused field or an unknown model.

    """
    service: Service = http.app.state.service
    kind = with_options(kind)
    raw = await read_body(http)
    body, unknown = await service.bodies.read(
        len(raw), lambda: (decode(raw, kind), unknown_fields(raw, kind))
    )
    refused = refused or {}
    refuse(refused, {one: decode(bytes(unknown[one]), Any) for one in refused if one in unknown})
    ignored = [name for name in unknown if name not in no_effect and name not in refused]
    model = service.model(body.model, prefixes=prefixes)
    return Incoming(body, model, ignored, [], service, http, raw)


def texts_or_ids(
    given: str | Sequence[str | int | list[int]], name: str, most: int
) -> list[str | tuple[int, ...]]:
    """Return what a field has: up to `most` texts, or token ids; raises RequestError."""
    if isinstance(given, str):
        return [given]
    ids = [token for token in given if isinstance(token, int)]
    if ids and len(ids) == len(given):
        return [tuple(ids)]
    if ids:
        raise RequestError(
            f"{name} has ids of tokens beside texts; put them into a list of their own",
            param=name,
        )
    if not 1 <= len(given) <= most:
        raise RequestError(f"{name} has {len(given):,} texts; give 1 to {most:,}", param=name)
    prompts = (one for one in given if not isinstance(one, int))
    return [one if isinstance(one, str) else tuple(one) for one in prompts]
