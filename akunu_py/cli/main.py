"""`akunu`: the command group. Commands are imported when they are called."""

import importlib
import io
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click

from akunu_py import __version__
from akunu_py.cli.terminal import printable
from akunu_py.errors import AkunuError, ConfigError

_COMMANDS = {
    "bench": "akunu_py.cli.bench:bench",
    "chat": "akunu_py.cli.chat:chat",
    "counts": "akunu_py.cli.counts:counts",
    "generate": "akunu_py.cli.generate:generate",
    "info": "akunu_py.cli.info:info",
    "models": "akunu_py.cli.models:models",
    "tune": "akunu_py.cli.tune:tune",
}


class LazyGroup(click.Group):
    """Finds commands by name, so that a command's imports cost nobody else; maps our errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, for --help."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a user's mistake becomes a message, not a traceback."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise click.UsageError(printable(str(error), sys.stderr)) from error
        except AkunuError as error:
            raise click.ClickException(printable(str(error), sys.stderr)) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="akunu")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is decided and why.")
def cli(verbose: bool) -> None:
    """Run language models on this machine, faster and with the same output.

    Without a MODEL the commands use the small model that ships with akunu. A MODEL is the path of
    a GGUF file or of an MLX model folder.
    """
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("akunu: %(message)s"))
        logger = logging.getLogger("akunu_py")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def main() -> None:
    """Run the command line; the entry point of the `akunu` script."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Started with a closed stream (`akunu ... >&-`): nothing to read, or nobody reads.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    # Text of a model may hold any character, whatever the terminal's encoding.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    cli(prog_name="akunu")
