"""The server that is examined: what it offers, and requests that must succeed."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from akunu_lab.conformance.apis import APIS, Api, ApiReply, ApiRequest, Body, Turns
from akunu_lab.conformance.client import (
    Client,
    Event,
    FailedError,
    HttpAnswer,
    SkippedError,
)
from akunu_py.api import ConfigError

_WORDS = (
    "river", "stone", "green", "seven", "paper", "cloud", "early", "music", "north", "table",
    "apple", "quiet", "horse", "metal", "clear", "ocean",
)  # fmt: skip
_CONTEXT_FIELDS = ("max_model_len", "context_length", "max_input_tokens", "max_context_length")
_UNKNOWN_CONTEXT = 4096


def words(count: int) -> str:
    """Return a text of `count` words, another one each time, so that no cache has it."""
    return " ".join(random.choices(_WORDS, k=count))


@dataclass(frozen=True)
class ExaminedServer:
    """A server, and the formats that it speaks."""

    client: Client
    model: str  # Named in all requests.
    context: int | None  # In tokens; None if the server does not say.
    apis: tuple[Api, ...]

    def require_api(self, api: Api) -> Api:
        """Return a format; raises SkippedError if the server does not speak it."""
        if api not in self.apis:
            raise SkippedError(f"the server has no {api.path}")
        return api

    def body(self, api: Api, said: Turns | str, tokens: int = 1, **fields: Any) -> Body:
        """Return a request; `fields` are the further ones of `ApiRequest`."""
        turns = [("user", said)] if isinstance(said, str) else said
        return api.body(ApiRequest(self.model, turns, tokens, **fields))

    def ask(self, api: Api, said: Turns | str, tokens: int = 1, **fields: Any) -> ApiReply:
        """Return the reply to a conversation; raises FailedError if there is none."""
        return self.send(api, self.body(api, said, tokens, **fields))

    def send(self, api: Api, body: Body) -> ApiReply:
        """Return the reply to a request, which must be a whole one."""
        value = self.expect_success(api.path, body).value
        return _read(api, lambda: api.read_body(value))

    def stream(self, api: Api, body: Body) -> ApiReply:
        """Return the reply to a request as a stream."""
        return self.read_stream(api, self.client.events(api.path, {**body, "stream": True}))

    @staticmethod
    def read_stream(api: Api, events: Iterable[Event]) -> ApiReply:
        """Return the reply that events make."""
        return _read(api, lambda: api.read_stream(events))

    def expect_success(self, path: str, body: object) -> HttpAnswer:
        """Return the answer to a body; raises FailedError for another status than 200."""
        answer = self.client.post(path, body)
        if answer.status != 200:
            raise FailedError(f"POST {path}: {answer.status} {_text(answer):.200}")
        return answer

    def expect_refusal(self, api: Api, body: object) -> HttpAnswer:
        """Return the answer to a body, which must be an error of the client in the API's shape."""
        answer = self.client.post(api.path, body)
        if not 400 <= answer.status < 500:
            raise FailedError(f"POST {api.path}: {answer.status}, not an error of the client")
        if not api.is_error(answer.value):
            raise FailedError(f"POST {api.path}: {_text(answer):.200} has not the API's shape")
        return answer

    def word_count(self, tokens: int) -> int:
        """Return the number of words for a prompt of `tokens` tokens; fewer for a small context."""
        most = min(tokens, (self.context or _UNKNOWN_CONTEXT) // 8)
        return max(1, int(most / self._tokens_per_word))

    @cached_property
    def _tokens_per_word(self) -> float:
        """Tokens that a word of `words` has in the model's vocabulary; at least one."""
        few, many = (self.ask(self.apis[0], words(count)).prompt for count in (10, 60))
        return 2.0 if few is None or many is None else max(1.0, (many - few) / 50)

    @cached_property
    def caches(self) -> bool:
        """Whether usage tells that a repeated prompt was in a cache."""
        for api in self.apis:
            said = words(self.word_count(400))
            self.ask(api, said)
            if self.ask(api, said).cached:
                return True
        return False

    def require_cache(self) -> None:
        """Raise SkippedError if usage never tells of cached tokens."""
        if not self.caches:
            raise SkippedError("usage tells of no cached tokens")


def examine(client: Client, model: str | None) -> ExaminedServer:
    """Find out what a server offers.

    Raises ConfigError if nobody answers, or if the server asks for a key.
    """
    try:
        listed = client.call("GET", "/v1/models")
    except FailedError as error:
        raise ConfigError(f"no server answers at {client.url}: {error.message}") from None
    if listed.status in {401, 403}:
        raise ConfigError(f"the server at {client.url} asks for a key; give --api-key-file FILE")
    entries = [entry for entry in _entries(listed.value) if isinstance(entry.get("id"), str)]
    if model is None:
        if not entries:
            raise ConfigError(f"{client.url}/v1/models names no model; give one as MODEL")
        model = str(entries[0]["id"])
    # An empty body: what exists refuses it.
    apis = tuple(api for api in APIS if client.post(api.path, {}).status not in {404, 405, 501})
    if not apis:
        paths = ", ".join(api.path for api in APIS)
        raise ConfigError(f"the server at {client.url} has none of {paths}")
    found = ExaminedServer(client, model, None, apis)
    return replace(found, context=_context(client, entries, model))


def _entries(value: Any) -> list[dict[str, Any]]:
    data = value.get("data") if isinstance(value, dict) else None
    return [entry for entry in data or () if isinstance(entry, dict)]


def _context(client: Client, entries: list[dict[str, Any]], model: str) -> int | None:
    for entry in entries:
        for name in _CONTEXT_FIELDS:
            if entry["id"] == model and isinstance(entry.get(name), int):
                return int(entry[name])
    match client.call("GET", "/props").value:
        case {"default_generation_settings": {"n_ctx": int(context)}}:
            return context
    return None


def _read(api: Api, read: Callable[[], ApiReply]) -> ApiReply:
    """Return what a reader makes of an answer; a field that is missing is the server's mistake."""
    try:
        return read()
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise FailedError(
            f"{api.path}: a field is missing or of another type: {type(error).__name__} {error}"
        ) from None


def _text(answer: HttpAnswer) -> str:
    return answer.body.decode(errors="replace")
