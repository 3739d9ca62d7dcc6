"""Names that a user gives to models, kept in aliases.toml beside the settings file."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file
from akunu_py.system.settings import config_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_RESERVED_SUFFIX = ".gguf"
_MOST_BYTES = 2**20
_MOST_TARGET = 4096
_TABLE = "aliases"


def aliases_path() -> Path:
    """Return where aliases are kept; the file need not exist."""
    return config_path().with_name("aliases.toml")


def is_alias_name(name: str) -> bool:
    """Return whether a name can be an alias: not a path, a name on the hub or a model file."""
    return (
        _NAME.fullmatch(name) is not None
        and not name.startswith("hf:")
        and not name.casefold().endswith(_RESERVED_SUFFIX)
    )


def load_aliases() -> dict[str, str]:
    """Return the target of each alias.

    Raises ConfigError for a file that cannot be read or has other content.
    """
    path = aliases_path()
    if _are_off():
        return {}
    try:
        with open_to_read(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
        found = tomllib.loads(content[:_MOST_BYTES].decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}; correct or delete it") from None
    aliases = found.get(_TABLE, {})
    if set(found) - {_TABLE} or not isinstance(aliases, dict) or len(content) > _MOST_BYTES:
        raise ConfigError(f"{path} has more than a table [{_TABLE}]; correct or delete it")
    for name, target in aliases.items():
        if not is_alias_name(name) or not isinstance(target, str) or not _is_target(target):
            raise ConfigError(
                f"{path}: {name!r} = {target!r} is not an alias; correct or delete it"
            )
    return aliases


def save_alias(name: str, target: str) -> None:
    """Let a name stand for a model, replacing an earlier alias of that name.

    Raises ConfigError for an invalid name or target, or a file that cannot be written.
    """
    if not is_alias_name(name):
        raise ConfigError(
            f"{name!r} cannot be an alias: give up to 64 letters, digits and . _ : -, not "
            f"beginning with hf: or ending in {_RESERVED_SUFFIX}"
        )
    if not _is_target(target):
        raise ConfigError(f"an alias cannot stand for {target!r}; give a path or hf:OWNER/REPO")
    _write(load_aliases() | {name: target})


def delete_alias(name: str) -> None:
    """Delete an alias.

    Raises ConfigError for an unknown alias, or a file that cannot be written.
    """
    aliases = load_aliases()
    if name not in aliases:
        raise ConfigError(f"there is no alias named {name}; `akunu models alias` lists them")
    del aliases[name]
    _write(aliases)


def _is_target(target: str) -> bool:
    # TOML allows no control characters in a text, and UTF-8 no lone surrogates.
    return 0 < len(target) <= _MOST_TARGET and target.isprintable()


def _are_off() -> bool:
    # Whatever lies beside the null device is not the user's.
    return str(config_path()) == os.devnull


def _write(aliases: Mapping[str, str]) -> None:
    path = aliases_path()
    if _are_off():
        raise ConfigError("settings are switched off (AKUNU_CONFIG), and aliases with them")
    # A JSON string without control characters is also a TOML string.
    lines = (
        f"{json.dumps(name)} = {json.dumps(aliases[name], ensure_ascii=False)}\n"
        for name in sorted(aliases)
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, f"[{_TABLE}]\n{''.join(lines)}".encode(), private=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
