"""`akunu chat`: the command."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from akunu_py.cli.command import Command, option
from akunu_py.cli.editor import edit_text
from akunu_py.cli.input_text import GivenPath, check_model, check_text
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
)
from akunu_py.cli.ranks import is_follower
from akunu_py.cli.reply_options import generation_options, showing_options, value_sources
from akunu_py.cli.terminal import echo, is_dumb
from akunu_py.cli.verbosity import is_quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from akunu_py.cli.reply_view import Reasoning
    from akunu_py.engine.engine import Engine
    from akunu_py.values.types import GenerationConfig


class _Chat(Command):
    """A command that shows what is typed at its prompts alone, from its first moment on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, which takes a while: options import what they check."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        with contextlib.ExitStack() as hidden:
            hidden.enter_context(echo(False))
            left = super().parse_args(ctx, args)
            # click closes no context whose parsing failed.
            ctx.call_on_close(hidden.pop_all().close)
        return left


def _choose(question: str, options: "Sequence[tuple[str, str]]") -> str | None:
    from akunu_py.cli.chat.typing_aids import choose  # prompt_toolkit

    return choose(question, options)


@click.command(cls=_Chat)
@model_argument
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=GivenPath(exists=True, dir_okay=False, path_type=Path),
)
@option("--system", also=["--system-prompt"], help="A system message.")
@option(
    "--load",
    "session_file",
    type=GivenPath(dir_okay=False, path_type=Path),
    help="Continue a conversation that /save wrote.",
)
@option(
    "--continue",
    "continued",
    is_flag=True,
    help="Continue the last conversation, with its model if none is given.",
)
@option(
    "--keep/--no-keep",
    default=True,
    help="Keep the conversation.",
)
@generation_options
@loading_options("draft_model", "heads", "memory", ranks=True, shipped_head=True)
@showing_options
def chat(  # noqa: PLR0917 - click passes by name
    model: str | None,
    files: tuple[Path, ...],
    system: str | None,
    session_file: Path | None,
    continued: bool,
    keep: bool,
    trace_file: Path | None,
    config: "GenerationConfig",
    loading: LoadingOptions,
    plain: bool,
    reasoning: "Reasoning",
) -> None:
    """Chat with a model. /help lists the commands.

    Each FILE of text goes with the first message; the MODEL may be left out before it. When the
    context is full, the oldest turns are dropped, with a notice. Conversations at a terminal are
    kept on this machine: see akunu sessions.

    Without a terminal, each line of standard input is a message or a command; three quotes begin
    and end one of several lines. Replies go to standard output, everything else to standard error.
    The exit code is 1 if a line could not be answered or carried out.

    \b
    Examples:
      akunu chat
      akunu chat model.gguf --temperature 0.7 --system "Answer briefly."
      akunu chat app.py
      akunu chat --continue
      akunu chat model.gguf --load conversation.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.chat.actions import Tools
    from akunu_py.cli.chat.commands import completions
    from akunu_py.cli.chat.line_input import open_lines
    from akunu_py.cli.chat.loop import Chat, note, note_width
    from akunu_py.cli.chat.session_file import load_session
    from akunu_py.cli.chat.session_store import KeptSession, default_store
    from akunu_py.cli.default_model_offer import offer_default_model
    from akunu_py.engine.conversation import Conversation

    if system is not None:
        check_text("--system", system)
    if continued and session_file is not None:
        raise click.UsageError("give either --continue or --load")
    if model is not None:
        check_model(model, model)
    if is_follower():
        load_engine(model, loading, several=True)
    context = click.get_current_context()
    # Before the model, which takes time to load.
    session = None if session_file is None else load_session(session_file)
    store = default_store()
    stored = store.newest() if continued else None
    if stored is not None:
        session = stored.load()
        if model is None and session.path and Path(session.path).exists():
            model = session.path
    if not keep and context.get_parameter_source("keep") is ParameterSource.COMMANDLINE:
        # Settings of what is kept give way to it.
        loading, trace_file = replace(loading, memory=None), None
    if model is None:
        offer_default_model()

    def load(name: str | None) -> "Engine":
        return load_engine(name, loading, several=True)

    engine = load(model)
    conversation = Conversation(engine, config, system)
    try:
        if not engine.tokenizer.has_chat_template:
            raise click.ClickException(
                "this model has no chat template; use akunu generate --raw with it"
            )
        lines, typed = open_lines(store.typed, completions)
        if typed and not is_quiet():
            kept = engine.description
            millions = kept.parameters / 1e6
            size = f"{millions:,.{0 if millions >= 100 else 1}f} million parameters"
            facts = [kept.name, size]
            facts += [kept.weights_text] if kept.adapter or not kept.exact else []
            facts.append(f"context {engine.context:,}")
            facts += ["prediction head"] if engine.has_head else []
            note(" \u00b7 ".join(facts))
            note("Type a message. /help lists the commands, /exit leaves.")
        if not typed and note_width() is not None and not is_quiet():
            note("each line of standard input is a message; akunu generate -p asks about all of it")
        tools = Tools(
            note,
            load,
            echo(True)(edit_text) if typed else None,
            note_width,
            KeptSession(store) if typed and keep else None,
            _choose if typed and not is_dumb() else None,
            value_sources(context),
        )
        talk = Chat(
            conversation,
            lines,
            tools,
            trace_file,
            typed=typed,
            remembers=loading.memory is not None,
            plain=plain,
            reasoning=reasoning,
        )
        if session is not None:
            if stored is not None:
                talk.actions.continue_kept(stored, session)
            elif session_file is not None:
                talk.actions.go_on(session, session_file)
            if context.get_parameter_source("system") is ParameterSource.COMMANDLINE:
                conversation.system = system
        for path in files:
            talk.actions.attach(path, "the first message")
        talk.run()
        # Somebody at a terminal has seen it.
        if talk.failed and not typed:
            context.exit(1)
    finally:
        conversation.engine.close()
