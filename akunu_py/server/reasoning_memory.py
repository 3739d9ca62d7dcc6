"""Reasoning that clients leave out when they send a reply back.

Some clients show reasoning and forget it. A template that wants it, such as between the calls of
one turn, would then lay out another text than the one in the cache, and the model would miss what
it had thought. So it is put back; the template still decides what it shows of it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from akunu_py.values.messages import Message
from akunu_py.values.recent_texts import RecentTexts


class ReasoningMemory:
    """Reasoning by client, conversation and visible reply. For one thread."""

    def __init__(self) -> None:
        self._kept = RecentTexts[bytes]()

    def remember(self, client: str, messages: Sequence[Message], reply: Message) -> None:
        """Keep the reasoning of a reply to these messages."""
        if not reply.reasoning:
            return
        *_, key = conversation_keys(client, [*messages, reply])
        self._kept.keep(key, reply.reasoning.encode())

    def restore(self, client: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return a conversation, with the reasoning of replies that came back without it."""
        found = []
        for message, key in zip(messages, conversation_keys(client, messages), strict=True):
            left_out = message.role == "assistant" and not message.reasoning
            kept = self._kept.get(key) if left_out else None
            found.append(replace(message, reasoning=kept.decode()) if kept else message)
        return tuple(found)


def conversation_keys(client: str, messages: Sequence[Message]) -> list[bytes]:
    """Return a key for each message, of what is visible of the conversation up to it.

    White space around texts does not count, nor do reasoning, the ids of calls and later system
    messages.
    """
    digest = hashlib.sha256(json.dumps(client).encode())
    keys: list[bytes] = []
    begun = False
    for message in messages:
        begun = begun or message.role != "system"
        if message.role == "system" and begun:
            # A client may send a note of the moment once, or another in its place.
            keys.append(digest.digest())
            continue
        calls = [[call.name, dict(call.arguments)] for call in message.tool_calls]
        visible = [message.role, message.text.strip(), calls]
        digest.update(json.dumps(visible, sort_keys=True).encode())
        keys.append(digest.digest())
    return keys
