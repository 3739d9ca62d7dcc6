"""Where later prompts of a conversation will differ from this one, so that caches are marked there.

Recurrent states and sliding windows go back only to marks. A later prompt shares with this one its
system message, in any case, and its last message, if no earlier one was edited. What follows that
message, the opening of the reply, may differ: some templates open the reasoning there, and leave it
out of history. Claude Code ends its messages with reminders that are others in each request, so
what comes before them is a place, too.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from akunu_py.engine.engine import Engine
from akunu_py.server.token_trie import common_length
from akunu_py.system.errors import AkunuError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, Tool

SYSTEM, MESSAGE, REMINDER, DIFFERENCE = "system", "message", "reminder", "difference"
"""Names of the places.

They are the end of the system message, the end of the last message before the reply, the beginning
of reminders at the end of the messages, if there are any, and the place where this prompt differs
from cached text, if caches could not go back to there: aider has files behind the conversation.
"""

_OPENS, _CLOSES = "<system-reminder>", "</system-reminder>"

_Wish = tuple[bool | None, str | None, str]

_REMEMBERED = 16
"""System messages, and what templates are told, whose lengths are remembered."""


class Checkpoints:
    """Finds these places by rendering other conversations; for one engine, and one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._openings: dict[_Wish, int] = {}
        self._leads: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def of(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        prompt: Sequence[int],
        config: GenerationConfig,
    ) -> dict[str, int]:
        """Return the places in the prompt of a conversation, by name, in tokens."""
        found = {
            SYSTEM: common_length(self._lead(messages, tools, config), prompt),
            MESSAGE: len(prompt) - self._length_of_opening(config),
        }
        if lasting := without_reminders(messages):
            others = self._rendered(lasting, tools, config)
            found[REMINDER] = common_length(others, prompt)
        return {name: place for name, place in found.items() if 0 < place < len(prompt)}

    def _length_of_opening(self, config: GenerationConfig) -> int:
        """Return how many tokens at the end of a prompt no later prompt may have."""
        wish = _wish(config)
        if wish not in self._openings:
            asked = [Message("user", "x")]
            later = [*asked, Message("assistant", "y"), Message("user", "z")]
            prompt = self._rendered(asked, (), config)
            others = self._rendered(later, (), config)
            if len(self._openings) == _REMEMBERED:
                self._openings.clear()
            self._openings[wish] = len(prompt) - common_length(prompt, others)
        return self._openings[wish]

    def _lead(
        self, messages: Sequence[Message], tools: Sequence[Tool], config: GenerationConfig
    ) -> Sequence[int]:
        """Return the tokens of the leading system messages and the tools."""
        leading = list(takewhile(lambda message: message.role == "system", messages))
        described = [[tool.name, tool.description, dict(tool.parameters)] for tool in tools]
        key = json.dumps([[message.text for message in leading], described, _wish(config)])
        known = self._leads.get(key)
        if known is None:
            one = self._rendered([*leading, Message("user", "x")], tools, config)
            other = self._rendered([*leading, Message("user", "0")], tools, config)
            known = tuple(one[: common_length(one, other)])
            self._leads[key] = known
            if len(self._leads) > _REMEMBERED:
                self._leads.popitem(last=False)
        else:
            self._leads.move_to_end(key)
        return known

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Tool], config: GenerationConfig
    ) -> list[int]:
        """Return the tokens of a conversation; none where the template refuses it."""
        try:
            return self._engine.chat_ids(messages, tools, config)
        except AkunuError:
            return []


def without_reminders(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation without reminders at its end; no messages if it has none.

    A reminder is a later system message, or a marked text at the end of the user's.
    """
    said = list(messages)
    while said:
        last = said[-1]
        text = last.text.rstrip()
        if last.role == "user" and text.endswith(_CLOSES) and _OPENS in text:
            text = text[: text.rindex(_OPENS)].rstrip()
            said[-1:] = [replace(last, content=text)] if text else []
        elif last.role == "system":
            said.pop()
        else:
            break
    return [] if said == list(messages) else said


def _wish(config: GenerationConfig) -> _Wish:
    """Return the template's variables besides the conversation, which it may write anywhere."""
    return config.thinking, config.effort, json.dumps(dict(config.template_variables))
