"""A conversation with an engine: its turns, its replies, and the part that fits the context.

`Conversation.ask` returns a `ChatReply`, whose events are read by iteration.
"""

import bisect
import functools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from akunu_py.engine.reasoning import end_of_prompt, for_history, opening_text
from akunu_py.engine.request_checks import check_length
from akunu_py.system.errors import ConfigError, ContextOverflowError
from akunu_py.values.messages import Message
from akunu_py.values.types import DecodeStats, GenerationConfig

if TYPE_CHECKING:
    from akunu_py.engine.admission import ReplyStream
    from akunu_py.engine.engine import Engine
    from akunu_py.models.cached_rows import Progress
    from akunu_py.values.types import GenerationResult, StreamEvent

_REPLY_SHARE = 8
"""An eighth of the context is reserved for a reply before turns are dropped."""

_KEPT_SHARE = 2
"""At most half of the context is left filled after turns are dropped.

After a drop all remaining turns are prefilled again, so many turns are dropped at once.
"""

_LONG = 16
"""Characters per token of the context above which turns certainly do not fit; 4 is usual."""

_NOTHING_SAID = "nothing has been said yet"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its reply, including a marker with which the prompt opened its reasoning."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Question:
    """A message to send; with `instead` it replaces the last turn."""

    text: str
    instead: bool = False


class Conversation:
    """The turns with an engine, which may be exchanged between two turns."""

    def __init__(self, engine: "Engine", config: GenerationConfig, system: str | None) -> None:
        self.engine = engine
        self.config = config
        self.system = system
        # All turns, oldest first.
        self.turns: tuple[Turn, ...] = ()
        # Number of oldest turns that the model no longer sees.
        self.forgotten = 0
        self.stats = DecodeStats()
        self.replies = 0
        # Last message if it has no reply, else None.
        self.unanswered: Question | None = None
        self.interrupted = False
        self._id = uuid.uuid4().hex

    def ask(self, question: Question, progress: "Progress | None" = None) -> "ChatReply":
        """Return the reply to a message; it starts when it is first read.

        When the reply is closed its text so far becomes a turn; a reply without text changes
        nothing. Raises as `Engine.stream_chat` does, and ContextOverflowError for a message that
        does not fit even without earlier turns.
        """
        self.unanswered = question
        before = self.turns[:-1] if question.instead else self.turns
        forgotten = self._first_that_fits(before, question.text)
        messages = self._messages(before[forgotten:], question.text)
        stream = self.engine.stream_chat(messages, self.config, progress=progress)
        dropped = max(0, forgotten - min(self.forgotten, len(before)))
        return ChatReply(
            conversation=self,
            stream=stream,
            question=question.text,
            before=before,
            forgotten=forgotten,
            dropped=dropped,
            messages=messages,
        )

    def undo(self) -> Turn:
        """Remove the last message and its reply, and return them.

        A message without a reply is removed alone. Raises ConfigError if there is no message.
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
        """Return the last message, to replace its turn; raises ConfigError if there is none."""
        if self.unanswered is not None:
            return self.unanswered
        if not self.turns:
            raise ConfigError(_NOTHING_SAID)
        return Question(self.turns[-1].user, instead=True)

    def exchange(self, engine: "Engine") -> None:
        """Continue with another engine, and close the current one."""
        before, self.engine = self.engine, engine
        # The other engine may have a larger context.
        self.forgotten = 0
        before.close()

    def reset(self) -> None:
        """Forget every turn; the system message stays."""
        self.replace((), self.system)
        self.engine.reset()

    def replace(self, turns: Sequence[Turn], system: str | None) -> None:
        """Replace the conversation by another one."""
        self.turns = tuple(turns)
        self.system = system
        self.forgotten = 0
        self.unanswered = None
        self._id = uuid.uuid4().hex

    def trace(self, path: Path, reply: "ChatReply") -> None:
        """Append a closed reply to a trace file; raises ConfigError if that fails."""
        if reply.result is not None:
            self.engine.append_trace(
                path, reply.stream, category="chat", session=self._id, turn=self.replies
            )

    def num_tokens(self) -> int:
        """Return the number of tokens that the model sees, including the system message."""
        messages = self._messages(self.turns[self.forgotten :])
        return self._count(messages) if messages else 0

    def close(self, reply: "ChatReply") -> None:
        """Add the text of a reply to the turns; `ChatReply` calls this once."""
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
        """Return how many of the oldest turns must be dropped so that message and reply fit."""
        context = self.engine.context
        check_length([text], self.engine.tokenizer, context)
        room = max(1, context // _REPLY_SHARE)
        if self.config.max_tokens is not None:
            room = min(room, self.config.max_tokens)

        # Counting takes seconds for a message of a megabyte.
        @functools.cache
        def size(gone: int) -> int:
            return self._count(self._messages(turns[gone:], text))

        gone = min(self.forgotten, len(turns))
        length = sum(len(turn.user) + len(turn.assistant) for turn in turns[gone:])
        if length > _LONG * context:
            # Counting a whole long session takes minutes, so count ever more from its end.
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
                "context if it has one"
            )
        rest = range(gone, len(turns) + 1)

        def first_within(most: int) -> int:
            return gone + bisect.bisect_left(rest, True, key=lambda gone: size(gone) <= most)

        fitting = first_within(context // _KEPT_SHARE)
        # The last turn is dropped only if the message does not fit otherwise.
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


@dataclass(slots=True, kw_only=True, eq=False)
class ChatReply:
    """A reply in a conversation.

    Iterate over its events within a `with` block; at the end of the block it joins the turns.
    """

    conversation: Conversation
    stream: "ReplyStream"
    question: str
    """Text of the message."""

    before: tuple[Turn, ...]
    forgotten: int
    """Number of turns before it that the model does not see."""

    dropped: int
    """Number of turns that are newly dropped."""

    messages: Sequence[Message]
    """What the model sees, the message last."""

    text: str = ""

    @property
    def result(self) -> "GenerationResult | None":
        """Result of the reply; None before its end, and if it was not read to its end."""
        return self.stream.result

    @property
    def filled_context(self) -> bool:
        """Whether the reply ended because the context was full."""
        result = self.result
        if result is None or result.finish_reason != "length":
            return False
        used = result.num_prompt_tokens + len(result.token_ids)
        return used >= self.conversation.engine.context

    def cancel(self) -> None:
        """End the reply after the step under way."""
        self.stream.cancel()

    def __iter__(self) -> "Iterator[StreamEvent]":
        for event in self.stream:
            self.text += event.text
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.conversation.close(self)
