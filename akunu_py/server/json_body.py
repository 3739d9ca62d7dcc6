"""Reads the JSON body of a request, within limits."""

import asyncio
import re
import sys
from typing import TypeVar

import msgspec
from starlette.requests import Request

from akunu_py.server.errors import RequestError

MOST_BODY_BYTES = 32 * 2**20
"""Anthropic's own limit; a conversation of 200,000 tokens has about 1 MB."""

BODY_TIMEOUT_S = 60.0
"""Longest time in which a body must arrive."""

_T = TypeVar("_T")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape of JSON: a pair of surrogates is one, and a surrogate without the other is `lone`."""

_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<place>.*)`)?", re.DOTALL)


async def read_body(
    request: Request, *, most: int = MOST_BODY_BYTES, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """Return the body of a request, in which a lone surrogate is U+FFFD.

    JavaScript's strings may be cut within a character, and models read only whole ones.

    Raises RequestError for a body that is too large or too slow.
    """
    too_large = RequestError(
        f"the body has more than {most / 2**20:g} MB; send fewer or shorter messages", status=413
    )
    declared = request.headers.get("content-length", "")
    # A server of ASGI has checked that it is a number.
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise RequestError(
            f"the body did not arrive within {timeout_s:g} seconds", status=408
        ) from None
    return _ESCAPE.sub(_whole_character, body) if b"\\u" in body else bytes(body)


def _whole_character(escape: re.Match[bytes]) -> bytes:
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
