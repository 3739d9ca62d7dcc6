"""`POST /render`: Markdown as trees of elements, for the page; `render_child` makes them."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

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


class _Renderer:
    """Reads texts one request after the other, in a child that it keeps."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._child: LimitedChild | None = None

    def read(self, texts: list[str]) -> dict[str, Any]:
        """Return the child's answer; its `texts` are None if it ended at its limit."""
        with self._turn:
            if self._child is None or not self._child.alive:
                self.close()
                script = str(Path(__file__).with_name("render_child.py"))
                self._child = LimitedChild(script, str(_MOST_SECONDS), purpose="read Markdown")
            found = self._child.ask({"texts": texts}, _MOST_WAIT_S)
            if found is None:
                self.close()
        return found or {"texts": None, "seconds": _MOST_SECONDS}

    def close(self) -> None:
        if self._child is not None:
            with suppress(OSError):
                self._child.close()
        self._child = None


_RENDERER = _Renderer()


async def render(http: HttpRequest) -> Response:
    """Answer `POST /render`: for each text its blocks, `[line, tree]`."""
    texts = decode(await read_body(http), _Texts).texts
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        raise RequestError(f"texts: send up to {_MOST_CHARACTERS:,} characters", param="texts")
    return JSONResponse(await asyncio.to_thread(_RENDERER.read, texts))
