"""/api/embed and /api/embeddings: Ollama's formats of embeddings, the second for one text."""

import time
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from akunu_py.server.events import Usage, Vectors
from akunu_py.server.generation_fields import RequestBody
from akunu_py.server.incoming import EmbeddingsForm, receive
from akunu_py.server.ollama.replies import load

_NO_EFFECT = frozenset({"options"})
"""Those of Ollama say how to load a model, or how to draw tokens."""


class OllamaTexts(RequestBody, kw_only=True):
    """The body of a request in either format."""

    input: str | list[str] | None = None
    prompt: str | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    prompt_name: str | None = None
    keep_alive: float | str | None = None


async def embed(http: HttpRequest) -> Response:
    """Answer `POST /api/embed` and `POST /api/embeddings`; without a text, load the model."""
    started = time.perf_counter()
    asked = await receive(http, OllamaTexts, no_effect=_NO_EFFECT)
    body, name = asked.body, asked.body.model or asked.model.id
    single = http.url.path == "/api/embeddings"
    given = body.prompt if single else body.input
    if not given:
        await load(asked, body.keep_alive)
        answer = {"embedding": []} if single else {"model": name, "embeddings": []}
        return Response(msgspec.json.encode(answer), media_type="application/json")
    if body.keep_alive is not None:
        asked.ignored.append("keep_alive")

    def whole(vectors: Vectors, usage: Usage) -> dict[str, Any]:
        total_s = time.perf_counter() - started
        return {"embedding": vectors[0]} if single else {
            "model": name, "embeddings": vectors,
            "total_duration": round(total_s * 1e9),
            "load_duration": round((total_s - usage.prefill_s) * 1e9),
            "prompt_eval_count": usage.prompt_tokens,
        }  # fmt: skip

    return await asked.embed(given, EmbeddingsForm("ollama", whole), body.truncate is not False)


ROUTES = [Route(path, embed, methods=["POST"]) for path in ("/api/embed", "/api/embeddings")]
