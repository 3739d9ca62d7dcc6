"""The loop of a chat: read, carry out or answer, show."""

import logging
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py.cli.chat.actions import Actions, Tools
from akunu_py.cli.chat.attachments import THIS_CHAT, PromptParts
from akunu_py.cli.chat.commands import message_of, parse
from akunu_py.cli.chat.line_input import Lines, shown_on
from akunu_py.cli.chat.reply_line import print_drafts, reply_line
from akunu_py.cli.reply_view import make_view
from akunu_py.cli.reply_view.draft_sources import name_of
from akunu_py.cli.terminal import (
    cancel_on_interrupt,
    is_dumb,
    printable,
    prompt_progress,
    wrapped,
)
from akunu_py.cli.verbosity import hold_log, is_quiet
from akunu_py.engine.conversation import ChatReply, Conversation, Question
from akunu_py.system.errors import AkunuError

if TYPE_CHECKING:
    from akunu_py.cli.reply_view import Reasoning, ReplyView
    from akunu_py.cli.reply_view.draft_sources import NameOf
    from akunu_py.values.types import GenerationResult

_log = logging.getLogger(__name__)


class Chat:
    """Reads from `lines` and answers until /exit or their end.

    Ctrl-C ends a reply, or what else is under way, where somebody types, and all where nobody does:
    then `run` and what it calls raise KeyboardInterrupt.

    `remembers` says whether drafts come from earlier runs, too.
    """

    def __init__(
        self,
        conversation: Conversation,
        lines: Lines,
        tools: Tools,
        trace_file: Path | None = None,
        *,
        typed: bool,
        remembers: bool = False,
        plain: bool = False,
        reasoning: "Reasoning" = "show",
    ) -> None:
        self._conversation = conversation
        self._lines = lines
        self.actions = Actions(conversation, tools)
        self._trace_file = trace_file
        self._typed = typed
        self._remembers = remembers
        self.actions.plain = plain
        self.actions.reasoning = reasoning
        self.failed = False  # whether anything could not be carried out or answered

    def run(self) -> None:
        """Read and answer; two interrupts in a row at an empty line leave."""
        interrupted = False
        while not self.actions.leaving:
            self._leave_row()
            try:
                line = self._lines.read()
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._typed:
                    raise
                if interrupted:
                    return
                interrupted = True
                note("Ctrl-C again or /exit leaves")
                continue
            except click.ClickException as error:
                # What is piped in is not text; somebody who types may go on.
                if not self._typed:
                    raise
                self._fail(error.format_message())
                continue
            interrupted = False
            if line.text.strip():
                self._take(line.text, quoted=line.quoted)
                # Whatever the line did: what is kept is never more than the conversation.
                self.actions.keep()

    def _leave_row(self) -> None:
        """Leave a row empty between what is typed and what is said."""
        if self._typed:
            click.echo(file=shown_on())

    def _take(self, text: str, *, quoted: bool) -> None:
        """Carry a line out or answer it; whatever fails is a note."""
        try:
            found = None if quoted else parse(text)
            if found is None:
                message = text if quoted else message_of(text)
                question: Question | None = self.actions.compose(message, as_is=quoted)
            else:
                question = self.actions.run(*found)
            if question is not None:
                self._answer(question)
        except KeyboardInterrupt:
            if not self._typed:
                raise
            click.echo()
            note("interrupted")
        except AkunuError as error:
            self._fail(str(error))
        except click.ClickException as error:
            self._fail(error.format_message())
        except MemoryError:
            self._fail("there is not enough memory for that")

    def _fail(self, why: str) -> None:
        self.failed = True
        note(why)

    def _answer(self, question: Question) -> None:
        """Stream the reply to a message; an interrupt ends the reply and not the chat."""
        self._leave_row()
        with (
            prompt_progress() as progress,
            self._conversation.ask(question, progress) as reply,
        ):
            self._announce(reply)
            cancelling = cancel_on_interrupt(reply.cancel) if self._typed else nullcontext()
            with hold_log(), self._view(reply) as view, cancelling:
                for event in reply:
                    view.feed(event)
        if reply.result is not None:
            self._conclude(reply, reply.result, view)

    def _conclude(self, reply: ChatReply, result: "GenerationResult", view: "ReplyView") -> None:
        """Print the statistics of a reply, and write it to the trace file."""
        self.actions.last_result = result
        end = self._end(reply, result)
        if result.token_ids or result.finish_reason != "cancelled":
            if not is_quiet():
                self._leave_row()
                context = self._conversation.engine.context
                if view.drafts is None:
                    note(reply_line(result, context, end=not end))
                else:
                    print_drafts(
                        view.drafts, reply_line(result, context, end=not end, drafts=False)
                    )
            _log.info(
                "prefilled %d of the prompt's %d tokens; the others were in the cache",
                result.num_prompt_tokens - result.num_cached_tokens,
                result.num_prompt_tokens,
            )
        if end:
            note(end)
        if self._trace_file is not None:
            self._conversation.trace(self._trace_file, reply)

    def _end(self, reply: ChatReply, result: "GenerationResult") -> str:
        """Return why a reply ended and what can be done about it, "" where its line says enough."""
        if reply.filled_context:
            return (
                f"the context of {self._conversation.engine.context} tokens is full: the reply "
                "ends here, and the next message drops the oldest turns"
            )
        if result.finish_reason == "loop":
            return "the reply repeated itself and was ended; /set stop-loops off lets replies go on"
        if not reply.text and result.finish_reason == "cancelled":
            return "interrupted before anything was said; /retry asks again"
        return ""

    def _announce(self, reply: ChatReply) -> None:
        """Say which turns the model is not shown any more."""
        if reply.dropped:
            turns = "turn is" if reply.dropped == 1 else f"{reply.dropped} turns are"
            note(
                f"the context of {self._conversation.engine.context} tokens is full: the oldest "
                f"{turns} dropped"
            )

    def _view(self, reply: ChatReply) -> "ReplyView":
        return make_view(
            stream=sys.stdout,
            plain=self.actions.plain,
            reasoning=self.actions.reasoning,
            show_drafts=self.actions.show_drafts,
            name_source=self._names_of_sources(reply) if self.actions.show_drafts else None,
        )

    def _names_of_sources(self, reply: ChatReply) -> "NameOf":
        parts = PromptParts(
            reply.stream.prompt, reply.messages, self._conversation.engine.tokenizer
        )

        def name(source: str, place: int) -> str:
            if place >= 0:
                return parts.name(place)
            # Without a folder of its own the memory holds replies of this run.
            here = source == "memory" and not self._remembers
            return THIS_CHAT if here else name_of(source)

        return name


def note(text: str) -> None:
    """Print what is not part of a reply; on stderr, so that a pipe gets the replies alone."""
    text = printable(text, sys.stderr)
    width = note_width()
    if width is not None:
        text = "\n".join(wrapped(line, width) for line in text.split("\n"))
    click.echo(text if is_dumb() else click.style(text, dim=True), err=True)


def note_width() -> int | None:
    """Return the columns of the terminal that notes go to, or None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None
