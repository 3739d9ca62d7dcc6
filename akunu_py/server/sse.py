"""Server-sent events."""

from typing import Any

import msgspec

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx would otherwise collect a reply before it passes it on.
    "x-accel-buffering": "no",
}

DONE = b"data: [DONE]\n\n"
"""The end of a stream of OpenAI's older APIs."""

_encode = msgspec.json.Encoder().encode


def data(value: dict[str, Any]) -> bytes:
    """Return an event without a name. JSON has no line breaks, so that one line holds it."""
    return b"data: " + _encode(value) + b"\n\n"


def named(value: dict[str, Any]) -> bytes:
    """Return an event with the name that is its `type`."""
    return b"event: " + str(value["type"]).encode() + b"\n" + data(value)
