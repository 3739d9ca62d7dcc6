"""Lengths and patterns of texts as expressions of llguidance's Lark.

Within JSON llguidance follows them itself. Texts between tags and in foreign quotes are not JSON.
"""

import re
from collections.abc import Mapping

from llguidance import regex_to_lark

_LONGEST = 4096
"""Characters up to which a length is counted; the state of a grammar grows with it."""

_WITHIN_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_BEYOND = re.compile(r"\\[1-9bBkpPuxc]|\(\?(?!:)|[*+?}][+]")
"""What an expression of llguidance does not have, or has in another meaning."""


def limits_of(schema: object) -> str:
    """Return an expression for the texts that a schema allows; "" where it does not limit them.

    A pattern that llguidance cannot follow, and a length of more than 4,096, do not limit.
    """
    if not isinstance(schema, Mapping):
        return ""
    parts = []
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if (least or most != "") and all(size == "" or 0 <= size <= _LONGEST for size in (least, most)):
        parts.append(f"/(?s:.{{{least},{most}}})/")
    if isinstance(pattern := schema.get("pattern"), str) and (found := _search_expression(pattern)):
        parts.append(f"/{found}/")
    return " & ".join(parts)


def text_without(text: str) -> str:
    """Return an expression for texts that do not contain a text."""
    return f"~/(?s:.*){escape_slashes(re.escape(text))}(?s:.*)/"


def escape_slashes(expression: str) -> str:
    """Return an escaped text as it is written between slashes, on one line."""
    return expression.replace("/", "\\/").replace("\\\n", "\\n")


def _search_expression(pattern: str) -> str:
    """Return an expression for whole texts in which a pattern is found; "" if there is none."""
    bare = _WITHIN_CLASS.sub("", pattern)
    if _BEYOND.search(pattern):
        return ""
    begins, ends = bare.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$$", bare) is not None
    inner = re.sub(r"\\.", "", bare, flags=re.DOTALL)[begins : -1 if ends else None]
    if "^" in inner or "$" in inner or ((begins or ends) and "|" in re.sub(r"\(.*\)", "", inner)):
        return ""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return ""
    body = pattern[begins : -1 if ends else None]
    before, after = ("" if begins else "(?s:.*)"), ("" if ends else "(?s:.*)")
    return f"{before}({regex_to_lark(body, 'dw')}){after}".replace("\n", "\\n")
