"""Groups of commands: imports on demand, options from environment and file, exit codes.

Installed packages add commands by entry points of the group "akunu.commands". `importlib.metadata`
takes as much CPU time for them as all else that `akunu --help` does: it is made for more than
reading one section of a few files. So these are read here.
"""

import contextlib
import errno
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from akunu_py.cli.command import WHOLE, Command, drafts, typed_name
from akunu_py.cli.command_settings import (
    bind_variables,
    check_settings,
    defaults,
    find_setting,
    leaves,
    unknown_variables,
)
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.system.plug_ins import without_laboratory
from akunu_py.system.settings import Settings, config_path, load_settings, nearest
from akunu_py.system.shown_text import harmless, one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_SECTION = "[akunu.commands]"


def commands() -> Mapping[str, str]:
    """Return names such as "bench.sweep" with "module:attribute"; the first on sys.path counts."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for path in sorted(Path(folder).glob("*-info/entry_points.txt")):
            with contextlib.suppress(OSError):
                found = _declared(path.read_text(encoding="utf-8", errors="replace")) | found
    return found


def _declared(text: str) -> dict[str, str]:
    """Return the lines NAME = MODULE:ATTRIBUTE of the section; extras in brackets are left out."""
    found, inside = {}, False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.strip() == _SECTION
        elif inside and "=" in line and not line.startswith("#"):
            name, _, place = line.partition("=")
            found[name.strip()] = place.partition("[")[0].strip()
    return found


OK, ERROR, USAGE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141
"""Exit codes; the last two are what shells say of a process that SIGINT or SIGPIPE ended."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_SETTINGS = "akunu_py.system.settings"
_NEEDS_NO_SETTINGS = frozenset({"completion", "config", "doctor"})


class CommandGroup(Command, click.Group):
    """Finds commands by name, so that a command's imports cost nobody else.

    `lazy` has "module:attribute" for each name. Installed packages may add commands by entry points
    of the group "akunu.commands": those whose names begin with `plug_ins` and have no dot behind it
    ("bench.sweep" is `akunu bench sweep`). `summaries` has the line that --help shows of a
    command: one without is imported for it.
    """

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, str] | None = None,
        plug_ins: str | None = None,
        summaries: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(lazy or {})
        self._plug_ins = plug_ins
        self._summaries = dict(summaries or {})

    def _added(self) -> dict[str, str]:
        """Return the commands of other packages that can be imported."""
        if self._plug_ins is None:
            return {}
        return {
            name: place
            for point, place in commands().items()
            if point.startswith(self._plug_ins)
            and "." not in (name := point.removeprefix(self._plug_ins))
            and _is_installed(place.partition(":")[0])
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, for --help."""
        return sorted({*self._lazy, *self._added(), *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        if cmd_name not in self._lazy:
            if (found := super().get_command(ctx, cmd_name)) is not None:
                return found
            self._lazy |= self._added()
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what there is to choose from before the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, for --help."""
        rows = [(name, self._summary(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in self._summaries:
            return self._summaries[name]
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(WHOLE)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Offer the commands and the options."""
        from click.shell_completion import CompletionItem  # for a Tab alone

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._summary(ctx, name)) for name in names]
        return [*items, *super().shell_complete(ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, with what environment and file say of its options."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-"):
            known = self._lazy if name in self._lazy else self.list_commands(ctx)
            if name not in known:
                raise click.UsageError(f"No such command {name!r}.{nearest(name, known)}", ctx)
        found, command, rest = super().resolve_command(ctx, args)
        if command is not None and found is not None and not ctx.resilient_parsing:
            self._apply_settings(ctx, found, command, rest)
        return found, command, rest

    def _apply_settings(
        self, context: click.Context, name: str, command: click.Command, rest: list[str]
    ) -> None:
        words = (*context.command_path.split()[1:], name)
        settings = _settings(context, words, rest)
        root = context.find_root().command
        if root is self and not _do_without(words, rest):
            if settings.values:
                check_settings(settings, context)
            warnings = unknown_variables(context, name)
            if not is_quiet() and not {"-q", "--quiet"} & set(rest):
                for warning in warnings:
                    click.echo(one_line(f"Warning: {warning}"), err=True)
        below: dict[str, Any] = {}
        if isinstance(command, CommandGroup) and command.is_lazy:
            return
        for path, leaf in leaves(command, context, words):
            bind_variables(leaf, path)
            try:
                values = defaults(settings, leaf, path)
            except ConfigError:
                if not _do_without(words, rest):
                    raise
                values = {}
            place = below
            for word in path[len(words) - 1 : -1]:
                place = place.setdefault(word, {})
            place[path[-1]] = values
        context.default_map = {**(context.default_map or {}), **below}

    @property
    def is_lazy(self) -> bool:
        """Return whether commands are imported when they are called."""
        return bool(self._lazy)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _ClosedPipeError(Exception):
    """BrokenPipeError under a name that click, which ends with 1 for that one, does not know."""


class RootGroup(CommandGroup):
    """`akunu` itself: errors become messages, and every end has its exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the settings first; an error in them is told when a command is called."""
        # --help and --version answer at once: they need no settings.
        if not ctx.resilient_parsing and args[:1] not in (["--help"], ["-h"], ["--version"]):
            bind_variables(self, ())
            try:
                settings = load_settings()
                ctx.default_map = defaults(settings, self, ())
            except ConfigError as error:
                ctx.meta[_SETTINGS] = error
            else:
                ctx.meta[_SETTINGS] = settings
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse, and print --help and --version."""
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError:
            raise _ClosedPipeError from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a user's mistake becomes a message, not a traceback."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ClosedPipeError from None
        except click.BadParameter as error:
            raise _with_cause(error) from error
        except click.NoSuchOption as error:
            raise _explained(error) from error
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        except AkunuError as error:
            raise click.ClickException(str(error)) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and, unless told otherwise, exit with one of the codes above."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            # What is still in the buffer: a reader that has gone is noticed here.
            sys.stdout.flush()
        except click.ClickException as error:
            _show(error)
            sys.exit(error.exit_code)
        except click.Abort as error:
            _abort(error)
        except (_ClosedPipeError, BrokenPipeError):
            _leave_closed_pipe()
        except OSError as error:
            # A full disk, a folder without permission: not a defect of the program.
            click.echo(f"Error: {one_line(_of_system(error))}", err=True)
            _drop_output()
            sys.exit(ERROR)
        sys.exit(code if isinstance(code, int) else OK)


def _of_system(error: OSError) -> str:
    """Return a message for a user about an error of the operating system."""
    try:
        Path.cwd()
    except OSError:
        return "the current folder is gone; change to one that exists"
    reason = error.strerror or str(error)
    what = f"{error.filename}: {reason}" if error.filename else reason
    if error.errno in _NO_ROOM:
        what = f"{what}; nothing more can be written there: make room, or write elsewhere"
    return what


def _settings(context: click.Context, words: tuple[str, ...], rest: list[str]) -> Settings:
    """Return the settings that were read; commands that mend them, and --help, do without."""
    found = context.find_root().meta[_SETTINGS]
    if isinstance(found, Settings):
        return found
    if not _do_without(words, rest):
        raise found
    return Settings(config_path(), found=False, values={}, model=None, model_folders=())


def _do_without(words: tuple[str, ...], rest: list[str]) -> bool:
    return words[0] in _NEEDS_NO_SETTINGS or bool({"-h", "--help", "--help-all"} & set(rest))


_PLAIN_WORDS = (
    (r"is not a valid float\.", "is not a number."),
    (r"is not a valid integer\.", "is not a whole number."),
    (r"is not in the range x>=(\S+)\.", r"is too small; give \1 or more."),
    (r"is not in the range (\S+)<=x<=(\S+)\.", r"is out of range; give \1 to \2."),
)
"""What click says of wrong numbers, and what people say."""


def _with_cause(error: click.BadParameter) -> click.BadParameter:
    """Say which variable a wrong value came from, or what to type for what was meant."""
    from akunu_py.cli.first_words import FOREIGN_VALUES  # for mistakes alone

    if isinstance(error, click.MissingParameter):
        return error
    parameter, context, message = error.param, error.ctx, error.message
    for words, plain in _PLAIN_WORDS:
        message = re.sub(words, plain, message)
    if isinstance(parameter, click.Option) and context is not None and parameter.name is not None:
        if context.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT:
            variables = parameter.envvar or ()
            variables = [variables] if isinstance(variables, str) else variables
            name = next((name for name in variables if os.environ.get(name)), "the environment")
            message = f"{message.rstrip('.')} ({name} says so)."
        elif said := FOREIGN_VALUES.get(typed_name(parameter, context)):
            message = f"{message} {said}."
    return click.BadParameter(message, context, parameter, error.param_hint)


def _explained(error: click.NoSuchOption) -> click.UsageError:
    """Say what to type for an option of another program, or of `akunu` itself."""
    from akunu_py.cli.first_words import foreign_option  # for mistakes alone

    context, option = error.ctx, error.option_name
    if context is None:
        return error
    if (found := find_setting(context, option)) is not None:
        return click.UsageError(found, context)
    if (said := foreign_option(option, context.command.name)) is not None:
        return click.UsageError(said, context)
    root = context.find_root()
    if any(option in parameter.opts for parameter in root.command.params):
        return click.UsageError(f"type: {root.command_path} {option}", context)
    if drafts(context.command):
        return click.UsageError(without_laboratory(error.format_message()), context)
    return error


def _show(error: click.ClickException) -> None:
    """Print an error as click does; what was typed, or expanded from *, may hold escape codes."""
    import shutil  # for mistakes alone

    from akunu_py.cli.terminal import wrapped

    text = io.StringIO()
    error.show(text)
    lines = harmless(text.getvalue()).splitlines()
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = [wrapped(line, width) for line in lines]
    click.echo("\n".join(lines), err=True)


def _abort(error: click.Abort) -> NoReturn:
    """End after Ctrl-C, or after the end of input where an answer was wanted."""
    cause = error.__cause__ or error.__context__
    if cause is not None and error.__cause__ is None:
        # In a question click stays on its row.
        click.echo(err=True)
    click.echo("Interrupted." if isinstance(cause, KeyboardInterrupt) else "Aborted.", err=True)
    sys.exit(INTERRUPTED if isinstance(cause, KeyboardInterrupt) else ERROR)


def _leave_closed_pipe() -> NoReturn:
    """End quietly: the reader has gone, as `head` does when it has seen enough."""
    _drop_output()
    sys.exit(CLOSED_PIPE)


def _drop_output() -> None:
    """Have somewhere to flush to at exit, where Python would fail once more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
