"""/v1/embeddings: OpenAI's format of embeddings, as numbers or as bytes in base64.

`prompt_name` is a field of text-embeddings-inference, `truncate` one of Ollama.
"""

import base64
from typing import Any, Literal

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from akunu_py.server.events import Usage, Vectors
from akunu_py.server.generation_fields import RequestBody
from akunu_py.server.incoming import EmbeddingsForm, receive

PATH = "/v1/embeddings"

_NO_EFFECT = frozenset({"user"})


class EmbeddingsBody(RequestBody, kw_only=True):
    """The body of a request."""

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    prompt_name: str | None = None
    truncate: bool = False


async def embeddings(http: HttpRequest) -> Response:
    """Answer `POST /v1/embeddings`."""
    asked = await receive(http, EmbeddingsBody, no_effect=_NO_EFFECT)
    body, model = asked.body, asked.model.id

    def whole(vectors: Vectors, usage: Usage) -> dict[str, Any]:
        as_bytes = body.encoding_format == "base64"
        data = [
            {
                "object": "embedding", "index": index,
                "embedding": _in_base64(vector) if as_bytes else vector,
            }
            for index, vector in enumerate(vectors)
        ]  # fmt: skip
        counts = dict.fromkeys(("prompt_tokens", "total_tokens"), usage.prompt_tokens)
        return {"object": "list", "data": data, "model": model, "usage": counts}

    return await asked.embed(body.input, EmbeddingsForm("openai", whole), body.truncate)


def _in_base64(vector: Any) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


ROUTES = [Route(path, embeddings, methods=["POST"]) for path in (PATH, "/embeddings")]
