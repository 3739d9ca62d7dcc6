"""/v1/embeddings: OpenAI's format of embeddings, as numbers or as bytes in base64.

`prompt_name` is a field of text-embeddings-inference, `truncate` one of Ollama.
"""

import base64
from typing import Any, Literal

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from akunu_py.server.events import Embedded
from akunu_py.server.generation_fields import RequestBody
from akunu_py.server.incoming import MOST_TEXTS, receive, texts_or_ids

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
    texts = texts_or_ids(body.input, "input", MOST_TEXTS)
    as_bytes = body.encoding_format == "base64"

    def write(made: Embedded) -> bytes:
        vectors = map(_in_base64, made.vectors) if as_bytes else made.vectors.tolist()
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": made.num_tokens, "total_tokens": made.num_tokens}
        return msgspec.json.encode({
            "object": "list", "data": data, "model": model, "usage": usage,
        })  # fmt: skip

    return await asked.embed(
        texts, write,
        dimensions=body.dimensions, prompt_name=body.prompt_name, truncate=body.truncate,
    )  # fmt: skip


def _in_base64(vector: Any) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


ROUTES = [Route(path, embeddings, methods=["POST"]) for path in (PATH, "/embeddings")]
