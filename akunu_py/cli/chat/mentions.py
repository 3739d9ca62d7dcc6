"""Files that a message names with an @, as in `what does @src/app.py do?` of a chat."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_NAME = r"""(?:"[^"\n]*"?|'[^'\n]*'?|(?:\\.|[^\s\\])*)"""
_MENTION = re.compile(rf"(?<!\S)@({_NAME})")
_UNFINISHED = re.compile(rf"(?<!\S)@({_NAME})$")

_PUNCTUATION = ".,;:!?)"
"""What may follow a name in a sentence."""


def unquote(text: str) -> str:
    """Return a name as a shell reads it: without quotes around it, or without backslashes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text if os.name == "nt" else re.sub(r"\\(.)", r"\1", text)


def mentions(message: str) -> Iterator[tuple[str, Path | None]]:
    """Yield the names behind an @ that begins a word, with the files that they are.

    A name with a slash that is not a file has None. Other words, such as decorators, are left out.
    """
    for match in _MENTION.finditer(message):
        written = match[1]
        for name in (written, written.rstrip(_PUNCTUATION)):
            try:
                path = Path(unquote(name)).expanduser()
                if path.is_file():
                    yield name, path
                    break
            except (OSError, RuntimeError, ValueError):
                continue
        else:
            if "/" in written:
                yield written, None


def unfinished(before: str) -> str | None:
    """Return the name behind the @ that the text before a cursor ends with; None for none."""
    match = _UNFINISHED.search(before)
    return None if match is None else match[1]
