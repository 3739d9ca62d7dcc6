"""The events of a reply put together."""

from dataclasses import dataclass, field

from akunu_py.reply_deltas import ArgumentsDelta, CallEnd, CallStart, ContentDelta, ReasoningDelta
from akunu_py.server.events import (
    Chances,
    ChoiceEnd,
    Event,
    Finished,
    NextChoice,
    TokenChance,
)


@dataclass(slots=True)
class Thoughts:
    """Thoughts before the next text or call."""

    text: str


@dataclass(slots=True)
class Text:
    """Text of the answer."""

    text: str


@dataclass(slots=True)
class Call:
    """A tool call; `arguments` is JSON text, and `complete` false for a call that was cut."""

    id: str
    name: str
    arguments: str = ""
    complete: bool = False


Part = Thoughts | Text | Call


@dataclass(slots=True)
class WholeReply:
    """The parts of a reply, in the order in which the model wrote them.

    Attributes:
        finished: the end of the reply; None before it.
        chances: how likely the tokens of its text were, if it was asked for.
        choices: its choices, if it has several; `parts` and `chances` are theirs then.

    """

    parts: list[Part] = field(default_factory=list)
    finished: Finished | None = None
    chances: list[TokenChance] = field(default_factory=list)
    choices: list["WholeReply"] = field(default_factory=list)
    _calls: dict[int, Call] = field(default_factory=dict)
    _choice: "WholeReply | None" = None

    def add(self, event: Event) -> None:
        """Add an event."""
        match event:
            case NextChoice(index):
                while len(self.choices) <= index:
                    self.choices.append(WholeReply())
                self._choice = self.choices[index]
            case ChoiceEnd(finished) if self._choice is not None:
                self._choice.finished = finished
            case Finished():
                self.finished = event
            case _ if self._choice is not None:
                self._choice.add(event)
            case _:
                self._add(event)

    def _add(self, event: Event) -> None:
        last = self.parts[-1] if self.parts else None
        match event:
            case ReasoningDelta(text):
                if isinstance(last, Thoughts):
                    last.text += text
                else:
                    self.parts.append(Thoughts(text))
            case ContentDelta(text):
                if isinstance(last, Text):
                    last.text += text
                else:
                    self.parts.append(Text(text))
            case CallStart(index, id_, name):
                self._calls[index] = Call(id_, name)
                self.parts.append(self._calls[index])
            case ArgumentsDelta(index, text):
                self._calls[index].arguments += text
            case CallEnd(index):
                self._calls[index].complete = True
            case Chances(tokens):
                self.chances += tokens

    @property
    def reasoning(self) -> str:
        """All thoughts, those of several blocks apart."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Thoughts))

    @property
    def text(self) -> str:
        """All text of the answer."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> list[Call]:
        """The complete calls."""
        return [part for part in self.parts if isinstance(part, Call) and part.complete]
