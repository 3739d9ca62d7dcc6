"""JSON text that was cut: the arguments of a call that the reply's limit ended."""

import re
from typing import Any

import msgspec

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
