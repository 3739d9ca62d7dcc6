"""Models in Ollama's words: which there are, what they can do, what is in memory, and fetching."""

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from akunu_py import __version__
from akunu_py.model_store.names import fetchable
from akunu_py.server.backend import ServedModel
from akunu_py.server.errors import RequestError, ollama_error, problem_of
from akunu_py.server.json_body import decode, read_body
from akunu_py.server.ollama.form import HEADERS, line, written_time
from akunu_py.server.pulls import Pulls
from akunu_py.server.reply_response import unless_client_leaves
from akunu_py.server.service import Service

_OLLAMA = "0.33.0"
"""The version whose API this is. Some clients refuse to talk to an old one."""

_FOREVER = "9999-12-31T23:59:59Z"


class _Named(msgspec.Struct):
    model: str | None = None
    name: str | None = None


async def version(http: HttpRequest) -> Response:
    """Answer `GET /api/version`."""
    del http
    return JSONResponse({"version": _OLLAMA, "akunu": __version__})


async def tags(http: HttpRequest) -> Response:
    """Answer `GET /api/tags` with all models."""
    service: Service = http.app.state.service
    return JSONResponse({"models": [_entry(model) for model in service.backend.models()]})


async def in_memory(http: HttpRequest) -> Response:
    """Answer `GET /api/ps` with the models in memory."""
    service: Service = http.app.state.service
    return JSONResponse({"models": [
        _entry(model) | {
            "size_vram": model.stored.num_bytes,
            "context_length": model.context,
            "expires_at": _FOREVER if model.idle_left_s is None
            else written_time(time.time() + model.idle_left_s),
        }
        for model in service.backend.models() if model.loaded
    ]})  # fmt: skip


async def show(http: HttpRequest) -> Response:
    """Answer `POST /api/show`; the context is the one that a request can have."""
    service: Service = http.app.state.service
    given = decode(await read_body(http), _Named)
    model = service.model(given.model or given.name)
    stored = model.stored
    # akunu tells a model of tools whose template has no place for them.
    can = {
        "completion": model.replies, "tools": model.replies, "thinking": model.thinks,
        "insert": model.fills_in, "embedding": model.embeds,
    }  # fmt: skip
    return JSONResponse({
        "modelfile": f"FROM {model.id}",
        "parameters": "",
        "template": model.template,
        "details": _details(model),
        "model_info": {
            "general.architecture": stored.architecture,
            "general.parameter_count": stored.parameters,
            f"{stored.architecture}.context_length": model.context,
        },
        "capabilities": [name for name, has in can.items() if has],
        "modified_at": written_time(model.created),
    })  # fmt: skip


def _entry(model: ServedModel) -> dict[str, Any]:
    name = f"{model.id}:latest"
    # Not of the weights, which would take long to read; another file has another.
    facts = f"{model.id}\n{model.stored.num_bytes}\n{model.created}"
    return {
        "name": name,
        "model": name,
        "modified_at": written_time(model.created),
        "size": model.stored.num_bytes,
        "digest": hashlib.sha256(facts.encode()).hexdigest(),
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    stored = model.stored
    return {
        "parent_model": "",
        "format": stored.storage,
        "family": stored.architecture,
        "families": [stored.architecture],
        "parameter_size": _rounded(stored.parameters),
        "quantization_level": stored.quantization,
    }


def _rounded(parameters: int) -> str:
    """Return a number of parameters as Ollama writes it, such as 135M and 8.0B."""
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f}B"
    return f"{parameters / 1e6:.2f}M"


_LONGEST_NAME = 400
_LOOK_S = 0.2
_KEEP_ALIVE_LOOKS = 40


class _Pull(_Named):
    stream: bool | None = None


async def pull(http: HttpRequest) -> Response:
    """Answer `POST /api/pull`; a client that leaves ends the fetch, unless others follow it."""
    service: Service = http.app.state.service
    given = decode(await read_body(http), _Pull)
    if service.pulls is None:
        raise RequestError(
            "the server fetches no models, since it runs without --allow-pull; run akunu models "
            "pull NAME, then start the server with it",
            status=403,
        )
    name = (given.model or given.name or "").removesuffix(":latest")
    if len(name) > _LONGEST_NAME:
        raise RequestError(f"the name of the model has {len(name)} characters; give a shorter one")
    fetchable(name)
    steps = _steps(service.pulls, name)
    if given.stream is not False:
        return StreamingResponse(_lines(steps), headers=HEADERS)
    return JSONResponse(await unless_client_leaves(http.receive, _last(steps)))


async def _last(steps: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    async for step in steps:
        last = step
    return last


async def _lines(steps: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    try:
        async with contextlib.aclosing(steps):
            async for step in steps:
                yield line(step)
    except Exception as error:  # noqa: BLE001 - each becomes the stream's last line
        yield line(ollama_error(problem_of(error)))


async def _steps(pulls: Pulls, name: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield Ollama's messages of a fetch, the last step again while nothing happens."""
    step: dict[str, Any] = {"status": "pulling manifest"}
    yield step
    told: dict[str, int] = {}
    async with pulls.following(name) as fetch:
        looks = 0
        while not fetch.task.done():
            await asyncio.wait({fetch.task}, timeout=_LOOK_S)
            looks += 1
            for file in fetch.files:
                completed = await asyncio.to_thread(file.completed)
                if told.get(file.digest) != completed:
                    told[file.digest], looks = completed, 0
                    step = {
                        "status": f"pulling {file.digest[:12]}", "digest": _marked(file.digest),
                        "total": file.num_bytes, "completed": completed,
                    }  # fmt: skip
                    yield step
            if looks == _KEEP_ALIVE_LOOKS:
                looks = 0
                yield step
        if told:
            yield {"status": "verifying sha256 digest"}
        await pulls.adopt(name, fetch)
    yield {"status": "success"}


def _marked(digest: str) -> str:
    """Return a hash as Ollama writes it; small files have git's."""
    return f"sha256:{digest}" if re.fullmatch("[0-9a-f]{64}", digest) else f"sha1:{digest}"


ROUTES = [
    Route("/api/version", version),
    Route("/api/tags", tags),
    Route("/api/ps", in_memory),
    Route("/api/show", show, methods=["POST"]),
    Route("/api/pull", pull, methods=["POST"]),
]
