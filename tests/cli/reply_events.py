"""Events of a reply as the engine makes them: with what each adds to answer and reasoning."""

from dataclasses import replace

from akunu_py.engine.reply_text import MessageReader
from akunu_py.values.reply_deltas import ContentDelta
from akunu_py.values.types import StreamEvent


def answer(text, source=""):
    """An event that adds to the answer."""
    return StreamEvent(text, (), deltas=(ContentDelta(text, source),) if text else ())


def with_deltas(events, prompt_end=""):
    """Events with their deltas, and a last one for what was held back until the end."""
    reader = MessageReader(prompt_end, None)
    for event in events:
        yield replace(event, deltas=reader.feed(event.pieces))
    yield StreamEvent("", (), deltas=reader.finish(cut=False))
