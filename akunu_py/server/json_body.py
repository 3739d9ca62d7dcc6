"""Reads JSON: bodies of requests, within limits, and arguments of calls that were cut."""

import asyncio
import re
import sys
import zlib
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ServerBusyError

MOST_BODY_BYTES = 32 * 2**20
"""Anthropic's own limit; a conversation of 200,000 tokens has about 1 MB."""

BODY_TIMEOUT_S = 60.0
"""Longest time in which a body must arrive."""

_MOST_TOGETHER = 256 * 2**20
"""Most bytes of the bodies of all requests under way."""

_MOST_MARKS = 500_000
"""Most texts, brackets, colons and commas of a body; a prompt may be a list of token ids."""

_LARGE = 2**17
"""Bytes of a body that is read beside the event loop; a smaller one takes a millisecond."""

_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{\[:,]', re.DOTALL)
"""Of a text the whole, so that what is in it does not count."""

_T = TypeVar("_T")
_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>[89a-fA-F][0-9a-fA-F]{2}))"
)
"""An escape of JSON: two surrogates, or one without the other. `re` finds its beginning fast."""

_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<place>.*)`)?", re.DOTALL)


class Bodies:
    """The memory of bodies, of which one gets no more than it leaves free, and large ones' turns.

    `most` is for all bodies under way. Each has at most `most_each` bytes, which arrive within
    `timeout_s`. One event loop uses it.
    """

    def __init__(
        self,
        most: int = _MOST_TOGETHER,
        *,
        most_each: int = MOST_BODY_BYTES,
        timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        self._most = most
        self.most_each = most_each
        self.timeout_s = timeout_s
        self._held: dict[str, int] = {}
        self._turn = asyncio.Lock()

    def hold(self, request_id: str, num_bytes: int) -> None:
        """Take note of the bytes of a request's body; raises ServerBusyError if memory is short."""
        self._held[request_id] = num_bytes
        if num_bytes > self._most - sum(self._held.values()):
            raise ServerBusyError(
                "requests under way hold the memory for bodies; try again later",
                retry_after_s=10,
            )

    def let_go(self, request_id: str) -> None:
        """Take note that a request has ended."""
        self._held.pop(request_id, None)

    async def read(self, num_bytes: int, work: Callable[[], _T]) -> _T:
        """Return the result of work on a body; on a large one it is done in a thread."""
        if num_bytes < _LARGE:
            return work()
        async with self._turn:
            return await asyncio.to_thread(work)


async def read_body(request: Request) -> bytes:
    """Return the body of a request, decompressed, in which a lone surrogate is U+FFFD.

    JavaScript's strings may be cut within a character, and models read only whole ones.

    Raises RequestError for a body that is too large or too slow, ServerBusyError.
    """
    bodies: Bodies = request.app.state.service.bodies
    request_id: str = request.state.request_id
    most = bodies.most_each
    declared = request.headers.get("content-length", "")
    # A server of ASGI has checked that it is a number.
    if declared.isdecimal():
        _check_size(int(declared), most)
    body = bytearray()
    try:
        async with asyncio.timeout(bodies.timeout_s):
            async for part in request.stream():
                body += part
                _check_size(len(body), most)
                bodies.hold(request_id, len(body))
    except TimeoutError:
        raise RequestError(
            f"the body did not arrive within {bodies.timeout_s:g} seconds", status=408
        ) from None
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        body = await bodies.read(_LARGE, lambda: _decompressed(body, coding, most))
        bodies.hold(request_id, len(body))
    return await bodies.read(len(body), lambda: _with_whole_characters(body))


def _check_size(num_bytes: int, most: int) -> None:
    if num_bytes > most:
        raise RequestError(
            f"the body has more than {most / 2**20:g} MB; send fewer or shorter messages",
            status=413,
        )


def _decompressed(body: bytearray, coding: str, most: int) -> bytearray:
    """Return the body that a `Content-Encoding` packed; raises RequestError."""
    unpacking: Any
    match coding:
        case "gzip" | "x-gzip" | "deflate":
            # Some clients leave out zlib's head.
            bare = coding == "deflate" and body[:1] and body[0] & 15 != 8
            unpacking = zlib.decompressobj(-zlib.MAX_WBITS if bare else 32 + zlib.MAX_WBITS)
        case "zstd":
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
            # 8 MB: RFC 9659 allows no more.
            window = {int(zstd.DecompressionParameter.window_log_max): 23}
            unpacking = zstd.ZstdDecompressor(options=window)
        case _:
            wrong = f"Content-Encoding is {coding!r:.60}; send gzip, deflate, zstd or none"
            raise RequestError(wrong, status=415)
    try:
        unpacked = unpacking.decompress(body, most + 1)
    except Exception as error:  # noqa: BLE001 - of either library, on bytes that are not its own
        raise RequestError(f"the body is not {coding}: {error}") from None
    _check_size(len(unpacked), most)
    if not unpacking.eof or unpacking.unused_data:
        raise RequestError(f"the body is not one whole stream of {coding}; send one")
    return bytearray(unpacked)


def _with_whole_characters(body: bytearray) -> bytes:
    """Return a body in which a lone surrogate is U+FFFD; raises RequestError for too many marks."""
    if (
        sum(map(body.count, b'"{[:,')) > _MOST_MARKS
        and next(islice(_MARK.finditer(body), _MOST_MARKS, None), None) is not None
    ):
        raise RequestError(
            f"the body has more than {_MOST_MARKS:,} texts, brackets, colons and commas; send "
            "fewer messages, parts or fields",
            status=413,
        )
    return _SURROGATE.sub(_whole_character, body) if b"\\u" in body else bytes(body)


def _whole_character(escape: re.Match[bytes]) -> bytes:
    first = escape.start()
    while escape.string[first - 1 : first] == b"\\":
        first -= 1
    if (escape.start() - first) % 2:  # the first one's backslash is escaped itself
        return escape[0] if escape["lone"] else escape[0][:6] + rb"\ufffd"
    return rb"\ufffd" if escape["lone"] else escape[0]


def _float(text: str) -> float:
    """Return a number of a schema or of arguments; one beyond the range is the largest float."""
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def decode(body: bytes, kind: type[_T], *, within: str = "") -> _T:
    """Return a body, or the field `within` one, as a struct.

    Raises RequestError that names the field at fault.
    """
    try:
        return msgspec.json.Decoder(kind, float_hook=_float).decode(body)
    except msgspec.ValidationError as error:
        match = _PLACE.fullmatch(str(error))
        if match is None or not match["place"]:
            what = f"{within or 'the body'}: {_plain(str(error))}"
            raise RequestError(what, param=within) from None
        place = (within + match["place"]).lstrip(".")
        raise RequestError(f"{place}: {_plain(match['what'])}", param=place) from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    except ValueError as error:  # msgspec.DecodeError, UnicodeDecodeError
        raise RequestError(f"the body is not JSON: {error}") from None


def unknown_fields(body: bytes, kind: type[msgspec.Struct]) -> dict[str, msgspec.Raw]:
    """Return the fields of a body that a struct does not have, in their order.

    Fields of a field that is a struct, too, are called `outer.inner`. The body is one that `decode`
    accepts.
    """
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    found = {}
    for name, value in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items():
        if name not in known:
            found[name] = value
        for inner in getattr(known.get(name), "__args__", ()):
            is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
            if is_struct and (text := bytes(value)).startswith(b"{"):
                nested = unknown_fields(text, inner)
                found |= {f"{name}.{one}": nested[one] for one in nested}
    return found


def _plain(what: str) -> str:
    """Return msgspec's words as part of a sentence: "expected int, got str"."""
    text = what.replace("`", "")
    return text[:1].lower() + text[1:]


_PIECE = re.compile(
    r'\s*(?:"(?:[^"\\]|\\.)*+"|(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.+-])'
    r"|[\[\]{},:])",
    re.DOTALL,
)
"""A text, a word, a number or a sign, whole."""

_CLOSES = {"{": "}", "[": "]"}


def begun_object(text: str) -> dict[str, Any]:
    """Return an object whose JSON text may have been cut, with the values that are whole.

    These are the ones that Anthropic's SDK finds in a stream that ends there. A text that is no
    JSON has none.
    """
    open_: list[str] = []  # signs that close what is open
    end = 0  # of the last whole value
    is_key = False
    place = 0
    while piece := _PIECE.match(text, place):
        place = piece.end()
        sign = piece.group().lstrip()
        if sign in _CLOSES:
            open_.append(_CLOSES[sign])
        elif open_ and sign == open_[-1]:
            open_.pop()
        if sign not in {",", ":"} and not (is_key and sign[0] == '"'):
            end = place
        is_key = sign == "{" or (sign == "," and open_[-1:] == ["}"])
    closing = "".join(reversed(open_))  # behind `end` nothing was opened or closed
    try:
        return msgspec.json.decode(text[:end] + closing, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}
