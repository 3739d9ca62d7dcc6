"""/tokenize, /detokenize and /tokenizer_info, as vLLM has them; llama.cpp calls a text `content`.

lm-evaluation-harness takes the tokenizer of its model from there.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from akunu_py.protocols import Tokenizer
from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import decode, read_body
from akunu_py.server.service import Service

_MOST_CHARACTERS = 1_000_000
"""A longer text would keep the interpreter from others for seconds."""


class _Text(msgspec.Struct):
    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    parse_special: bool = True
    with_pieces: bool = False


class _Tokens(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


async def tokenize(http: HttpRequest) -> Response:
    """Answer `POST /tokenize`; marks in the text are control tokens, as for completions."""
    service: Service = http.app.state.service
    given = decode(await read_body(http), _Text)
    text = given.content if given.prompt is None else given.prompt
    if text is None or len(text) > _MOST_CHARACTERS:
        raise RequestError(
            f"prompt is missing; give a text of up to {_MOST_CHARACTERS:,} characters"
            if text is None
            else f"prompt has {len(text):,} characters; send parts of {_MOST_CHARACTERS:,}",
            param="prompt",
        )
    # vLLM adds a begin token unless it is told not to, llama.cpp only if it is told to.
    begins = given.add_special if given.prompt is None else given.add_special_tokens is not False
    model = service.model(given.model)
    tokenizer = await service.backend.tokenizer(model.id)
    ids = await asyncio.to_thread(tokenizer.encode, text, parse_special=given.parse_special)
    begin = tokenizer.encode("")
    if not begins and ids[: len(begin)] == begin:
        ids = ids[len(begin) :]
    tokens: list[Any] = ids
    if given.with_pieces:
        tokens = await asyncio.to_thread(_with_pieces, tokenizer, ids)
    return JSONResponse({"count": len(ids), "max_model_len": model.context, "tokens": tokens})


def _with_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return tokens with their texts, as llama.cpp has them: bytes for a part of a character."""
    known, control = tokenizer.token_bytes(), tokenizer.control_tokens()
    found: list[dict[str, Any]] = []
    for token in ids:
        data = (known[token] if token < len(known) else b"") or control.get(token, "").encode()
        try:
            found.append({"id": token, "piece": data.decode()})
        except UnicodeDecodeError:
            found.append({"id": token, "piece": list(data)})
    return found


async def detokenize(http: HttpRequest) -> Response:
    """Answer `POST /detokenize`."""
    service: Service = http.app.state.service
    given = decode(await read_body(http), _Tokens)
    tokenizer = await service.backend.tokenizer(service.model(given.model).id)
    size, count = tokenizer.vocabulary_size, len(given.tokens)
    if count > _MOST_CHARACTERS or not all(0 <= token < size for token in given.tokens):
        raise RequestError(
            f"tokens: give ids from 0 to {size - 1}, up to {_MOST_CHARACTERS:,}", param="tokens"
        )
    text = await asyncio.to_thread(tokenizer.decode, given.tokens, with_control=True)
    return JSONResponse({"prompt": text, "content": text})


async def tokenizer_info(http: HttpRequest) -> Response:
    """Answer `GET /tokenizer_info`, of the default model if none is named."""
    service: Service = http.app.state.service
    model = service.model(http.query_params.get("model"))
    tokenizer = await service.backend.tokenizer(model.id)
    # Only loading it tells of its template.
    model = service.model(model.id)
    eos = getattr(tokenizer, "special_ids", {}).get("eos")
    return JSONResponse({
        "tokenizer_class": type(tokenizer).__name__,
        "bos_token": _mark(tokenizer, tokenizer.encode("")[:1]),
        "eos_token": _mark(tokenizer, sorted(tokenizer.end_ids) if eos is None else [eos]),
        "chat_template": model.template or None,
        "model_max_length": model.context,
    })  # fmt: skip


def _mark(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    """Return the text of the first of some tokens; None for none."""
    return tokenizer.control_tokens().get(ids[0]) if ids else None


ROUTES = [
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/tokenizer_info", tokenizer_info),
]
