"""Options from the environment and from the settings file: names, checks, and what applies where.

A command's option `--top-p` is set by the flag; else by AKUNU_GENERATE_TOP_P, else AKUNU_TOP_P;
else by `top-p` in the file's table [generate], else by `top-p` before the first table; else by its
default. Subcommands have AKUNU_BENCH_SPEED_... and [bench.speed].
"""

import contextlib
import itertools
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from akunu_py.cli.command import OWN_WORDS, DraftOption, Setting, add_draft_options
from akunu_py.system.errors import ConfigError
from akunu_py.system.plug_ins import without_laboratory
from akunu_py.system.settings import (
    FOLDERS_KEY,
    MODEL_KEY,
    MODEL_VARIABLE,
    OTHER_VARIABLES,
    Settings,
    nearest,
)

_KINDS: tuple[tuple[type[object], tuple[type, ...], str], ...] = (
    (click.types.BoolParamType, (bool,), "true or false"),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.FloatParamType, (int, float), "a number"),
)

_NUMBERS = (click.types.IntParamType, click.types.FloatParamType)

_PREFIX = "AKUNU_"

_SWITCHED = ("true", "false")

Words = tuple[str, ...]
"""A command's, such as ("bench", "speed"); none for `akunu` itself."""


class SourcedValue(NamedTuple):
    """A value and where it came from.

    `source` is a variable or a key of the file, such as "[chat] top-p"; empty for a default.
    """

    value: object
    source: str


class CommandSetting(NamedTuple):
    """A parameter of a command that the environment and the file can set."""

    command: Words
    key: str
    """Its name in the file: that of the long flag, or "model"."""
    parameter: click.Parameter

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names in the environment, the first that is set counts."""
        keys = ("_".join((*self.command, self.key)), self.key)
        names = [(_PREFIX + key).replace("-", "_").upper() for key in keys]
        # AKUNU_CACHE_DIR is akunu's own folder, not `serve --cache-dir`.
        return tuple(name for name in dict.fromkeys(names) if name not in OTHER_VARIABLES)

    def sourced_value(self, settings: Settings) -> SourcedValue:
        """Return what holds where no flag is given; raises ConfigError as `from_file` does."""
        for name in self.variables:
            if text := os.environ.get(name):
                return SourcedValue(text, name)
        found = self.from_file(settings)
        if found is not None:
            return found
        # Where click has no default it has a marker of its own in its place.
        default = self.parameter.to_info_dict().get("default")
        return SourcedValue(default() if callable(default) else default, "")

    def from_file(self, settings: Settings) -> SourcedValue | None:
        """Return what the file says, a command's table before the top; None for nothing.

        Raises ConfigError for a value of a wrong type.
        """
        found = None
        table: object = settings.values
        for depth in range(len(self.command) + 1):
            if not isinstance(table, Mapping):
                break
            value = table.get(self.key)
            # At the top a command may be called like an option.
            if value is not None and not isinstance(value, Mapping):
                found = SourcedValue(value, place_of(self.command[:depth], self.key))
            table = table.get(self.command[depth]) if depth < len(self.command) else None
        if found is None:
            return None
        value = self.checked(found.value, f"{settings.path}: {found.source}")
        return SourcedValue(value, found.source)

    def checked(self, value: object, place: str) -> object:
        """Return a value of the file as click takes it; raises ConfigError where it does not."""
        if not getattr(self.parameter, "multiple", False):
            self._check(value, place)
            return value
        items = value if isinstance(value, list) else [value]
        for item in items:
            self._check(item, place)
        return items

    def _check(self, value: object, place: str) -> None:
        types, wanted = next(
            (entry[1:] for entry in _KINDS if isinstance(self.parameter.type, entry[0])),
            ((str,), "a text"),
        )
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            raise ConfigError(f"{place} is {shown}; give {wanted}")
        try:
            self.parameter.type.convert(value, self.parameter, None)
            self._check_range(value, place)
        except click.BadParameter as error:
            raise ConfigError(f"{place}: {error.message}") from None
        except ConfigError:
            raise
        except ValueError as error:
            # A path with a zero byte, which no other place can give.
            raise ConfigError(f"{place} is {value!r}: {error}") from None

    def _check_range(self, value: object, place: str) -> None:
        """Check a value of the right type: numbers of other commands have a reply's ranges."""
        check = getattr(self.parameter, "check", None)
        if check is None and type(self.parameter.type) in _NUMBERS:
            # Not for --help.
            from akunu_py.values.generation_config import GenerationConfig
            from akunu_py.values.option_fields import find_option, options_of

            declared = find_option(options_of(GenerationConfig), self.key)
            check = None if declared is None else declared.kind.check
        if check is not None:
            check(place, value)

    def typed_value(self, text: str) -> object:
        """Return a text as the type that it has in the file; as text where it has none.

        What can only be a path, and what exists, becomes absolute: the file holds in every folder.
        """
        kind = self.parameter.type
        is_path = text.startswith(("./", "../", "~")) or (text and os.path.lexists(text))
        if isinstance(kind, click.Path) and is_path:
            return absolute(text)
        if isinstance(kind, tuple(entry[0] for entry in _KINDS)):
            with contextlib.suppress(click.BadParameter):
                value: object = kind.convert(text, self.parameter, None)
                return value
        return text


def place_of(path: Words, key: str) -> str:
    """Return how a key of a table is shown."""
    return f"[{'.'.join(path)}] {key}" if path else key


def absolute(text: str) -> str:
    """Return a path as it is from every folder."""
    return str(Path(text).expanduser().absolute())


def settings_of(command: click.Command, path: Words) -> list[CommandSetting]:
    """Return what can be set of a command, in the order of its parameters."""
    found = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            longest = [name[2:] for name in parameter.opts if name.startswith("--")]
            # --model says the same as the argument, which is set below.
            if longest and not parameter.is_eager and longest[0] != MODEL_KEY:
                found.append(CommandSetting(path, longest[0], parameter))
        elif isinstance(parameter, Setting):
            found.append(CommandSetting(path, parameter.key, parameter))
        elif parameter.name == MODEL_KEY and not parameter.required:
            found.append(CommandSetting(path, MODEL_KEY, parameter))
    return found


def find_setting(context: click.Context, option: str) -> str | None:
    """Return how to set what was typed as an option and is a setting; None if it is none."""
    key = option.removeprefix("--")
    found = (one for one in settings_of(context.command, ()) if isinstance(one.parameter, Setting))
    one = next((one for one in found if key in (one.key, f"no-{one.key}")), None)
    if one is None:
        return None
    words = (*context.meta[OWN_WORDS], "")
    typed = next(
        (
            word.partition("=")[2] or following
            for word, following in itertools.pairwise(words)
            if word.partition("=")[0] == option
        ),
        "",
    )
    value = shlex.quote(typed) if typed else "VALUE"
    if isinstance(one.parameter.type, click.types.BoolParamType) and value not in _SWITCHED:
        value = "true" if key == one.key else "false"
    return (
        f"{option} is a setting: type akunu config set {one.key} {value}, or put "
        f"{one.variables[-1]}={value} before the command"
    )


def leaves(
    command: click.Command, context: click.Context, path: Words = ()
) -> Iterator[tuple[Words, click.Command]]:
    """Yield every command below a group, or the command itself, with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None:
            yield from leaves(found, context, (*path, name))


def settings_below(
    command: click.Command, context: click.Context, path: Words = ()
) -> Iterator[CommandSetting]:
    """Yield what can be set of a command and of those below it, which are imported one by one.

    Behind those of akunu's own commands come the options that drafters and verifiers declare, which
    the commands have from then on, and those of other packages' commands.
    """
    if isinstance(command, click.Group):
        yield from settings_of(command, path)
    for turn in range(3):
        if turn == 1 and not context.resilient_parsing:
            for _, leaf in leaves(command, context, path):
                add_draft_options(leaf)
        for words, leaf in leaves(command, context, path):
            others = (
                0 if str(getattr(leaf.callback, "__module__", "")).startswith("akunu_py.") else 2
            )
            for one in settings_of(leaf, words):
                if turn == (1 if isinstance(one.parameter, DraftOption) else others):
                    yield one


def bind_variables(command: click.Command, path: Words) -> None:
    """Let a command's parameters be set by their variables."""
    for setting in settings_of(command, path):
        setting.parameter.envvar = list(setting.variables)


def defaults(settings: Settings, command: click.Command, path: Words) -> dict[str, Any]:
    """Return click's default map of a command that is not a group."""
    found = {one.parameter.name: one.from_file(settings) for one in settings_of(command, path)}
    return {name: one.value for name, one in found.items() if name is not None and one is not None}


def check_settings(settings: Settings, context: click.Context) -> None:
    """Raise ConfigError for a key or table that nothing has, and for values of a wrong type.

    Commands are imported only where the file has a table of them, or a key that no command before
    them has.
    """
    root = context.find_root()
    _check_table(settings, root.command, root, (), settings.values)


def _check_table(
    settings: Settings,
    command: click.Command,
    context: click.Context,
    path: Words,
    table: Mapping[str, object],
) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping) and isinstance(command, click.Group):
            names = command.list_commands(context)
            below = command.get_command(context, key) if key in names else None
            if below is None:
                raise ConfigError(
                    f"{settings.path}: there is no command for the table "
                    f"[{'.'.join((*path, key))}].{nearest(key, names)}"
                )
            _check_table(settings, below, context, (*path, key), value)
        elif path or key not in (MODEL_KEY, FOLDERS_KEY):
            is_group = isinstance(command, click.Group)
            owner = "any command" if is_group else f"akunu {' '.join(path)}"
            place = f"{settings.path}: {place_of(path, key)}"
            _check_key(settings_below(command, context, path), key, value, place, owner)


def _check_key(
    settings: Iterator[CommandSetting], key: str, value: object, place: str, owner: str
) -> None:
    """Check a key of a table for the command, or all commands, it is for: it must fit one."""
    known = set()
    misfit: ConfigError | None = None
    for setting in settings:
        known.add(setting.key)
        if setting.key == key:
            try:
                setting.checked(value, place)
            except ConfigError as error:
                misfit = misfit or error
            else:
                return
    raise misfit or ConfigError(
        without_laboratory(f"{place} is not an option of {owner}.{nearest(key, known)}")
    )


def unknown_variables(context: click.Context, command: str | None = None) -> list[str]:
    """Return what is wrong with each AKUNU_ variable of the environment that sets nothing.

    Commands are imported until all variables are known, `command` first.
    """
    context = context.find_root()
    root = context.command
    assert isinstance(root, click.Group)  # noqa: S101
    known = {*OTHER_VARIABLES, MODEL_VARIABLE}
    unknown = {name for name in os.environ if name.startswith(_PREFIX)} - known
    first = None if command is None else root.get_command(context, command)
    own = [] if first is None else settings_below(first, context, (str(command),))
    for setting in itertools.chain(settings_of(root, ()), own, settings_below(root, context)):
        if not unknown - known:
            return []
        known.update(setting.variables)
    return [f"{name} sets nothing.{nearest(name, known)}" for name in sorted(unknown - known)]
