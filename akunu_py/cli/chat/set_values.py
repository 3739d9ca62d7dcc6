"""Fields of a `GenerationConfig` by name and as text: `/set` and `/show`."""

import ast
import dataclasses
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from akunu_py.cli.chat.tables import tables
from akunu_py.cli.form_options import FORMS
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import nearest
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import DRAFTING_FIELDS, GenerationConfig, SamplingConfig
from akunu_py.values.option_fields import (
    Biases,
    Choice,
    Count,
    Functions,
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
    if declared.name not in {"logprobs", "template_variables", "min_tokens", "ignore_eos"}
    and not isinstance(declared.kind, Functions)
}
_TEMPERATURE, *_CHANGES = (declared.name for declared in options_of(SamplingConfig))
_GROUPS: Mapping[str, Sequence[str]] = {
    "Sampling": (_TEMPERATURE, "seed", *_CHANGES),
    "End of a reply": ("max_tokens", "stop", "stop_loops"),
    "Reasoning and form of a reply": ("thinking", "effort", "constraint"),
    "Drafting": ("drafter", "num_draft_tokens", "draft_budget"),
}
"""What `/set` shows with words; the fields for experiments are listed without."""
_LEFT_OUT: Mapping[str, str] = {
    "seed": "random",
    "logit_bias": "none",
    "max_tokens": "no limit",
    "stop": "none",
    "thinking": "auto",
    "effort": "auto",
    "constraint": "none",
    "min_draft_tokens": "1",
    "draft_length_beta": "0",
    "draft_length_bound": "0.4",
    "ngram_order": "4",
    "ngram_window": "512",
    "ngram_min_match": "1",
}
"""What fields are in a reply that leaves them out; those of a drafter are known with the model."""

_WANTED: Mapping[type[Kind[Any]], str] = {
    Number: "a number",
    Count: "a whole number",
    Switch: "on or off",
    Biases: "token ids and numbers, as in 42=-1.5,7=2",
}

FIELDS = tuple(_OPTIONS)
"""Fields that `/set` takes."""

NAMES = (*FIELDS, *FORMS)
"""Names that `/set` takes: a kind of constraint sets the constraint."""


def with_field(config: GenerationConfig, name: str, text: str) -> GenerationConfig:
    """Return a config with one field set from text; "default" is the field's default.

    Raises ConfigError for an unknown name, or a value that does not fit it or the other fields.
    """
    from akunu_py.drafting.registry import check_drafter  # numpy, for --help

    field = field_named(name)
    default = text == "default" or (field == "constraint" and text == "off")
    value: Any = getattr(CHAT_DEFAULT, field) if default else _value(name, field, text)
    changed = dataclasses.replace(config, **{field: value})
    if changed.drafter is not None:
        check_drafter(changed.drafter, num_draft_tokens=changed.num_draft_tokens, config=changed)
    return changed


def overview(
    values: Mapping[str, str],
    display: Iterable[tuple[str, str, str]],
    width: int | None,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return what can be set, in groups: names, values and what they do, in a few words.

    `values` are those of the fields, as text; `display` has rows of settings of the chat itself.
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
    study = {name: values[name] + _in_brackets(sources.get(name, "")) for name in DRAFTING_FIELDS}
    parts = [
        tables(groups, width),
        "For study (docs/methods.md)",
        textwrap.indent(listing(study, width and width - 2), "  "),
        *(["In brackets: where a value comes from."] if sources else []),
        "/set NAME explains one, /set NAME VALUE changes it, /set NAME default resets it.",
    ]
    return "\n".join(parts)


def explain(value: str, name: str, source: str = "") -> str:
    """Return a field's value, given as text, its source, what it does and which values it takes.

    Raises ConfigError for an unknown name.
    """
    field = field_named(name)
    declared = _OPTIONS[field]
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
    """Return the fields that are not at their defaults, with their values as text."""
    return {
        name: shown(config, name)
        for name in FIELDS
        if getattr(config, name) != getattr(CHAT_DEFAULT, name)
    }


def shown(config: GenerationConfig, name: str) -> str:
    """Return a field's value as text that `with_field` takes, or what it is when left out."""
    value = getattr(config, name)
    if value is None or value in ((), {}):
        return _LEFT_OUT.get(name, "default")
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
    """Return the field that a name, or another program's name for it, means."""
    if name.replace("-", "_") in FORMS:
        return "constraint"
    declared = find_option(_OPTIONS.values(), name)
    if declared is None:
        raise ConfigError(
            f"there is no setting named {name}.{nearest(name, NAMES)} /set lists them; `akunu chat "
            "--help` has what is set at the start"
        )
    return declared.name


def _value(typed: str, name: str, text: str) -> object:
    form = typed.replace("-", "_")
    if form in FORMS:
        return FORMS[form](_choices(text) if form == "choices" else text)
    kind = _OPTIONS[name].kind
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
