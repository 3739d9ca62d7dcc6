"""Requests made at random from the fields of each format: never a 500, and always a body.

They are made of the fields that akunu reads, and of the types of OpenAI's and Anthropic's libraries.

AKUNU_REQUESTS sets how many there are; AKUNU_REQUESTS_SEED makes others.
"""

import importlib
import os
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pydantic import TypeAdapter, ValidationError
from scripted_server import called
from wire_formats import BODIES, CHAT, COMPLETIONS, GENERATE, MESSAGES, OLLAMA, RESPONSES

from akunu_py.server.chat_completions import ChatBody
from akunu_py.server.completions import CompletionBody
from akunu_py.server.generation_fields import with_options
from akunu_py.server.messages_api import MessagesBody
from akunu_py.server.ollama import replies
from akunu_py.server.responses.route import ResponsesBody
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

KINDS = {
    CHAT: ChatBody, COMPLETIONS: CompletionBody, MESSAGES: MessagesBody, RESPONSES: ResponsesBody,
    OLLAMA: replies.OllamaChat, GENERATE: replies.OllamaText,
}  # fmt: skip
REQUESTS = int(os.environ.get("AKUNU_REQUESTS", "600"))
SEED = int(os.environ.get("AKUNU_REQUESTS_SEED", "1"))
WORDS = [
    "user", "assistant", "system", "tool", "text", "function", "custom", "auto", "required", "none",
    "json_object", "json_schema", "image_url", "message", "reasoning", "function_call", "grammar", "lark",
    "low", "", "tiny", "a b", "\0", "\ud83d\ude00", "x" * 5000, "5m", "{}", "[",
]  # fmt: skip
NAMES = [
    "type", "role", "content", "text", "name", "id", "arguments", "parameters", "input", "function",
    "custom", "format", "schema", "json_schema", "tools", "mode", "effort", "output", "call_id",
    "num_predict", "stop", "syntax", "definition", "items", "properties", "enum", "$ref", "anyOf",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, -2, 20, 21, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e300, True, False]


def junk(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value, of the words and names that mean something."""
    match rng.randrange(6 if depth < 4 else 4):
        case 0:
            return None
        case 1:
            return rng.choice(NUMBERS)
        case 2 | 3:
            return rng.choice(WORDS)
        case 4:
            return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): junk(rng, depth + 1) for _ in range(rng.randrange(5))}


def made(schema: dict[str, Any], defs: dict[str, Any], rng: random.Random, depth: int = 0) -> Any:
    """A value of a schema, with a wrong one in twenty."""
    if rng.random() < 0.05 or depth > 8:
        return junk(rng)
    if ref := schema.get("$ref"):
        return made(defs[ref.rpartition("/")[2]], defs, rng, depth)
    if forms := schema.get("anyOf"):
        return made(rng.choice(forms), defs, rng, depth)
    match schema.get("type"):
        case "object" if "properties" in schema:
            wanted = set(schema.get("required", ()))
            share = 2 / len(schema["properties"])
            return {
                name: made(one, defs, rng, depth + 1)
                for name, one in schema["properties"].items()
                if name in wanted or rng.random() < share
            }
        case "array":
            return [
                made(schema.get("items", {}), defs, rng, depth + 1) for _ in range(rng.randrange(3))
            ]
        case "string":
            return rng.choice(WORDS)
        case "integer":
            return rng.choice([one for one in NUMBERS if isinstance(one, int)])
        case "number":
            return rng.choice(NUMBERS)
        case "boolean":
            return rng.choice([True, False])
        case "null":
            return None
    return junk(rng)


def bodies(path: str, schema: dict[str, Any], defs: dict[str, Any]) -> Iterator[Any]:
    rng = random.Random(f"{path} {SEED}")
    for _ in range(REQUESTS // len(KINDS)):
        body = made(schema, defs, rng)
        if isinstance(body, dict):
            # Half of them ask for something, with other fields changed.
            asked = BODIES[path] if rng.random() < 0.5 else {}
            body = {name: value for name, value in body.items() if name not in asked} | asked
            body.pop("model", None) if rng.random() < 0.9 else None
        yield body


@pytest.mark.parametrize("path", KINDS)
def test_no_request_makes_the_server_fail(server, path):
    [schema], defs = msgspec.json.schema_components([with_options(KINDS[path])])
    answered = 0
    for body in bodies(path, schema, defs):
        response = server.post(path, body)
        assert response.status_code < 500, (body, response.text)
        assert response.content, body
        answered += response.status_code == 200
    assert answered > REQUESTS // len(KINDS) // 50


LIBRARIES = {
    CHAT: (
        "openai.types.chat",
        "completion_create_params.CompletionCreateParams",
        "ChatCompletion",
    ),
    COMPLETIONS: ("openai.types", "completion_create_params.CompletionCreateParams", "Completion"),
    RESPONSES: (
        "openai.types.responses",
        "response_create_params.ResponseCreateParams",
        "Response",
    ),
    MESSAGES: ("anthropic.types", "message_create_params.MessageCreateParams", "Message"),
}
"""A module, and in it the names of the types of a request (less "NonStreaming") and its answer."""


def malformed(form: TypeAdapter, value: Any) -> set[Any]:
    """The fields of a value that are not those of a type."""
    try:
        form.validate_python(value)
    except ValidationError as error:
        return {one["loc"][0] for one in error.errors()}
    return set()


@pytest.mark.parametrize("path", LIBRARIES)
def test_requests_of_libraries_types_get_answers_of_their_types(server, backend, path):
    module, asked, answer = LIBRARIES[path]
    file, _, name = asked.partition(".")
    params = importlib.import_module(f"{module}.{file}")
    schema = TypeAdapter(getattr(params, f"{name}NonStreaming")).json_schema()
    form = TypeAdapter(getattr(importlib.import_module(module), answer))
    backend.play(called(("read", {"path": "x"}), before=[ReasoningDelta("t"), ContentDelta("Hi")]))
    answered = 0
    for body in bodies(path, schema, schema["$defs"]):
        if isinstance(body, dict):
            body.pop("model", None), body.pop("stream", None)
        response = server.post(path, body)
        assert response.status_code < 500, (body, response.text)
        if response.status_code == 200:
            answered += 1
            # Fields that an answer repeats as they were sent may be wrong ones.
            assert malformed(form, response.json()) <= body.keys(), (body, response.text)
    assert answered > REQUESTS // len(KINDS) // 50
