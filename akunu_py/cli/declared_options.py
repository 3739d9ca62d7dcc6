"""Options that are declared as fields: as parameters of commands, and in messages."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import click

from akunu_py.cli.command import DraftOption, GroupedOption, Setting, typed_name
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.option_fields import (
    Biases,
    Choice,
    Count,
    DeclaredOption,
    Functions,
    Number,
    Switch,
    Texts,
    options_of,
)

_FOR_PROGRAMS = frozenset({
    "constraint", "draft_options", "ignore_eos", "logprobs", "min_tokens", "template_variables",
    "wired",
})  # fmt: skip
_WORDS = ("regex", "grammar", "choices", "streams")
"""Names of one word of options that are not declared; messages begin with them."""


def is_offered(declared: DeclaredOption) -> bool:
    """Return whether commands have an option: a chat alone sets the window of penalties."""
    return (
        declared.name not in {*_FOR_PROGRAMS, "penalty_window"}
        and not isinstance(declared.kind, Functions)
    )  # fmt: skip


def spellings(declared: DeclaredOption) -> tuple[str, ...]:
    """Return an option's flags, or what the settings file calls it."""
    name = declared.name.replace("_", "-")
    if declared.setting:
        return (name,)
    if isinstance(declared.kind, Switch):
        # What is off already needs no flag for it.
        return (f"--{name}",) if declared.default is False else (f"--{name}/--no-{name}",)
    return (*(f"-{letter}" for letter in declared.also if len(letter) == 1), f"--{name}")


def names_of(*options: DeclaredOption) -> dict[str, str]:
    """Return the users' name of each option, by name."""
    return {one.name: spellings(one)[-1].partition("/")[0] for one in options}


_NAMES = names_of(
    *filter(is_offered, (*options_of(GenerationConfig), *options_of(EngineOptions)))
)  # fmt: skip


def in_flags(text: str, others: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a text that names options, such as `top_p`, with their flags as they were typed.

    `others` are flags of further options. A name of one word is one where the text begins with it:
    elsewhere it may be a word of English.
    """
    flags = {**_NAMES, **others}
    if (context := click.get_current_context(silent=True)) is not None:
        flags |= {
            str(parameter.name): typed_name(parameter, context)
            for parameter in context.command.params
            if isinstance(parameter, click.Option)
            and (
                parameter.name in {*flags, *_WORDS}
                or "_" in str(parameter.name)
                or isinstance(parameter, DraftOption)
            )
        }
    names = "|".join(name for name in flags if "_" in name)
    found = rf"""(?<![\w'"/.-])({names})(?![\w'"/])|^({"|".join(flags)})(?=[ :])"""
    return re.sub(found, lambda match: flags[match[0]], text)


@contextlib.contextmanager
def naming_flags() -> Iterator[None]:
    """Have messages of a ConfigError name options by their flags."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(in_flags(error.message), choices=error.choices) from error


def biases_of(*entries: str) -> dict[int, float]:
    """Return biases by token from texts such as 42=-1.5; raises UsageError."""
    found = {}
    for entry in entries:
        token, _, bias = entry.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError:
            raise click.UsageError(
                f"logit-bias is {entry!r}; give a token id and a number, as in 42=-1.5"
            ) from None
    return found


def declared_option(
    declared: DeclaredOption, others: Mapping[str, str] = MappingProxyType({}), **own: Any
) -> Callable[..., Any]:
    """Return the decorator that adds an option to a command; `own` replaces what click is told.

    `others` are as for `in_flags`.
    """
    attributes: dict[str, Any] = {
        "default": declared.default,
        "help": in_flags(declared.help, others),
        "metavar": declared.metavar or None,
        "check": declared.kind.check,
    }
    match declared.kind:
        case Choice(names):
            texts = all(isinstance(name, str) for name in names)
            attributes["type"] = click.Choice(names) if texts else int
        case Number():
            attributes["type"] = float
        case Count():
            attributes["type"] = int
        case Switch():
            attributes |= {"type": bool} if declared.setting else {"is_flag": True}
        case Texts() | Biases():
            several = f"{attributes['help'].removesuffix('.')}; repeatable."
            attributes |= {"multiple": True, "default": None, "help": several}
            one = biases_of if isinstance(declared.kind, Biases) else lambda *texts: texts
            attributes["check"] = lambda name, item: declared.kind.check(name, one(item))
    kind: Any = own.pop("cls", Setting if declared.setting else GroupedOption)
    if kind is not Setting:
        attributes |= {
            "group": declared.heading,
            "rare": declared.rare,
            "also": tuple(f"--{x.replace('_', '-')}" for x in declared.also if len(x) > 1),
        }
        names = (*spellings(declared), declared.name)
    else:
        names = (declared.name,)
    return click.option(*names, cls=kind, **{**attributes, **own})
