"""/api/pull: models for the server, fetched as `akunu models pull` does, in Ollama's words."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from akunu_py.model_store.names import fetchable
from akunu_py.server.errors import RequestError, ollama_error, problem_of
from akunu_py.server.json_body import decode, read_body
from akunu_py.server.ollama.form import HEADERS, line
from akunu_py.server.pulls import Pulls
from akunu_py.server.reply_response import unless_client_leaves
from akunu_py.server.service import Service

PATH = "/api/pull"

_LONGEST_NAME = 400
_LOOK_S = 0.2
_KEEP_ALIVE_LOOKS = 40


class _Pull(msgspec.Struct):
    model: str | None = None
    name: str | None = None
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
    """Yield what Ollama says of a fetch, the last step again while nothing happens."""
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
