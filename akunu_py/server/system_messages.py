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
    """Return a conversation in which later system messages are notes.

    A note is at the end of the user's or tool's message before it, which the client always sends
    together with it. So a longer conversation begins with the same text. After a reply a note is at
    the beginning of the user's next message.
    """
    placed: list[Message] = []
    waiting = ""  # notes for the next message
    for place, message in enumerate(messages):
        if message.role == "system" and place:
            note = f"<system-reminder>\n{message.text}\n</system-reminder>"
            if placed[-1].role in {"user", "tool"}:
                placed[-1] = _joined(placed[-1], after=f"\n\n{note}")
            else:
                waiting += f"{note}\n\n"
            continue
        if waiting and message.role == "user":
            message = _joined(message, before=waiting)  # noqa: PLW2901 - the same, with notes
        elif waiting:
            placed.append(Message("user", waiting.rstrip()))
        waiting = ""
        placed.append(message)
    if waiting:
        placed.append(Message("user", waiting.rstrip()))
    return tuple(placed)


def _joined(message: Message, *, before: str = "", after: str = "") -> Message:
    if isinstance(message.content, str):
        return replace(message, content=f"{before}{message.content}{after}")
    added = (TextPart(before), *message.content, TextPart(after))
    return replace(message, content=tuple(part for part in added if part.text))
