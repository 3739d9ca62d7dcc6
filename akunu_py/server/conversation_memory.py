"""What clients leave out of a conversation, or add to it later, by the conversation it belongs to.

Some clients show reasoning and forget it. A template that wants it, such as between the calls of
one turn, would then lay out another text than the one in the cache, and the model would miss what
it had thought. So it is put back; the template still decides what it shows of it.

Others, such as Codex, offer the tools of an MCP server once that has started. Templates list tools
at the beginning of the prompt, so all of it would be read again. So the list stays as the
conversation began, and a system message tells of later tools where they came.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from akunu_py.server.checkpoints import without_reminders
from akunu_py.server.conversation import announced
from akunu_py.values.messages import Message, Tool
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


class ToolMemory:
    """Which tools came where, by client and conversation. For one thread."""

    def __init__(self) -> None:
        self._kept = RecentTexts[bytes]()

    def arrange(
        self, client: str, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[Tool]]:
        """Return a conversation and its tools as the requests before this one had them.

        If one of their tools is gone or changed, all are listed at the beginning.
        """
        given = {_digest(tool): tool for tool in tools if not tool.deferred}
        lasting = without_reminders(messages) or messages
        came = self._earlier(client, messages)
        known = list(chain.from_iterable(came.values()))
        added = [digest for digest in given if digest not in known]
        ends_open = lasting[-1].role == "assistant"
        if not known or not given.keys() >= set(known) or (added and ends_open):
            came = {0: list(given)}
        elif added:
            came[len(lasting)] = added
        if given:
            self._kept.keep(conversation_keys(client, lasting)[-1], json.dumps(came).encode())
        said, listed = list(messages), [given[digest] for digest in came.pop(0)]
        later = [tool for tool in tools if tool.deferred]
        for place in sorted(came, reverse=True):
            told = [given[digest] for digest in came[place]]
            said.insert(place, Message("system", announced(told)))
            later += [replace(tool, deferred=True) for tool in told]
        return said, listed + later

    def _earlier(self, client: str, messages: Sequence[Message]) -> dict[int, list[str]]:
        """Return the digests of tools of the last request that these messages go on from.

        They are by the number of messages before them. A reply lies between that request and this.
        """
        keys, replied = conversation_keys(client, messages), False
        for key, message in zip(reversed(keys), reversed(messages), strict=True):
            if replied and (kept := self._kept.get(key)):
                return {int(place): digests for place, digests in json.loads(kept).items()}
            replied = replied or message.role == "assistant"
        return {}


def _digest(tool: Tool) -> str:
    return hashlib.sha256(repr(tool).encode()).hexdigest()[:16]
