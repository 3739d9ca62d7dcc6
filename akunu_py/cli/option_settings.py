"""Options from the environment and from the settings file: names, checks, and what applies where.

A command's option `--top-p` is set by the flag; else by AKUNU_GENERATE_TOP_P, else AKUNU_TOP_P;
else by `top-p` in the file's table [generate], else by `top-p` before the first table; else by its
default. Subcommands have AKUNU_BENCH_SPEED_... and [bench.speed].
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from akunu_py.system.errors import ConfigError
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

_PREFIX = "AKUNU_"

Words = tuple[str, ...]
"""A command's, such as ("bench", "speed"); none for `akunu` itself."""


class Setting(NamedTuple):
    """A parameter of a command that the environment and the file can set.

    Attributes:
        command: the command's words.
        key: its name in the file: that of the long flag, or "model".
        parameter: click's.

    """

    command: Words
    key: str
    parameter: click.Parameter

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names in the environment, the first that is set counts."""
        keys = ("_".join((*self.command, self.key)), self.key)
        names = [(_PREFIX + key).replace("-", "_").upper() for key in keys]
        # AKUNU_CACHE_DIR is akunu's own folder, not `serve --cache-dir`.
        return tuple(name for name in dict.fromkeys(names) if name not in OTHER_VARIABLES)


class Origin(NamedTuple):
    """A value and where it came from.

    `source` is a variable or a key of the file, such as "[chat] top-p"; empty for a default.
    """

    value: object
    source: str


def settings_of(command: click.Command, path: Words) -> list[Setting]:
    """Return what can be set of a command, in the order of its parameters."""
    found = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            longest = [name[2:] for name in parameter.opts if name.startswith("--")]
            # --model says the same as the argument, which is set below.
            if longest and not parameter.is_eager and longest[0] != MODEL_KEY:
                found.append(Setting(path, longest[0], parameter))
        elif parameter.name == MODEL_KEY and not parameter.required:
            found.append(Setting(path, MODEL_KEY, parameter))
    return found


def bind_variables(command: click.Command, path: Words) -> None:
    """Let a command's parameters be set by their variables."""
    for setting in settings_of(command, path):
        setting.parameter.envvar = list(setting.variables)


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


def from_file(settings: Settings, setting: Setting) -> Origin | None:
    """Return what the file says of a parameter, its table before the top; None for nothing.

    Raises ConfigError for a value of a wrong type.
    """
    tables: list[tuple[str, Mapping[str, object]]] = [("", settings.values)]
    table: object = settings.values
    for depth, word in enumerate(setting.command, start=1):
        table = table.get(word) if isinstance(table, Mapping) else None
        if isinstance(table, Mapping):
            tables.append((f"[{'.'.join(setting.command[:depth])}] ", table))
    for name, values in reversed(tables):
        value = values.get(setting.key)
        # At the top a command may be called like an option.
        if value is not None and not isinstance(value, Mapping):
            place = f"{name}{setting.key}"
            return Origin(_checked(settings, setting, value, place), place)
    return None


def defaults(settings: Settings, command: click.Command, path: Words) -> dict[str, Any]:
    """Return click's default map of a command that is not a group."""
    result: dict[str, Any] = {}
    for setting in settings_of(command, path):
        origin = from_file(settings, setting)
        if origin is not None and setting.parameter.name is not None:
            result[setting.parameter.name] = origin.value
    return result


def check_settings(settings: Settings, root: click.Group, context: click.Context) -> None:
    """Raise ConfigError for a key or table that nothing has, and for values of a wrong type.

    Commands are imported only where the file has a table of them, or a key that no command before
    them has.
    """
    _check_table(settings, root, context, (), settings.values)


def unknown_variables(
    root: click.Group, context: click.Context, command: str | None = None
) -> list[str]:
    """Return what is wrong with each AKUNU_ variable of the environment that sets nothing.

    Commands are imported until all variables are known, `command` first.
    """
    names = {name for name in os.environ if name.startswith(_PREFIX)}
    unknown = names - OTHER_VARIABLES - {MODEL_VARIABLE}
    known: set[str] = {*OTHER_VARIABLES, MODEL_VARIABLE}
    own: list[tuple[Words, click.Command]] = [((), root)]
    if command is not None and (found := root.get_command(context, command)) is not None:
        own += leaves(found, context, (command,))
    for words, leaf in itertools.chain(own, leaves(root, context)):
        if not unknown - known:
            return []
        for setting in settings_of(leaf, words):
            known.update(setting.variables)
    return [f"{name} sets nothing.{nearest(name, known)}" for name in sorted(unknown - known)]


def _check_table(
    settings: Settings,
    group: click.Group,
    context: click.Context,
    path: Words,
    table: Mapping[str, object],
) -> None:
    commands = group.list_commands(context)
    for key, value in table.items():
        if isinstance(value, Mapping):
            command = group.get_command(context, key) if key in commands else None
            if command is None:
                raise ConfigError(
                    f"{settings.path}: there is no command for the table "
                    f"[{'.'.join((*path, key))}].{nearest(key, commands)}"
                )
            if isinstance(command, click.Group):
                _check_table(settings, command, context, (*path, key), value)
            else:
                _check_keys(settings, command, (*path, key), value)
        elif not path and key in (MODEL_KEY, FOLDERS_KEY):
            continue
        else:
            _check_shared(settings, group, context, path, (key, value))


def _check_keys(
    settings: Settings, command: click.Command, path: Words, table: Mapping[str, object]
) -> None:
    known = {setting.key: setting for setting in settings_of(command, path)}
    for key, value in table.items():
        place = f"[{'.'.join(path)}] {key}"
        if key not in known:
            raise ConfigError(
                f"{settings.path}: {place} is not an option of akunu {' '.join(path)}."
                f"{nearest(key, known)}"
            )
        _checked(settings, known[key], value, place)


def _check_shared(
    settings: Settings,
    group: click.Group,
    context: click.Context,
    path: Words,
    entry: tuple[str, object],
) -> None:
    """Check a key for the group and every command below it: it must fit one of them."""
    key, value = entry
    place = f"[{'.'.join(path)}] {key}" if path else key
    known: set[str] = set()
    misfit: ConfigError | None = None
    for words, command in itertools.chain([(path, group)], leaves(group, context, path)):
        for setting in settings_of(command, words):
            known.add(setting.key)
            if setting.key != key:
                continue
            try:
                _checked(settings, setting, value, place)
            except ConfigError as error:
                misfit = misfit or error
            else:
                return
    raise misfit or ConfigError(
        f"{settings.path}: {place} is not an option of any command.{nearest(key, known)}"
    )


def _checked(settings: Settings, setting: Setting, value: object, place: str) -> object:
    """Return a value of the file as click takes it; raises ConfigError where it does not fit."""
    parameter = setting.parameter
    if not isinstance(parameter, click.Option) or not parameter.multiple:
        return _one(settings, parameter, value, place)
    items = value if isinstance(value, list) else [value]
    return [_one(settings, parameter, item, place) for item in items]


def _one(settings: Settings, parameter: click.Parameter, value: object, place: str) -> object:
    types, wanted = next(
        ((types, words) for kind, types, words in _KINDS if isinstance(parameter.type, kind)),
        ((str,), "a text"),
    )
    fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not fits:
        raise ConfigError(f"{settings.path}: {place} is {_shown(value)}; give {wanted}")
    try:
        parameter.type.convert(value, parameter, None)
    except click.BadParameter as error:
        raise ConfigError(f"{settings.path}: {place}: {error.message}") from None
    except ValueError as error:
        # A path with a zero byte, which no other place can give.
        raise ConfigError(f"{settings.path}: {place} is {value!r}: {error}") from None
    return value


def typed_value(parameter: click.Parameter, text: str) -> object:
    """Return a text as the type that a parameter has in the file; as text where it has none.

    What can only be a path, and what exists, becomes absolute: the file holds in every folder.
    """
    is_path = text.startswith(("./", "../", "~")) or (text and os.path.lexists(text))
    if isinstance(parameter.type, click.Path) and is_path:
        return absolute(text)
    if isinstance(parameter.type, tuple(kind for kind, _, _ in _KINDS)):
        with contextlib.suppress(click.BadParameter):
            value: object = parameter.type.convert(text, parameter, None)
            return value
    return text


def absolute(text: str) -> str:
    """Return a path as it is from every folder."""
    return str(Path(text).expanduser().absolute())


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def from_environment(setting: Setting) -> Origin | None:
    """Return the text of the first of a parameter's variables that is set and not empty."""
    for name in setting.variables:
        value = os.environ.get(name)
        if value:
            return Origin(value, name)
    return None
