"""`akunu`: the command group. Commands are imported when they are called."""

import io
import os
import sys
from pathlib import Path

import click

from akunu_py import __version__
from akunu_py.cli.group import RootGroup, end_by_signals
from akunu_py.cli.verbosity import set_up_logging

_COMMANDS = {
    "bench": "akunu_py.cli.bench:bench",
    "chat": "akunu_py.cli.chat:chat",
    "completion": "akunu_py.cli.completion:completion",
    "config": "akunu_py.cli.config:config",
    "demo": "akunu_py.cli.demo:demo",
    "doctor": "akunu_py.cli.doctor:doctor",
    "generate": "akunu_py.cli.generate:generate",
    "info": "akunu_py.cli.info:info",
    "models": "akunu_py.cli.models:models",
    "sessions": "akunu_py.cli.sessions:sessions",
    "tune": "akunu_py.cli.tune:tune",
}

_SUMMARIES = {
    "bench": "Measure what drafting brings on this machine.",
    "chat": "Chat with a model.",
    "completion": "Print a script for SHELL that completes what is typed when Tab is pressed.",
    "config": "Show and edit the settings file, and show what it and the environment set.",
    "demo": "Watch a model edit a function twice: plain, and with drafts.",
    "doctor": "Look at the machine and the installation, and say what could be better.",
    "generate": "Answer one prompt and print the reply.",
    "info": "Show what a GGUF file holds: the model, its quantization, tokenizer and metadata.",
    "models": "Fetch, look at, name, convert and delete models.",
    "sessions": "List, show and delete the conversations that akunu chat kept.",
    "tune": "Measure what a pass costs by its rows, and say which drafts pay.",
}
"""First sentences of the commands' own help, which `akunu --help` shows without importing them."""

_TAB = "_AKUNU_COMPLETE"
"""Set by the scripts of `akunu completion`, which ask what may follow."""


@click.group(
    cls=RootGroup,
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
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is decided and why.")
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Say nothing on stderr but errors and what was asked for: no progress, no statistics.",
)
@click.pass_context
def cli(context: click.Context, /, **_verbosity: bool) -> None:
    """Run language models on this machine, faster and with the same output.

    Without a MODEL the commands use the small model that ships with akunu. A MODEL is the path of
    a GGUF file or of an MLX model folder, or a name: akunu models --help says which there are.

    \b
    Examples:
      akunu chat
      akunu generate -p "Who are you?"
      git diff | akunu generate -p "Write a commit message for this:"
      akunu COMMAND --help

    Options come from flags, else from variables such as AKUNU_TEMPERATURE or
    AKUNU_CHAT_TEMPERATURE, else from the settings file, which akunu config path names, else from
    their defaults; akunu config show says which.

    \b
    Exit codes:
      0    all is well
      1    something went wrong: the message says what
      2    wrong options, arguments or settings
      129  the terminal was closed (SIGHUP)
      130  interrupted by Ctrl-C
      141  the reader of the output has gone, as head does
      143  ended by kill (SIGTERM)
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
        from akunu_py.cli import shell_scripts  # noqa: PLC0415 - for a Tab alone

        shell_scripts.install()
    cli(prog_name="akunu")
