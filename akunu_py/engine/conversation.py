"""A conversation with an engine: its turns, what of them fits the context, and its replies.

`Conversation.ask` returns a `Reply` to be iterated, or raises.
"""

import bisect
import functools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from akunu_py.engine.prompt_ids import check_length
from akunu_py.engine.reasoning import end_of_prompt, for_history, opening_text
from akunu_py.errors import ConfigError, ContextOverflowError
from akunu_py.messages import Message
from akunu_py.types import DecodeStats, GenerationConfig

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.engine.reply import ReplyStream
    from akunu_py.models.cached_rows import Progress
    from akunu_py.types import GenerationResult, StreamEvent

_REPLY_SHARE = 8
"""One in this many tokens of the context is kept for a reply before turns are dropped."""

_KEPT_SHARE = 2
"""Where turns are dropped, the rest takes one in this many tokens of the context at most.

Dropping moves all that follows, so all of it is prefilled again: once for many turns, that way.
"""

_LONG = 16
"""Characters a token of the context above which turns are surely too many; 4 is usual."""

_NOTHING_SAID = "nothing has been said yet"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its reply, the marker with which the prompt opened its thoughts included."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Question:
    """A message to send; with `instead`, in the last turn's place."""

    text: str
    instead: bool = False


class Conversation:
    """Turns with one engine, which may be exchanged for another between two of them.

    Attributes:
        engine: what answers.
        config: how replies are sampled and drafted.
        system: the system message; None for none.
        turns: all that was said, oldest first.
        forgotten: how many of the oldest turns the model is no longer shown.
        stats: drafting statistics of all replies.
        replies: how many there were.
        unanswered: the last message, where nothing was said to it; None otherwise.
        interrupted: whether the last reply was.

    """

    def __init__(self, engine: "Engine", config: GenerationConfig, system: str | None) -> None:
        self.engine = engine
        self.config = config
        self.system = system
        self.turns: tuple[Turn, ...] = ()
        self.forgotten = 0
        self.stats = DecodeStats()
        self.replies = 0
        self.unanswered: Question | None = None
        self.interrupted = False
        self._id = uuid.uuid4().hex

    def ask(self, question: Question, progress: "Progress | None" = None) -> "Reply":
        """Return the reply to a message, not yet begun.

        What was said when the reply is closed becomes a turn; a reply without text leaves the
        conversation as it was. Raises ContextOverflowError for a message that does not fit with the
        system message alone, and as `Engine.stream_chat` does.
        """
        self.unanswered = question
        before = self.turns[:-1] if question.instead else self.turns
        forgotten = self._first_that_fits(before, question.text)
        messages = self._messages(before[forgotten:], question.text)
        stream = self.engine.stream_chat(messages, self.config, progress=progress)
        dropped = max(0, forgotten - min(self.forgotten, len(before)))
        return Reply(self, stream, question.text, before, forgotten, dropped, messages)

    def undo(self) -> Turn:
        """Take the last message and its reply back and return them.

        A message to which nothing was said goes alone. Raises ConfigError where there is none.
        """
        if self.unanswered is not None and not self.unanswered.instead:
            text, self.unanswered = self.unanswered.text, None
            return Turn(text, "")
        if not self.turns:
            raise ConfigError(_NOTHING_SAID)
        *before, turn = self.turns
        self.turns = tuple(before)
        self.forgotten = min(self.forgotten, len(before))
        self.unanswered = None
        return turn

    def last_question(self) -> Question:
        """Return the last message, to be sent again in its place; raises ConfigError for none."""
        if self.unanswered is not None:
            return self.unanswered
        if not self.turns:
            raise ConfigError(_NOTHING_SAID)
        return Question(self.turns[-1].user, instead=True)

    def exchange(self, engine: "Engine") -> None:
        """Go on with another engine, and close the one so far."""
        before, self.engine = self.engine, engine
        # Another context may hold more.
        self.forgotten = 0
        before.close()

    def reset(self) -> None:
        """Forget every turn; the system message stays."""
        self.replace((), self.system)
        self.engine.reset()

    def replace(self, turns: Sequence[Turn], system: str | None) -> None:
        """Take another conversation in place of this one."""
        self.turns = tuple(turns)
        self.system = system
        self.forgotten = 0
        self.unanswered = None
        self._id = uuid.uuid4().hex

    def trace(self, path: Path, reply: "Reply") -> None:
        """Append a closed reply to a trace file; raises ConfigError where that cannot be done."""
        if reply.result is not None:
            self.engine.append_trace(
                path, reply.stream, category="chat", session=self._id, turn=self.replies
            )

    def num_tokens(self) -> int:
        """Return how many tokens the turns that the model is shown take, the system's included."""
        messages = self._messages(self.turns[self.forgotten :])
        return self._count(messages) if messages else 0

    def close(self, reply: "Reply") -> None:
        """Take in what a reply said; `Reply` calls it once."""
        result = reply.result
        self.interrupted = result is None or result.finish_reason == "cancelled"
        if reply.text:
            opened = opening_text(end_of_prompt(reply.stream.prompt, self.engine.tokenizer))
            self.turns = (*reply.before, Turn(reply.question, opened + reply.text))
            self.forgotten = reply.forgotten
            self.unanswered = None
        if result is not None:
            self.stats += result.stats
            self.replies += 1

    def _first_that_fits(self, turns: Sequence[Turn], text: str) -> int:
        """Return how many of the oldest turns must go for a message and its reply to fit."""
        context = self.engine.context
        check_length([text], self.engine.tokenizer, context)
        room = max(1, context // _REPLY_SHARE)
        if self.config.max_tokens is not None:
            room = min(room, self.config.max_tokens)

        # A message of a megabyte takes seconds to count.
        @functools.cache
        def size(gone: int) -> int:
            return self._count(self._messages(turns[gone:], text))

        gone = min(self.forgotten, len(turns))
        length = sum(len(turn.user) + len(turn.assistant) for turn in turns[gone:])
        if length > _LONG * context:
            # All of a long session takes minutes to count; so from its end on, ever more.
            last = 1
            while last < len(turns) - gone and size(len(turns) - last) < context:
                last *= 2
            gone = max(gone, len(turns) - last)
        if size(gone) + room <= context:
            return gone
        if size(len(turns)) >= context:
            raise ContextOverflowError(
                f"the message has {size(len(turns))} tokens"
                f"{' with the system message' if self.system else ''} and the context holds "
                f"{context}, the reply included; shorten it, or load the model with a larger "
                "context"
            )
        rest = range(gone, len(turns) + 1)

        def first_within(most: int) -> int:
            return gone + bisect.bisect_left(rest, True, key=lambda gone: size(gone) <= most)

        fitting = first_within(context // _KEPT_SHARE)
        # The last turn goes only where the message would not fit with it.
        if fitting < len(turns):
            return fitting
        fitting = first_within(context - room)
        return fitting if fitting <= len(turns) else first_within(context - 1)

    def _messages(self, turns: Sequence[Turn], text: str | None = None) -> list[Message]:
        messages: list[Message] = []
        if self.system:
            messages.append(Message("system", self.system))
        for turn in turns:
            messages.append(Message("user", turn.user))
            messages.append(Message("assistant", for_history(turn.assistant)))
        if text is not None:
            messages.append(Message("user", text))
        return messages

    def _count(self, messages: list[Message]) -> int:
        return len(self.engine.tokenizer.encode_chat(messages))


class Reply:
    """One reply: iterate for its events, within `with`, at whose end it joins the conversation.

    Attributes:
        question: the message.
        before: the turns it comes after.
        forgotten: how many of them the model is not shown.
        dropped: how many of those it was shown so far.
        messages: what the model is shown, the message last.
        text: what was said so far.
        stream: of the engine.

    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        conversation: Conversation,
        stream: "ReplyStream",
        question: str,
        before: tuple[Turn, ...],
        forgotten: int,
        dropped: int,
        messages: Sequence[Message],
    ) -> None:
        self._conversation = conversation
        self.stream = stream
        self.question = question
        self.before = before
        self.forgotten = forgotten
        self.dropped = dropped
        self.messages = messages
        self.text = ""

    @property
    def result(self) -> "GenerationResult | None":
        """What the reply came to; None before its end, and where it was not read to it."""
        return self.stream.result

    @property
    def filled_context(self) -> bool:
        """Whether the reply ended because the context was full."""
        result = self.result
        if result is None or result.finish_reason != "length":
            return False
        used = result.num_prompt_tokens + len(result.token_ids)
        return used >= self._conversation.engine.context

    def cancel(self) -> None:
        """End the reply after the step under way."""
        self.stream.cancel()

    def __iter__(self) -> "Iterator[StreamEvent]":
        for event in self.stream:
            self.text += event.text
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stream.close()
        self._conversation.close(self)
