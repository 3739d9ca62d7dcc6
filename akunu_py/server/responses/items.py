"""The input of a request: items to messages.

Reasoning, text and calls of one turn are separate items there, and one message here. A message that
lies between calls and their results belongs to the turn that made the calls.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from akunu_py.server.conversation import call_at, message_at, unread_part
from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import MOST_BODY_BYTES
from akunu_py.server.responses.tools import ToolBook, shown_name
from akunu_py.values.messages import Message, ToolCall

_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_MEDIA = frozenset(
    {"input_image", "input_file", "input_audio", "output_audio", "computer_screenshot"}
)
_OWN_REASONING = "akunu1."


class InputItem(msgspec.Struct):
    """An item of any type: each has some of the fields."""

    type: str | None = None
    id: Any = None
    role: str | None = None
    content: Any = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: str | None = None
    output: Any = None
    action: dict[str, Any] | None = None
    summary: Any = None
    encrypted_content: str | None = None
    tools: list[dict[str, Any]] | None = None


@dataclass(slots=True)
class _Turn:
    """What the model said at once."""

    place: str
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether a call has no result yet."""
        return len(self.results) < len(self.calls)

    def messages(self) -> list[Message]:
        said = message_at(
            self.place,
            role="assistant",
            content="\n\n".join(self.texts),
            reasoning="\n\n".join(self.reasoning),
            tool_calls=tuple(self.calls),
        )
        return [said, *self.results]


class InputReader:
    """Makes messages of items, one after the other.

    Args:
        book: gets the tools that items bring along.
        ignored: gets the types of items and parts that have no effect.
        kept: returns an item of an earlier reply by id, as JSON; None if it is not kept.

    """

    def __init__(
        self, book: ToolBook, ignored: list[str], kept: Callable[[str], bytes | None]
    ) -> None:
        self._book = book
        self._ignored = ignored
        self._kept = kept
        self._referred_bytes = 0
        self._messages: list[Message] = []
        self._turn: _Turn | None = None

    def messages(self) -> list[Message]:
        """Return the messages of all items so far."""
        self._end_turn()
        return self._messages

    def add(self, item: InputItem, place: str, *, newest: bool = False) -> None:
        """Add an item of `place`; `newest` says whether it is the user's last message.

        Raises RequestError for a malformed one.
        """
        match item.type:
            case "item_reference":
                self.add(self._referred(item.id, place), place)
            case None if item.id is not None and item.role is None and item.content is None:
                self.add(self._referred(item.id, place), place)
            case None | "message":
                self._add_message(item, place, newest=newest)
            case "reasoning":
                self._said(place).reasoning.append(_reasoning(item))
            case "function_call":
                self._add_call(item, item.arguments, place)
            case "custom_tool_call":
                self._add_call(item, {"input": item.input or ""}, place)
            case "local_shell_call":
                shell = InputItem(name="local_shell", call_id=item.call_id)
                self._add_call(shell, item.action or {}, place)
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                self._add_result(item, place, self._text(item.output, f"{place}.output"))
            case "tool_search_call":
                search = InputItem(name="tool_search", call_id=item.call_id)
                self._add_call(search, item.arguments or {}, place)
            case "tool_search_output":
                self._add_result(item, place, self._later_tools(item, place))
            case "additional_tools":
                if text := self._later_tools(item, place):
                    self._end_turn()
                    self._messages.append(Message("system", text))
            case kind:
                self._ignored.append(str(kind))

    def _referred(self, id_: object, place: str) -> InputItem:
        """Return the item of an earlier reply that has an id."""
        kept = self._kept(str(id_))
        if kept is None:
            raise RequestError(
                f"{place} refers to {id_!r:.100}, which this server does not have: it keeps only "
                "items of recent replies, and in memory. Send the item itself, or set store: false "
                "in your client, which then sends all items",
                param=f"{place}.id",
            )
        self._referred_bytes += len(kept)
        if self._referred_bytes > MOST_BODY_BYTES:
            raise RequestError(
                f"the items that input refers to have more than {MOST_BODY_BYTES / 2**20:g} MB; "
                "refer to fewer or shorter ones",
                status=413,
                param="input",
            )
        return msgspec.json.decode(kept, type=InputItem)

    def _add_message(self, item: InputItem, place: str, *, newest: bool) -> None:
        text = self._text(item.content, f"{place}.content", newest=newest)
        if item.role == "assistant":
            self._said(place).texts.append(text)
            return
        self._end_turn()
        role = "system" if item.role == "developer" else item.role
        self._messages.append(message_at(place, role=role, content=text))

    def _add_call(self, item: InputItem, arguments: object, place: str) -> None:
        turn = self._said(place)
        name = shown_name(item.namespace or "", item.name or "")
        turn.calls.append(call_at(place, name, arguments, item.call_id or ""))

    def _later_tools(self, item: InputItem, place: str) -> str:
        return self._book.add_later(item.tools or [], f"{place}.tools", self._ignored)

    def _add_result(self, item: InputItem, place: str, text: str) -> None:
        result = message_at(place, role="tool", content=text, tool_call_id=item.call_id or "")
        if self._turn is not None and self._turn.waits:
            self._turn.results.append(result)
        else:
            self._end_turn()
            self._messages.append(result)

    def _text(self, content: object, place: str, *, newest: bool = False) -> str:
        """Return the text of a message or result: a text, a list of parts, or an object with one.

        `newest` as in `unread_part`.
        """
        match content:
            case None:
                return ""
            case str(text) | {"content": str(text)}:
                return text
            case [*parts]:
                found = [
                    self._part(part, f"{place}[{index}]", newest=newest)
                    for index, part in enumerate(parts)
                ]
                return "\n".join(part for part in found if part is not None)
        raise RequestError(f"{place} is neither a text nor a list of parts", param=place)

    def _part(self, part: object, place: str, *, newest: bool) -> str | None:
        match part:
            case {"type": str(kind)} if kind in _MEDIA:
                return unread_part(kind, place, self._ignored, newest=newest)
            case {"type": "refusal", "refusal": str(text)}:
                return text
            case {"type": str(kind), "text": str(text)} if kind in _TEXTS:
                return text
            case {"type": str(kind)} if kind not in _TEXTS:
                self._ignored.append(kind)
                return None
        raise RequestError(
            f"{place} is not a part of a message; give a type and a text", param=place
        )

    def _said(self, place: str) -> _Turn:
        """Return the turn that an item of the model belongs to."""
        if self._turn is not None and self._turn.results and not self._turn.waits:
            self._end_turn()
        if self._turn is None:
            self._turn = _Turn(place)
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._messages += self._turn.messages()
        self._turn = None


def hidden_reasoning(text: str) -> str:
    """Return reasoning as `encrypted_content`, which clients send back unchanged.

    Nothing is secret: it is the text itself, so that the next prompt begins as this one ended.
    """
    return _OWN_REASONING + base64.urlsafe_b64encode(text.encode()).decode()


def _reasoning(item: InputItem) -> str:
    hidden = item.encrypted_content or ""
    if hidden.startswith(_OWN_REASONING):
        try:
            return base64.b64decode(
                hidden.removeprefix(_OWN_REASONING), altchars=b"-_", validate=True
            ).decode()
        except (binascii.Error, ValueError):
            pass  # the visible reasoning is used
    for shown in (item.content, item.summary):
        if isinstance(shown, list):
            texts = [part.get("text") for part in shown if isinstance(part, dict)]
            if found := [text for text in texts if isinstance(text, str)]:
                return "\n\n".join(found)
    return ""
