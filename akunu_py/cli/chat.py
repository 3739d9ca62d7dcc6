"""`akunu chat`: a conversation in the terminal."""

import contextlib
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli.options import (
    counts_option,
    draft_model_option,
    generation_options,
    keeping_options,
    load_engine,
    model_options,
)
from akunu_py.cli.terminal import (
    cancel_on_interrupt,
    printable,
    prompt_progress,
    show,
    statistics_line,
)
from akunu_py.errors import AkunuError, ContextOverflowError
from akunu_py.types import DecodeStats

if TYPE_CHECKING:
    from akunu_py.engine import Engine
    from akunu_py.reply import ReplyStream
    from akunu_py.types import GenerationConfig

_HELP = '''/help   this list
/reset  forget the conversation
/stats  drafting statistics of this session
/exit   leave (so does the end of input)
"""     begins and ends a message of several lines
Ctrl-C  stops a reply and keeps what was said; twice at an empty line leaves'''

_BLOCK = '"""'


@click.command()
@click.argument("model", required=False)
@click.option("--system", help="A system message.")
@keeping_options
@generation_options
@model_options
@draft_model_option
@counts_option
def chat(  # noqa: PLR0917 - click passes by name
    model: str | None,
    system: str | None,
    memory: Path | None,
    trace_file: Path | None,
    config: "GenerationConfig",
    loading: dict[str, Any],
) -> None:
    """Chat with a model.

    \b
    Examples:
      akunu chat
      akunu chat model.gguf --temperature 0.7 --system "Answer briefly."
    """  # noqa: D301 - \b keeps click from wrapping the examples
    with load_engine(model, loading, memory=memory) as engine:
        if not engine.tokenizer.has_chat_template:
            raise click.ClickException(
                "this model has no chat template; use akunu generate --raw with it"
            )
        Conversation(engine, config, system, trace_file).run()


class Conversation:
    """The messages of one session, and the loop that reads and answers."""

    def __init__(
        self,
        engine: "Engine",
        config: "GenerationConfig",
        system: str | None,
        trace_file: Path | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._trace_file = trace_file
        self._session = uuid.uuid4().hex
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._opening)
        self._stats = DecodeStats()
        self._replies = 0
        self._interactive = sys.stdin.isatty()
        # Python writes the prompt to standard output, where a file wants the replies alone.
        self._prompts = self._interactive and sys.stdout.isatty()

    def run(self) -> None:
        """Read and answer until the end of input or /exit."""
        if self._interactive:
            # Line editing and history, where Python has them.
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401, PLC0415
            description = self._engine.description
            _note(
                f"{description.name}, {description.parameters / 1e6:.1f} million parameters, "
                f"context {self._engine.context}. /help lists the commands."
            )
        interrupted = False
        while True:
            try:
                message = self._read()
            except EOFError:
                return
            except KeyboardInterrupt:
                click.echo()
                if interrupted:
                    return
                interrupted = True
                _note("Ctrl-C again or /exit leaves")
                continue
            interrupted = False
            if message is None or not message.strip():
                continue
            if message.startswith("/") and "\n" not in message:
                if self._command(message.strip()):
                    return
                continue
            self._answer(message)

    def _read(self) -> str | None:
        """Return one message; one that begins with three quotes goes on to the next three."""
        line = input("> " if self._prompts else "")
        if not line.lstrip().startswith(_BLOCK):
            return line
        text = line.lstrip().removeprefix(_BLOCK)
        lines: list[str] = []
        while not text.rstrip().endswith(_BLOCK):
            lines.append(text)
            text = input("... " if self._prompts else "")
        lines.append(text.rstrip().removesuffix(_BLOCK))
        return "\n".join(lines).strip("\n")

    def _command(self, command: str) -> bool:
        """Carry out a command; return whether to leave."""
        if command in ("/exit", "/quit", "/bye"):
            return True
        if command == "/help":
            click.echo(_HELP)
        elif command == "/reset":
            self._messages = list(self._opening)
            self._session = uuid.uuid4().hex
            self._engine.reset()
            _note("the conversation is forgotten")
        elif command == "/stats":
            self._show_stats()
        else:
            _note(f"there is no command {command}; /help lists them")
        return False

    def _show_stats(self) -> None:
        stats = self._stats
        _note(f"{self._replies} replies, {stats.output_tokens} tokens in {stats.steps} passes")
        if stats.tokens_per_pass is not None:
            _note(f"tokens a pass {stats.tokens_per_pass:.2f}, fire rate {stats.fire_rate:.0%}")
        if stats.hit_rate is not None:
            _note(
                f"drafted {stats.drafted}, accepted {stats.accepted}: hit rate "
                f"{stats.hit_rate:.0%}, alpha {stats.alpha:.0%}"
            )
        if self._config.exactness == "none":
            _note("not exact: --lenience or --no-adjust is set")

    def _answer(self, message: str) -> None:
        """Stream the reply to a message; an interrupt ends the reply and not the chat."""
        messages = [*self._messages, {"role": "user", "content": message}]
        pieces: list[str] = []
        stream = None
        try:
            with prompt_progress() as progress:
                stream = self._engine.stream_chat(messages, self._config, progress=progress)
                with cancel_on_interrupt(stream.cancel):
                    for event in stream:
                        pieces.append(event.text)
                        show(event.text)
        except KeyboardInterrupt:
            click.echo()
            _note("interrupted")
        except ContextOverflowError as error:
            _note(f"{error}. /reset begins anew.")
            return
        except AkunuError as error:
            _note(str(error))
            return
        else:
            click.echo()
        finally:
            if stream is not None:
                stream.close()
        if text := "".join(pieces):
            # A turn stopped before it said anything is as if it had not been.
            self._messages = [*messages, {"role": "assistant", "content": text}]
        if stream is None or stream.result is None:
            return
        self._stats += stream.result.stats
        self._replies += 1
        _note(statistics_line(stream.result))
        self._trace(stream)

    def _trace(self, reply: "ReplyStream") -> None:
        """Append a reply to the trace file, if there is one; the chat goes on without it."""
        if self._trace_file is None:
            return
        try:
            self._engine.append_trace(
                self._trace_file, reply, category="chat", session=self._session, turn=self._replies
            )
        except AkunuError as error:
            _note(str(error))


def _note(text: str) -> None:
    """Print what is not part of a reply; on stderr, so that a pipe gets the replies alone."""
    click.secho(printable(text, sys.stderr), dim=True, err=True)
