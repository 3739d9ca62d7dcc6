"""What Ollama's clients ask of models: which there are, what they can do, which are in memory."""

import hashlib
import time
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from akunu_py import __version__
from akunu_py.server.backend import ServedModel
from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import decode, read_body
from akunu_py.server.ollama.form import written_time
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
    can = {"completion": True, "tools": True, "thinking": model.thinks, "insert": model.fills_in}
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


async def embed(http: HttpRequest) -> Response:
    """Refuse embeddings, which akunu does not make."""
    del http
    raise RequestError(
        "akunu makes no embeddings: its models write text; give the client another server for them"
    )


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


ROUTES = [
    Route("/api/version", version),
    Route("/api/tags", tags),
    Route("/api/ps", in_memory),
    Route("/api/show", show, methods=["POST"]),
    *(
        Route(path, embed, methods=["POST"])
        for path in ("/api/embed", "/api/embeddings", "/v1/embeddings", "/embeddings")
    ),
]
