"""Thoughts that clients leave out when they send a reply back.

Some clients show thoughts and forget them. A template that wants them, such as between the calls of
one turn, would then lay out another text than the one in the cache, and the model would miss what
it had thought. So they are put back; the template still decides what it shows of them.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from akunu_py.messages import Message

_LIMIT = 16 << 20
"""Most characters of thoughts that are kept, in all; the least recently used go first."""


class Thoughts:
    """Thoughts by client, conversation and visible reply. One thread uses them."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._kept: OrderedDict[bytes, str] = OrderedDict()
        self._size = 0

    def remember(self, client: str, messages: Sequence[Message], reply: Message) -> None:
        """Keep the thoughts of a reply to these messages."""
        if not reply.reasoning:
            return
        *_, key = _keys(client, [*messages, reply])
        self._drop(key)
        self._kept[key] = reply.reasoning
        self._size += len(reply.reasoning)
        while self._size > self._limit:
            self._drop(next(iter(self._kept)))

    def restored(self, client: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return a conversation, with the thoughts of replies that came back without them."""
        found = []
        for message, key in zip(messages, _keys(client, messages), strict=True):
            kept = message
            if message.role == "assistant" and not message.reasoning and key in self._kept:
                self._kept.move_to_end(key)
                kept = replace(message, reasoning=self._kept[key])
            found.append(kept)
        return tuple(found)

    def _drop(self, key: bytes) -> None:
        self._size -= len(self._kept.pop(key, ""))


def _keys(client: str, messages: Sequence[Message]) -> list[bytes]:
    """Return a key for each message, of what is visible of the conversation up to it.

    White space around texts does not count, nor do thoughts and the ids of calls.
    """
    digest = hashlib.sha256(json.dumps(client).encode())
    keys = []
    for message in messages:
        calls = [[call.name, dict(call.arguments)] for call in message.tool_calls]
        visible = [message.role, message.text.strip(), calls]
        digest.update(json.dumps(visible, sort_keys=True).encode())
        keys.append(digest.digest())
    return keys
