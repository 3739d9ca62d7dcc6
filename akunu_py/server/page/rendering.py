"""`POST /render`: Markdown as trees of elements, for the page; `render_child` makes them."""

import asyncio
from pathlib import Path

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import decode, read_body
from akunu_py.system.limited_child import LimitedChild

_MOST_CHARACTERS = 1_000_000
_MOST_SECONDS = 3.0
"""Of processor time for a request; a reply of 20,000 tokens takes half a second."""

_MOST_WAIT_S = 30.0
"""Longest wait for an answer, on a machine that is busy with other work: processor time decides."""


class _Texts(msgspec.Struct):
    texts: list[str]


_SCRIPT = str(Path(__file__).with_name("render_child.py"))
_CHILD = LimitedChild(_SCRIPT, _MOST_SECONDS, purpose="read Markdown")


async def render(http: HttpRequest) -> Response:
    """Answer `POST /render`: for each text its blocks, `[line, tree]`; none at the limit."""
    texts = decode(await read_body(http), _Texts).texts
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        raise RequestError(f"texts: send up to {_MOST_CHARACTERS:,} characters", param="texts")
    found = await asyncio.to_thread(_CHILD.ask, {"texts": texts}, _MOST_WAIT_S)
    if isinstance(found, int):
        found = {"texts": None, "seconds": _MOST_SECONDS}
    return JSONResponse(found)
