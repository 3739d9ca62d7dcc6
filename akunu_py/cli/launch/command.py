"""`akunu launch`: an agent with the settings of one session, and a server if none runs."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from akunu_py.cli.command import Command, option
from akunu_py.cli.declared_options import naming_flags
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.launch.agents import AGENTS, Agent, AgentSettings, past_proxies, shortage
from akunu_py.cli.loading_options import model_argument
from akunu_py.cli.ranks import join
from akunu_py.cli.terminal import wrapped
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import ConfigError

if TYPE_CHECKING:
    from akunu_py.cli.launch.local_server import LocalServer

_PORT = 8080
_FOR_THE_AGENT = "akunu_py.launch.arguments"
_FIRST_KEY = r"sed -n 's/^[[:space:]]*//; s/[[:space:]]*$//; /^[^#]/{p;q;}'"
"""Prints the first key of a file, which is then not in the history of the shell."""


class _LaunchCommand(Command):
    """A command whose words behind `--` belong to another program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`, and keep the others."""
        own, theirs = args, list[str]()
        if "--" in args:
            at = args.index("--")
            own, theirs = args[:at], args[at + 1 :]
        ctx.meta[_FOR_THE_AGENT] = theirs
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the usage line, with the words behind `--`."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


@click.command(cls=_LaunchCommand)
@click.argument("agent", type=click.Choice(list(AGENTS)), metavar="AGENT")
@model_argument
@option(
    "--port", type=click.IntRange(1, 65535), default=_PORT, metavar="N",
    help="Use the server at port N of this machine, or start one there.",
)  # fmt: skip
@option(
    "--context", type=click.IntRange(min=1), metavar="N",
    help="Bound prompt and reply together to N tokens, if a server is started.",
)  # fmt: skip
@option(
    "--api-key-file", type=GivenPath(path_type=Path), metavar="FILE",
    help="Use the first key in FILE; a server that is started asks for one of them.",
)  # fmt: skip
@option(
    "--print", "only_print", is_flag=True,
    help="Print the agent's command with its settings instead of starting anything.",
)  # fmt: skip
def launch(  # noqa: PLR0917 - click passes by name
    agent: str,
    model: str | None,
    port: int,
    context: int | None,
    api_key_file: Path | None,
    only_print: bool,
) -> None:
    """Start a coding agent that uses a model on this machine.

    AGENT is claude (Claude Code), codex, opencode or qwen (Qwen Code); arguments after -- are
    passed on to it. The settings hold for this session alone: none of the agent's files are
    changed.

    If no akunu server runs at --port, one is started for the session and ends with the agent;
    variables and settings of akunu serve hold for it. If another program uses port 8080, a free
    port is taken. With a server that runs already, MODEL is one of its names.

    \b
    Examples:
      akunu launch claude
      akunu launch codex model.gguf --context 65536
      akunu launch opencode --print
      akunu launch codex -- exec "Explain this project"
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.server.security import read_keys  # not for --help

    # Each rank would start an agent.
    join(several=False)
    chosen = AGENTS[agent]
    arguments = click.get_current_context().meta[_FOR_THE_AGENT]
    key = "" if api_key_file is None else read_keys(api_key_file)[0]
    program = shutil.which(chosen.program)
    if program is None and not only_print:
        raise click.ClickException(
            f"{chosen.title} is not installed, or {chosen.program} is not on PATH. "
            f"To install it: {chosen.install}"
        )
    session = _Session(model, port, context, api_key_file, key)
    if only_print:
        server, note = session.described()
        settings = past_proxies(chosen.settings(server), os.environ)
        for line in filter(None, (note, shortage(chosen, server))):
            click.echo(f"# {line}")
        click.echo(_shell_lines(chosen, settings, arguments, key, api_key_file))
        return
    assert program is not None  # noqa: S101 - refused above
    with session.server() as server:
        if lacking := shortage(chosen, server):
            _say(f"Warning: {lacking}")
        settings = past_proxies(chosen.settings(server), os.environ)
        code = _run([program, *settings.arguments, *arguments], settings.variables)
    raise click.exceptions.Exit(code)


@dataclass(frozen=True, slots=True)
class _Session:
    """The server of a session: what the user asked for, and what there is."""

    model: str | None
    port: int
    context: int | None
    api_key_file: Path | None
    key: str = field(repr=False)

    def described(self) -> tuple["LocalServer", str]:
        """Return the server, and a line on how to start it if it does not run."""
        from akunu_py.cli.launch.local_server import LocalServer, address
        from akunu_py.model_store.choice import model_name
        from akunu_py.model_store.names import resolve_model
        from akunu_py.system.settings import load_settings

        found, port = self._find()
        if found is not None:
            return found, ""
        from akunu_py.models.cached_rows import usable_context  # imports MLX
        from akunu_py.models.requirements import requirements

        path = resolve_model(self.model, load_settings(), download=False)
        trained = requirements(path).context
        with naming_flags():
            context = usable_context(self.context, trained)
        command = ["akunu", "serve", *self._serve_arguments(self.model), "--port", str(port)]
        note = f"No server runs there yet: {shlex.join(command)}"
        return LocalServer(address(port), model_name(path), context, self.key, trained), note

    @contextlib.contextmanager
    def server(self) -> Iterator["LocalServer"]:
        """Yield the server; one that was started ends with the block."""
        from akunu_py.cli.launch.local_server import address, started_server
        from akunu_py.cli.loading_options import model_path
        from akunu_py.model_store.names import friendly_name

        found, port = self._find()
        if found is not None:
            _say(f"{found.model} answers at {found.url}")
            yield found
            return
        # Fetched here, where its progress is seen.
        path = model_path(self.model)
        _say(f"starting a server of {friendly_name(path)} at {address(port)}")
        with started_server(self._serve_arguments(str(path)), port, self.key) as server:
            yield server

    def _find(self) -> tuple["LocalServer | None", int]:
        """Return the server that runs, if one does, and the port for one otherwise."""
        from akunu_py.cli.launch.local_server import (
            OtherProgramError,
            find_server,
            free_port,
        )

        try:
            found = find_server(self.port, self.key, self._wanted())
        except OtherProgramError as error:
            if _source("port") is not ParameterSource.DEFAULT:
                raise ConfigError(f"{error.message}; give another --port") from None
            return None, free_port()
        other = found is not None and found.context != self.context
        if found is not None and other and _source("context") is ParameterSource.COMMANDLINE:
            raise ConfigError(
                f"the server at {found.url} has a context of {found.context} tokens; leave "
                "--context out to use it, or give another --port"
            )
        return found, self.port

    def _wanted(self) -> str | None:
        """Return the name that a typed MODEL has at a server: that of its file, or the same."""
        if ParameterSource.COMMANDLINE not in {_source("model"), _source("model_option")}:
            return None
        assert self.model is not None  # noqa: S101
        from akunu_py.model_store.choice import model_name
        from akunu_py.model_store.names import resolve_model
        from akunu_py.system.errors import AkunuError
        from akunu_py.system.settings import load_settings

        try:
            return model_name(resolve_model(self.model, load_settings(), download=False))
        except AkunuError:
            return self.model

    def _serve_arguments(self, model: str | None) -> list[str]:
        arguments = [] if model is None else [model]
        if self.context is not None:
            arguments += ["--context", str(self.context)]
        if self.api_key_file is not None:
            arguments += ["--api-key-file", str(self.api_key_file)]
        return arguments


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def _say(text: str) -> None:
    if is_quiet():
        return
    if sys.stderr.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    click.echo(text, err=True)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run an agent in the terminal until its end; return its exit code as a shell has it."""
    # Ctrl-C is for the agent, which gets it from the terminal. A function and not SIG_IGN, which
    # the agent would inherit.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with subprocess.Popen(command, env={**os.environ, **variables}) as process:  # noqa: S603
            try:
                code = process.wait()
            except SystemExit:
                # kill, or a closed terminal: the agent ends before its server does.
                process.terminate()
                raise
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code


def _shell_lines(
    agent: Agent, settings: AgentSettings, arguments: Sequence[str], key: str, key_file: Path | None
) -> str:
    """Return a command for a shell: variables, program and arguments, a line each."""
    lines = []
    for name, value in settings.variables.items():
        quoted = shlex.quote(value)
        if key_file is not None and value == key:
            quoted = f'"$({_FIRST_KEY} {shlex.quote(str(key_file))})"'
        lines.append(f"{name}={quoted}")
    lines.append(shlex.join([agent.program, *settings.arguments, *arguments]))
    return " \\\n".join(lines)
