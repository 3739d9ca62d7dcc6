"""`akunu`: the command group. Commands are imported when they are called."""

import io
import os
import sys
from pathlib import Path

import click

from akunu_py import __version__
from akunu_py.cli.command import EVERY_COMMAND
from akunu_py.cli.group import RootGroup
from akunu_py.cli.signals import end_by_signals
from akunu_py.cli.verbosity import QUIET_HELP, VERBOSE_HELP, set_up_logging

_COMMANDS = {
    "bench": "akunu_py.cli.bench:bench",
    "chat": "akunu_py.cli.chat:chat",
    "completion": "akunu_py.cli.completion:completion",
    "config": "akunu_py.cli.config:config",
    "demo": "akunu_py.cli.demo:demo",
    "doctor": "akunu_py.cli.doctor:doctor",
    "embed": "akunu_py.cli.embed:embed",
    "generate": "akunu_py.cli.generate:generate",
    "launch": "akunu_py.cli.launch:launch",
    "models": "akunu_py.cli.models:models",
    "serve": "akunu_py.cli.serve:serve",
    "sessions": "akunu_py.cli.sessions:sessions",
    "tune": "akunu_py.cli.tune:tune",
}

_SUMMARIES = {
    "bench": "Measure what drafting brings on this machine.",
    "chat": "Chat with a model.",
    "completion": "Print a script for SHELL that completes commands when Tab is pressed.",
    "config": "Show and change settings, and show where each of them comes from.",
    # Of the laboratory, which may not be there: then nobody reads them.
    "conformance": "Examine the server at URL: whether coding agents can rely on it.",
    "counts": "Count the tokens of a corpus, for --drafter corpus.",
    "demo": "Watch a model edit a function twice: plain, and with drafts.",
    "doctor": "Check the machine and the installation, and say what to improve.",
    "embed": "Make embeddings of texts, for searches and comparisons.",
    "generate": "Answer one prompt and print the reply.",
    "launch": "Start a coding agent that uses a model on this machine.",
    "models": "Search, download, inspect, alias, convert and delete models.",
    "serve": "Serve a model to coding agents and other clients, until Ctrl-C.",
    "sessions": "List, search, show and delete the conversations that akunu chat kept.",
    "tune": "Measure the cost of a pass by its number of positions, and say which drafts pay.",
}
"""First sentences of the commands' own help, which `akunu --help` shows without importing them."""

_DETAILS = """\
An option that is not given comes from a variable such as AKUNU_TEMPERATURE or
AKUNU_CHAT_TEMPERATURE, else from the settings file, else from its default; akunu config show says
which.

Commands of Ollama work here where they mean the same: run, pull, list, ls, show, rm, help.
docs/coming-from.md has those of llama.cpp, mlx_lm and llm, too.

\b
Exit codes:
  0    success
  1    an error, which the message explains
  2    wrong options, arguments or settings
  129  the terminal was closed (SIGHUP)
  130  interrupted by Ctrl-C
  141  the reader of the output has gone, as head does
  143  ended by kill (SIGTERM)
"""
"""What `akunu --help` says behind the commands and options."""

_TAB = "_AKUNU_COMPLETE"
"""Set by the scripts of `akunu completion`, which ask what may follow."""


class _Akunu(RootGroup):
    """`akunu` itself, which knows the words of other programs."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all for every command there is."""
        return [*super().get_params(ctx), EVERY_COMMAND]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, those of other programs as akunu's own."""
        if args and args[0] not in ("-h", "--help", "--help-all", "--version"):
            from akunu_py.cli.first_words import in_own_words  # not for --help

            try:
                args = in_own_words(args, self, ctx)
            except click.UsageError:
                # A Tab has no place for a message.
                if not ctx.resilient_parsing:
                    raise
        return super().parse_args(ctx, args)


@click.group(
    cls=_Akunu,
    epilog=_DETAILS,
    lazy=_COMMANDS,
    plug_ins="",
    summaries=_SUMMARIES,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="akunu")
@click.option("-v", "--verbose", is_flag=True, help=VERBOSE_HELP)
@click.option("-q", "--quiet", is_flag=True, help=QUIET_HELP)
@click.pass_context
def cli(context: click.Context, /, **_verbosity: bool) -> None:
    """Run language models on this machine, faster and with the same output.

    A MODEL is the path of a GGUF file or of an MLX folder, or a name (akunu models --help). Without
    one the default model answers.

    \b
    Examples:
      akunu chat
      akunu chat model.gguf
      akunu generate "Who are you?"
      git diff | akunu generate -p "Write a commit message for this:"
      akunu help COMMAND
    """  # noqa: D301 - \b keeps click from wrapping the examples
    set_up_logging(context)


def main() -> None:
    """Run the command line, with signals and streams as the commands need them."""
    end_by_signals()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Started with a closed stream (`akunu ... >&-`): nothing to read, or nobody reads.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    # Text of a model may hold any character, whatever the terminal's encoding.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if _TAB in os.environ:
        from akunu_py.cli import completion  # for a Tab alone

        completion.install()
    cli(prog_name="akunu")
