"""Commands and options of akunu: help in groups, options that every command has.

cloup has headings for groups of options, but no second level of help such as `--help-all`; with
these few lines akunu needs no further package.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import click
from click.core import ParameterSource

from akunu_py.cli.verbosity import QUIET_HELP, VERBOSE_HELP, set_up_logging

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])

SETTINGS = "Settings (akunu config set NAME VALUE)"
HEADINGS = ("", "Model", "Sampling", "Drafting", "Form", "Output", SETTINGS)
"""Groups in the order of --help. The first one has no name: what matters first."""

_NAME_COLUMN = 26
"""Most columns of an option's name beside its help; a longer name has a line of its own."""

WHOLE = 10_000
"""Characters of the longest summary of a command: none is cut."""

_EVERYTHING = "akunu_py.help_all"
_WORDS = "akunu_py.words"
OWN_WORDS = "akunu_py.own_words"
"""Where a context keeps the words behind the command itself."""

DRAFT_OPTIONS = "akunu_py.draft_options"
"""Where a context keeps the options of drafters and verifiers that were given, by name."""


class GroupedOption(click.Option):
    """An option that --help shows in a group, one of HEADINGS; --help-all alone if it is `rare`.

    Spellings in `also`, such as those of other programs, are taken and not shown. `check` takes a
    name and a value of the option's type, and raises ConfigError for one out of range: settings are
    checked with it before a command that has the option runs.
    """

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        group: str = "",
        rare: bool = False,
        also: Sequence[str] = (),
        check: Callable[[str, Any], None] | None = None,
        **attributes: Any,
    ) -> None:
        # The name of the value is that of the first long spelling.
        super().__init__([*declarations, *also], **attributes)
        self.group, self.rare, self.also = group, rare, frozenset(also)
        self.check = check

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return names and help, without the spellings that are not shown."""
        spellings = self.opts
        self.opts = [name for name in spellings if name not in self.also]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = spellings

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the option as it was typed, for a message of click's."""
        return f"'{typed_name(self, ctx)}'"


class Setting(click.Parameter):
    """A value of a command that has no flag: the environment and the settings file set it.

    `check` is as for a `GroupedOption`.
    """

    param_type_name = "setting"
    group, rare = SETTINGS, True

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        help: str,  # noqa: A002 - as click calls it
        check: Callable[[str, Any], None] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(declarations, **attributes)
        self.says, self.check = help, check

    @property
    def key(self) -> str:
        """Its name in the settings file."""
        return str(self.name).replace("_", "-")

    def _parse_decls(
        self,
        decls: Sequence[str],
        expose_value: bool,  # noqa: ARG002 - as click calls it
    ) -> tuple[str, list[str], list[str]]:
        return decls[0], [], []

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return what the environment says; values of a repeatable one are apart by spaces."""
        found = self.resolve_envvar_value(ctx)
        return found.split() if found is not None and self.multiple else found

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add nothing: nobody types it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the key with its values, and the help."""
        return f"{self.key} {self.make_metavar(ctx)}", self.says


class DraftOption(GroupedOption):
    """An option that a drafter or verifier declares."""


def option(*declarations: str, **attributes: Any) -> Callable[[_F], _F]:
    """Declare a `GroupedOption`, as `click.option` does."""
    return click.option(*declarations, cls=GroupedOption, **attributes)


def setting(name: str, **attributes: Any) -> Callable[[_F], _F]:
    """Declare a `Setting`."""
    return click.option(name, cls=cast("Any", Setting), **attributes)


def stack(options: Iterable[Callable[..., Any]], function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add several options to a command; --help shows them in their order."""
    for added in reversed(list(options)):
        function = added(function)
    return function


def typed_name(parameter: click.Option, context: click.Context | None) -> str:
    """Return an option as the user typed it, or else by its first long name."""
    for word in () if context is None else context.meta.get(_WORDS, ()):
        for name in (*parameter.opts, *parameter.secondary_opts):
            long = name.startswith("--")
            if word == name or word.startswith(f"{name}=" if long else name):
                return name
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def drafts(command: click.Command) -> bool:
    """Return whether a command is told how to draft."""
    return any(param.name == "drafter" for param in command.params)


def add_draft_options(command: click.Command) -> None:
    """Add what drafters and verifiers declare to a command that drafts.

    Their packages are searched for it, which takes a while: only where such an option may have been
    given, or is asked for.
    """
    if drafts(command) and not any(isinstance(param, DraftOption) for param in command.params):
        from akunu_py.cli.reply_options import make_draft_options  # it needs this module

        make_draft_options(command)


class Command(click.Command):
    """A command of akunu; groups of commands inherit from it as well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; the words are kept for messages that name options as they were typed."""
        ctx.meta[OWN_WORDS] = tuple(args)
        ctx.meta[_WORDS] = (*ctx.meta.get(_WORDS, ()), *args)
        known = {name for param in self.get_params(ctx) for name in param.opts}
        known |= {name for param in self.params for name in param.secondary_opts}
        long = {word.partition("=")[0] for word in args if word.startswith("--")}
        # A Tab is waited for; drafters import numpy.
        if not ctx.resilient_parsing:
            if long - {"--"} - known or "--help-all" in long:
                add_draft_options(self)
            self._refuse_one_dash(ctx, args)
        return super().parse_args(ctx, args)

    def with_draft_options(self) -> list[click.Parameter]:
        """Return its own parameters and, if it drafts, what drafters and verifiers declare."""
        add_draft_options(self)
        return self.params

    def _refuse_one_dash(self, ctx: click.Context, args: Iterable[str]) -> None:
        """Refuse a long name behind one dash: click would take -temp for -t with the value emp."""
        known = {name for param in self.get_params(ctx) for name in param.opts}
        for word in itertools.takewhile(lambda word: word != "--", args):
            name = word.partition("=")[0]
            if len(name) > len("-t") and f"-{name}" in known:
                raise click.UsageError(f"There is no {name} here: type -{name}.", ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, those that every command has last."""
        params = super().get_params(ctx)
        if ctx.parent is not None:
            own, last = params[: len(self.params)], params[len(self.params) :]
            params = [*own, *_VERBOSITY, *last]
        if any(_is_rare(param) for param in self.params):
            params.append(_HELP_ALL)
        return params

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Offer the options, without the spellings that --help does not show."""
        hidden = {
            name for one in self.params if isinstance(one, GroupedOption) for name in one.also
        }
        # Not that of a group, which would import every command for its summary.
        offered = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in offered if item.value not in hidden]

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - never cut
        """Return the first sentence, whole whatever the limit is."""
        return super().get_short_help_str(WHOLE)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their groups."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in HEADINGS}
        for param in self.get_params(ctx):
            if _is_rare(param) and not ctx.meta.get(_EVERYTHING):
                continue
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option | Setting):
                groups[getattr(param, "group", "")].append(record)
        names = [name for records in groups.values() for name, _ in records]
        fitting = [len(name) for name in names if len(name) <= _NAME_COLUMN]
        width = max(fitting, default=0)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading or "Options"):
                    # One column for the help of all groups.
                    rows = [(name.ljust(width), text) for name, text in records]
                    formatter.write_dl(rows, col_max=width)


def _is_rare(param: click.Parameter) -> bool:
    return isinstance(param, GroupedOption | Setting) and param.rare


def _show_everything(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[_EVERYTHING] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _set_verbosity(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    """Do as the same option of `akunu` itself does, which stands before the command."""
    root = context.find_root()
    if given and parameter.name in root.params:
        root.params[parameter.name] = True
        root.set_parameter_source(parameter.name, ParameterSource.COMMANDLINE)
        set_up_logging(root)


_VERBOSITY = tuple(
    GroupedOption(
        declarations, is_flag=True, is_eager=True, expose_value=False, show_default=False,
        callback=_set_verbosity, help=text,
    )
    for declarations, text in (
        (("-v", "--verbose"), VERBOSE_HELP), (("-q", "--quiet"), QUIET_HELP),
    )
)  # fmt: skip

_HELP_ALL = GroupedOption(
    ("--help-all",), is_flag=True, is_eager=True, expose_value=False, show_default=False,
    callback=_show_everything, help="Show this message with the rare options.",
)  # fmt: skip


def _show_every_command(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    """Show the help of a group and of all commands below it, rare options included."""
    if not asked or context.resilient_parsing:
        return
    context.meta[_EVERYTHING] = True
    left = [(context.command, context)]
    while left:
        command, of = left.pop(0)
        click.echo(f"{command.get_help(of)}\n", color=of.color)
        if isinstance(command, click.Group):
            found = {name: command.get_command(of, name) for name in command.list_commands(of)}
            left += [
                (below, click.Context(below, info_name=name, parent=of))
                for name, below in found.items()
                if below is not None
            ]
    context.exit()


EVERY_COMMAND = GroupedOption(
    ("--help-all",), is_flag=True, is_eager=True, expose_value=False, show_default=False,
    callback=_show_every_command, help="Show the help of all commands, with the rare options.",
)  # fmt: skip

SHARED = (*_VERBOSITY, _HELP_ALL)
"""Options that commands have without declaring them."""
