"""A settings file with one key changed, comments and order kept."""

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import tomlkit

from akunu_py.cli.command_settings import CommandSetting, absolute
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import FOLDERS_KEY


def with_key(
    content: bytes, key: str, values: Sequence[str] | None, settings: Iterable[CommandSetting]
) -> bytes:
    """Return the content of a settings file with KEY, such as "chat.system", set to values.

    Without values the key is deleted. `content` is TOML that akunu can read; `settings` are those
    of all commands, which say what type a value has. A value that is none of its type stays text:
    the check of the file explains it. Raises ConfigError.
    """
    document = tomlkit.parse(content.decode("utf-8-sig"))
    *path, name = key.replace("_", "-").split(".")
    table: MutableMapping[str, Any] = document
    for depth, word in enumerate(path, start=1):
        written = _written(table, word)
        if written not in table:
            if values is None:
                raise ConfigError(f"{key} is not set")
            table[written] = tomlkit.table(is_super_table=depth < len(path))
        table = table[written]
        if not isinstance(table, MutableMapping):
            raise ConfigError(f"{'.'.join(path[:depth])} is a value, not a command's table")
    name = _written(table, name)
    if isinstance(table.get(name), MutableMapping):
        raise ConfigError(f"{key} is a command's table; name an option, as in {key}.seed")
    if values is not None:
        of_key = [
            one
            for one in settings
            if one.key == name.replace("_", "-") and one.command[: len(path)] == tuple(path)
        ]
        table[name] = _value(key, values, of_key)
    elif name in table:
        del table[name]
    else:
        raise ConfigError(f"{key} is not set")
    return tomlkit.dumps(document).encode()


def _written(table: MutableMapping[str, Any], word: str) -> str:
    """Return a key as the file has it: with underscores, perhaps."""
    return next((name for name in table if name.replace("_", "-") == word), word)


def _value(key: str, values: Sequence[str], settings: Sequence[CommandSetting]) -> object:
    is_list = key.replace("_", "-") == FOLDERS_KEY
    repeatable = any(getattr(one.parameter, "multiple", False) for one in settings)
    if len(values) > 1 and not is_list and not repeatable:
        raise ConfigError(f"{key} takes one value; put quotes around a text with spaces")
    if is_list:
        return [absolute(value) for value in values]
    typed = [settings[0].typed_value(value) if settings else value for value in values]
    return typed if len(typed) > 1 else typed[0]
