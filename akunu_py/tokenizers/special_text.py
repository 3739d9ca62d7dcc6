"""Text of control tokens in messages, hidden from the search for control tokens.

A template's own control tokens are recognised, those written into a message are not. So their text
in messages is replaced before a template is rendered, and put back after the split.
"""

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from akunu_py.system.errors import ConfigError

_TEXTS = ("content", "reasoning_content", "reasoning", "thinking")
"""Fields of a message with free text, which may be a control token as a whole."""


@dataclass(frozen=True, slots=True)
class HiddenMessages:
    """Messages and tools in which private characters replace the text of control tokens."""

    messages: Sequence[dict[str, Any]]
    replaced: Mapping[str, str]
    tools: Sequence[dict[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def reveal(self, text: str) -> str:
        for character, original in self.replaced.items():
            text = text.replace(character, original)
        return text


class SpecialTextGuard:
    """Hides the text of control tokens in messages while a template is rendered and split.

    Only occurrences are replaced, each by one character of a private plane, so that templates that
    inspect or trim a message see the rest unchanged. Where a message begins or ends with a part of
    a control token, or is one, that part is replaced as well: the template's adjacent text could
    complete it.
    """

    _FIRST, _LAST = 0xF0000, 0x10FFFD  # the private planes

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in texts if text]
        # Sorted, so that texts with a common beginning, or ending, are adjacent: a table of all
        # beginnings would take the square of a long token's length.
        self._sorted = sorted(self._texts)
        self._sorted_backwards = sorted(text[::-1] for text in self._texts)
        self._longest = max(map(len, self._texts), default=0)
        # Nearly all texts have none of these characters where they would matter.
        self._firsts = {text[0] for text in self._texts}
        self._lasts = {text[-1] for text in self._texts}
        self._first = re.compile("|".join(map(re.escape, self._firsts)) or "(?!)")

    def hide(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> HiddenMessages:
        """Return the messages, tools and variables with such text replaced by unused characters.

        All have JSON values, as a template takes them. Raises ConfigError if no character is left.
        """
        free = self._unused(template, messages, tools, variables)
        characters: dict[str, str] = {}

        def character(text: str) -> str:
            if text not in characters:
                if (found := next(free, None)) is None:
                    raise ConfigError(
                        "the messages use all private characters of Unicode; leave some out"
                    )
                characters[text] = found
            return characters[text]

        hidden = [self._hide_message(message, character) for message in messages]
        hidden_tools = None
        if tools is not None:
            hidden_tools = [self._hide_value(tool, character) for tool in tools]
        given = {
            name: self._hide_value(value, character) for name, value in (variables or {}).items()
        }
        replaced = {private: text for text, private in characters.items()}
        return HiddenMessages(hidden, replaced, hidden_tools, given)

    def _unused(self, *values: object) -> Iterator[str]:
        """Yield private characters; the values are searched for them when the first is needed."""
        used = set().union(*texts_in(values))
        yield from (
            chr(code) for code in range(self._FIRST, self._LAST + 1) if chr(code) not in used
        )

    def _hide_message(
        self, message: Mapping[str, Any], character: Callable[[str], str]
    ) -> dict[str, Any]:
        hidden: dict[str, Any] = {}
        for name, value in message.items():
            if name in _TEXTS and isinstance(value, str):
                hidden[name] = self._hide_text(value, character)
            elif name == "content" and value is not None:
                hidden[name] = [
                    part | {"text": self._hide_text(part["text"], character)} for part in value
                ]
            else:
                # Templates compare the role with fixed words.
                hidden[name] = value if name == "role" else self._hide_value(value, character)
        return hidden

    def _hide_value(self, value: Any, character: Callable[[str], str]) -> Any:
        # A word such as "name" may be part of a control token, and templates look for it.
        if isinstance(value, str):
            return self._hide_text(value, character, whole=False)
        if isinstance(value, Mapping):
            return {
                self._hide_text(name, character, whole=False): self._hide_value(part, character)
                for name, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._hide_value(part, character) for part in value]
        return value

    def _hide_text(
        self, content: str, character: Callable[[str], str], *, whole: bool = True
    ) -> str:
        replaced = content
        for text in self._texts if self._first.search(content) else ():
            if text in replaced:
                replaced = replaced.replace(text, character(text))
        body = replaced.strip()
        if whole and body and any(body in text for text in self._texts):
            return replaced.replace(body, character(body), 1)
        return self._hide_end(self._hide_start(replaced, character), character)

    def _hide_start(self, text: str, character: Callable[[str], str]) -> str:
        body = text.lstrip()
        if self._lasts.isdisjoint(body[: self._longest]):
            return text
        for size in range(min(self._longest, len(body)), 0, -1):
            if _begins_one(self._sorted_backwards, body[:size][::-1]):
                margin = text[: len(text) - len(body)]
                return margin + character(body[:size]) + body[size:]
        return text

    def _hide_end(self, text: str, character: Callable[[str], str]) -> str:
        body = text.rstrip()
        if self._firsts.isdisjoint(body[-self._longest :]):
            return text
        for size in range(min(self._longest, len(body)), 0, -1):
            if _begins_one(self._sorted, body[-size:]):
                return body[:-size] + character(body[-size:]) + text[len(body) :]
        return text


def _begins_one(ordered: list[str], part: str) -> bool:
    """Return whether one of the texts begins with `part` and is longer."""
    index = bisect.bisect_right(ordered, part)
    return index < len(ordered) and ordered[index].startswith(part)


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, including names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield name
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)
