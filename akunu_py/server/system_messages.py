"""System messages in the middle of a conversation.

Coding agents put notes to the model between the turns. Moved to the head of the prompt, a note
would change its beginning, and nothing of a cached prompt could be used again. So only the system
messages at the beginning become one. Later ones stay in place if the template writes them there;
else each is a marked note at the end of the message before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from akunu_py.errors import AkunuError
from akunu_py.messages import Message, TextPart

_PROBE = (
    Message("system", "probe_head"),
    Message("user", "probe_question"),
    Message("assistant", "probe_answer"),
    Message("user", "probe_further"),
    Message("system", "probe_note"),
)
"""A leading message is part of it: some templates refuse only the second one."""


def merged_beginning(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation whose first system messages are one."""
    count = next(
        (place for place, message in enumerate(messages) if message.role != "system"),
        len(messages),
    )
    if count < 2:
        return tuple(messages)
    head = "\n\n".join(message.text for message in messages[:count])
    return (Message("system", head), *messages[count:])


def keeps_in_place(render: Callable[[Sequence[Message]], str]) -> bool:
    """Return whether a template writes a later system message where it stands.

    `render` returns the prompt of a conversation, and raises AkunuError if the template does.
    Templates may also leave the message out or move it to the beginning.
    """
    try:
        text = render(_PROBE)
    except AkunuError:
        return False
    return text.count("probe_note") == 1 and text.find("probe_further") < text.find("probe_note")


def as_notes(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation in which later system messages are notes in the message before them.

    Each message depends only on what precedes the next turn, so that a longer conversation begins
    with the same text.
    """
    placed: list[Message] = []
    for message in messages:
        if message.role != "system" or not placed:
            placed.append(message)
        elif placed[-1].role in {"user", "tool"}:
            placed[-1] = _with_note(placed[-1], message.text)
        else:
            placed.append(Message("user", _note(message.text)))
    return tuple(placed)


def _with_note(message: Message, text: str) -> Message:
    if isinstance(message.content, str):
        return replace(message, content=f"{message.content}\n\n{_note(text)}")
    return replace(message, content=(*message.content, TextPart(f"\n\n{_note(text)}")))


def _note(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"
