"""Options of a `GenerationConfig`, by name and as text: `/set` and `/show`."""

import ast
import dataclasses
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from akunu_py.cli.chat.tables import tables
from akunu_py.cli.declared_options import is_offered
from akunu_py.cli.form_options import FORMS
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import nearest
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import FIELDS, GenerationConfig, SamplingConfig
from akunu_py.values.option_fields import (
    Biases,
    Choice,
    Count,
    DeclaredOption,
    Kind,
    Number,
    Switch,
    Texts,
    find_option,
    options_of,
)

CHAT_DEFAULT = GenerationConfig(stop_loops=True)
"""What `akunu chat` begins with."""
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_QUOTED = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""

_OPTIONS = {
    declared.name: declared
    for declared in options_of(GenerationConfig)
    # The others are for programs.
    if declared.name in {"constraint", "penalty_window"} or is_offered(declared)
}
_TEMPERATURE, *_CHANGES = (declared.name for declared in options_of(SamplingConfig))
_GROUPS: Mapping[str, Sequence[str]] = {
    "Sampling": (_TEMPERATURE, "seed", *_CHANGES),
    "End of a reply": ("max_tokens", "stop", "stop_loops"),
    "Reasoning and form of a reply": ("thinking", "effort", "constraint"),
    "Drafting": ("drafter", "num_draft_tokens", "draft_budget"),
}
"""What `/set` shows with words; options that drafters declare are listed without."""
_LEFT_OUT: Mapping[str, str] = {
    "seed": "random",
    "logit_bias": "none",
    "max_tokens": "no limit",
    "stop": "none",
    "thinking": "auto",
    "effort": "auto",
    "constraint": "none",
}
"""What fields are in a reply that leaves them out; those of a drafter are known with the model."""

_WANTED: Mapping[type[Kind[Any]], str] = {
    Number: "a number",
    Count: "a whole number",
    Switch: "on or off",
    Biases: "token ids and numbers, as in 42=-1.5,7=2",
}


def settable() -> dict[str, DeclaredOption]:
    """Return what `/set` takes, by name; options that drafters and verifiers declare come last."""
    from akunu_py.drafting.registry import draft_options  # numpy, for --help

    return {**_OPTIONS, **draft_options()}


def _declared(name: str) -> DeclaredOption:
    return _OPTIONS.get(name) or settable()[name]


def names() -> tuple[str, ...]:
    """Return the names that `/set` takes: a kind of constraint sets the constraint."""
    return (*settable(), *FORMS)


def with_field(config: GenerationConfig, name: str, text: str) -> GenerationConfig:
    """Return a config with one option set from text; "default" is the option's default.

    Raises ConfigError for an unknown name, or a value that does not fit it or the other options.
    """
    from akunu_py.drafting.registry import check_drafting  # numpy, for --help

    field = field_named(name)
    default = text == "default" or (field == "constraint" and text == "off")
    if default and field not in FIELDS:
        left = {name: value for name, value in config.draft_options.items() if name != field}
        changed = dataclasses.replace(config, draft_options=left)
    else:
        value: Any = getattr(CHAT_DEFAULT, field) if default else _value(name, field, text)
        changed = config.with_values({field: value})
    check_drafting(changed)
    return changed


def overview(
    values: Mapping[str, str],
    display: Iterable[tuple[str, str, str]],
    width: int | None,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the settings in groups: names, values and their effects, in a few words.

    `values` are those of the options, as text; `display` has rows of settings of the chat itself.
    `sources` has the source of each value that is not a default.
    """
    rows = {
        title: [(name, values[name], _OPTIONS[name].words) for name in names]
        for title, names in _GROUPS.items()
    }
    rows["Display"] = list(display)
    groups = {
        title: [
            (name, value, words + _in_brackets(sources.get(name, "")))
            for name, value, words in group
        ]
        for title, group in rows.items()
    }
    own = {
        name: value + _in_brackets(sources.get(name, ""))
        for name, value in values.items()
        if name not in FIELDS
    }
    parts = [
        tables(groups, width),
        "Of drafters by name (docs/drafting.md)",
        textwrap.indent(listing(own, width and width - 2), "  "),
        *(["In brackets: where a value comes from."] if sources else []),
        "/set NAME explains one, /set NAME VALUE changes it, /set NAME default resets it.",
    ]
    return "\n".join(parts)


def explain(value: str, name: str, source: str = "") -> str:
    """Return an option's value, given as text, its source, what it does and the values it takes.

    Raises ConfigError for an unknown name.
    """
    field = field_named(name)
    declared = _declared(field)
    wanted = getattr(declared.kind, "wanted", "") or _WANTED.get(type(declared.kind), "")
    if isinstance(declared.kind, Choice):
        wanted = " or ".join(declared.kind.names)
    values = f" Give {wanted.removeprefix('give ')}." if wanted else ""
    return f"{field} {value}{_in_brackets(source)}: {declared.help}{values}"


def _in_brackets(source: str) -> str:
    return f" ({source})" if source else ""


def listing(values: Mapping[str, str], width: int | None) -> str:
    """Return names with their values, in as many columns as a width holds; None holds one."""
    entries = [f"{name} {value}" for name, value in values.items()]
    column = max(map(len, entries)) + 2
    columns = 1 if width is None else max(1, (width + 2) // column)
    rows = -(-len(entries) // columns)
    lines = ("".join(entry.ljust(column) for entry in entries[row::rows]) for row in range(rows))
    return "\n".join(line.rstrip() for line in lines)


def changed_fields(config: GenerationConfig) -> dict[str, str]:
    """Return the options that are not at their defaults, with their values as text."""
    return {
        name: shown(config, name)
        for name, declared in settable().items()
        if config.value_of(declared) != CHAT_DEFAULT.value_of(declared)
    }


def shown(config: GenerationConfig, name: str) -> str:
    """Return an option's value as text that `with_field` takes, or what it is when left out."""
    value = config.value_of(_declared(name))
    if value is None or value in ((), {}):
        return _LEFT_OUT.get(name, "auto")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Constraint):
        return f"{value.kind} {value.source:.60}"
    if isinstance(value, tuple):
        return " | ".join(map(repr, value))
    if isinstance(value, dict):
        return ",".join(f"{token}={bias:g}" for token, bias in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_named(name: str) -> str:
    """Return the option that a name, or another program's name for it, means."""
    if name.replace("-", "_") in FORMS:
        return "constraint"
    declared = find_option(_OPTIONS.values(), name) or find_option(settable().values(), name)
    if declared is None:
        raise ConfigError(
            f"there is no setting named {name}.{nearest(name, names())} /set lists them; `akunu "
            "chat --help` has what is set at the start"
        )
    return declared.name


def _value(typed: str, name: str, text: str) -> object:
    form = typed.replace("-", "_")
    if form in FORMS:
        return FORMS[form](_choices(text) if form == "choices" else text)
    kind = _declared(name).kind
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


def _choices(text: str) -> list[str]:
    return [choice.strip() for choice in text.split("|")]


def _texts(text: str) -> tuple[str, ...]:
    """Return one text as it stands, or those in quotes, as `shown` writes them."""
    if re.fullmatch(rf"{_QUOTED}(?:\s*\|\s*{_QUOTED})*", text) is None:
        return (text,)
    return tuple(ast.literal_eval(quoted) for quoted in re.findall(_QUOTED, text))
