"""Fields of a `GenerationConfig` by name and as text: `/set` and `/show`."""

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from akunu_py.errors import ConfigError
from akunu_py.generation_config import GenerationConfig
from akunu_py.option_fields import (
    Biases,
    Count,
    Kind,
    Number,
    Switch,
    Texts,
    option_named,
    options_of,
)
from akunu_py.settings import nearest

CHAT_DEFAULT = GenerationConfig(stop_loops=True)
"""What `akunu chat` begins with."""
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_QUOTED = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""

_KINDS = {declared.name: declared.kind for declared in options_of(GenerationConfig)}
_WANTED: Mapping[type[Kind[Any]], str] = {
    Number: "a number",
    Count: "a whole number",
    Switch: "on or off",
    Biases: "token ids and numbers, as in 42=-1.5,7=2",
}

FIELDS = tuple(_KINDS)
"""Names that `/set` takes."""


def with_field(config: GenerationConfig, name: str, text: str) -> GenerationConfig:
    """Return a config with one field set from text; "default" is the field's default.

    Raises ConfigError for an unknown name, or a value that does not fit it or the other fields.
    """
    from akunu_py.drafting.registry import check_drafter  # noqa: PLC0415 - numpy, for --help

    field = field_named(name)
    value: Any = getattr(CHAT_DEFAULT, field) if text == "default" else _value(field, text)
    changed = dataclasses.replace(config, **{field: value})
    if changed.drafter is not None:
        check_drafter(changed.drafter, num_draft_tokens=changed.num_draft_tokens, config=changed)
    return changed


def listing(values: Mapping[str, str], width: int | None) -> str:
    """Return names with their values, in as many columns as a width holds; None holds one."""
    entries = [f"{name} {value}" for name, value in values.items()]
    column = max(map(len, entries)) + 2
    columns = 1 if width is None else max(1, (width + 2) // column)
    rows = -(-len(entries) // columns)
    lines = ("".join(entry.ljust(column) for entry in entries[row::rows]) for row in range(rows))
    return "\n".join(line.rstrip() for line in lines)


def all_fields(config: GenerationConfig) -> dict[str, str]:
    """Return every field with its value as text."""
    return {name: shown(config, name) for name in FIELDS}


def changed_fields(config: GenerationConfig) -> dict[str, str]:
    """Return the fields that are not at their defaults, with their values as text."""
    return {
        name: shown(config, name)
        for name in FIELDS
        if getattr(config, name) != getattr(CHAT_DEFAULT, name)
    }


def shown(config: GenerationConfig, name: str) -> str:
    """Return a field's value as text that `with_field` takes, or "default"."""
    value = getattr(config, name)
    if value is None or value in ((), {}):
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " | ".join(map(repr, value))
    if isinstance(value, dict):
        return ",".join(f"{token}={bias:g}" for token, bias in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_named(name: str) -> str:
    """Return the field that a name, or another program's name for it, means."""
    declared = option_named(options_of(GenerationConfig), name)
    if declared is None:
        raise ConfigError(
            f"there is no setting {name}.{nearest(name, FIELDS)} /set lists them; `akunu chat "
            "--help` has what is set at the start"
        )
    return declared.name


def _value(name: str, text: str) -> object:
    kind = _KINDS[name]
    try:
        match kind:
            case Number():
                return float(text)
            case Count():
                return int(text)
            case Switch():
                return _WORDS[text.lower()]
            case Texts():
                return _texts(text)
            case Biases():
                pairs = (entry.partition("=") for entry in text.split(","))
                return {int(token): float(bias) for token, _, bias in pairs}
    except (ValueError, KeyError):
        raise ConfigError(f"{name} is {text!r}; give {_WANTED[type(kind)]}") from None
    return text


def _texts(text: str) -> tuple[str, ...]:
    """Return one text as it stands, or those in quotes, as `shown` writes them."""
    if re.fullmatch(rf"{_QUOTED}(?:\s*\|\s*{_QUOTED})*", text) is None:
        return (text,)
    return tuple(ast.literal_eval(quoted) for quoted in re.findall(_QUOTED, text))
