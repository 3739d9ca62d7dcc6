"""The place where a reply continues the assistant's last message.

A mark is put at the end of the message, and the prompt is cut where the template writes it. So
whatever a template adds behind a message is left out, and white space before the mark stays.
"""

from collections.abc import Sequence
from dataclasses import replace

from akunu_py.system.errors import ConfigError
from akunu_py.values.messages import Message

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Characters that Unicode keeps for uses within a program."""


def with_mark(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return a conversation with a mark at the end of its last message, and the mark.

    The mark is in the text of the message, or in its thoughts if it has no text. Raises ConfigError
    for a message that cannot be continued.
    """
    last = messages[-1]
    if last.role != "assistant":
        raise ConfigError("only a last message of the assistant can be continued")
    if last.tool_calls:
        raise ConfigError(
            "the last message has tool_calls, so it cannot be continued; give their results"
        )
    said = last.text or last.reasoning
    mark = next((mark for mark in _MARKS if mark not in said), "")
    if last.text or not last.reasoning:
        marked = replace(last, content=last.text + mark)
    else:
        marked = replace(last, reasoning=last.reasoning + mark)
    return [*messages[:-1], marked], mark


def cut_at(mark: str, text: str) -> str:
    """Return a text up to the mark; raises ConfigError if it is not there once."""
    if not mark or text.count(mark) != 1:
        raise ConfigError(
            "the model's chat template has no place where the assistant's last message, or its "
            "thoughts, could go on; end with a message of the user"
        )
    return text.partition(mark)[0]
