"""Options of how replies are made, and the configuration they make."""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from akunu_py.cli import completing
from akunu_py.cli.command import option, stack, typed_name
from akunu_py.cli.command_settings import settings_of
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_append
from akunu_py.system.settings import load_settings
from akunu_py.values.generation_config import DRAFTING_FIELDS, GenerationConfig, SamplingConfig
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

_P = ParamSpec("_P")
_R = TypeVar("_R")

DRAFTER_NAMES = (
    f"{', '.join(completing.DRAFTERS[:-1])}, another of docs/methods.md or of a package, or none"
)
"""What --drafter takes, for --help."""

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "penalty_window": (),
    "constraint": (),
    "logprobs": (),
    "template_variables": (),
    "min_tokens": (),
    "ignore_eos": (),
    "adjust_residual": ("--adjust/--no-adjust",),
}
"""Flags that do not follow from an option's name; none for an option that `/set` alone has."""

_HIGHEST_USUAL_TEMPERATURE = 2
_SAMPLING = {declared.name for declared in options_of(SamplingConfig)}

_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "stop_loops": {
        "default": lambda: click.get_current_context().command.name in {"chat", "generate"},
        "show_default": False,
    },
    "drafter": {
        "help": f"Draft with {DRAFTER_NAMES}; else auto.",
        "shell_complete": completing.drafters,
        "check": lambda _, name: _find_drafter(name),
    },
}
"""What click is told of an option beyond its declaration, or instead of it."""


def _find_drafter(name: str) -> None:
    from akunu_py.drafting.registry import kind_of  # numpy, for --help

    kind_of(name)


def _flags(declared: DeclaredOption) -> tuple[str, ...]:
    if isinstance(declared.kind, Functions):
        return ()
    if declared.name in _FLAGS:
        return _FLAGS[declared.name]
    name = declared.name.replace("_", "-")
    if isinstance(declared.kind, Switch):
        return (f"--{name}/--no-{name}",)
    return (*(f"-{letter}" for letter in declared.also if len(letter) == 1), f"--{name}")


def _hidden_flags(declared: DeclaredOption) -> tuple[str, ...]:
    """Return the flags of an option's other names."""
    return tuple(f"--{name.replace('_', '-')}" for name in declared.also if len(name) > 1)


_OFFERED = tuple(declared for declared in options_of(GenerationConfig) if _flags(declared))
_FLAG_OF = {declared.name: _flags(declared)[-1].partition("/")[0] for declared in _OFFERED}


def in_flags(text: str) -> str:
    """Return a text that names options, such as `top_p`, with their flags as they were typed.

    A name of one word is one where the text begins with it: elsewhere it may be a word of English.
    """
    flags = dict(_FLAG_OF)
    if (context := click.get_current_context(silent=True)) is not None:
        flags |= {
            parameter.name: typed_name(parameter, context)
            for parameter in context.command.params
            if isinstance(parameter, click.Option)
            and parameter.name is not None
            and (parameter.name in flags or "_" in parameter.name or parameter.name in _WORDS)
        }
    names = "|".join(name for name in flags if "_" in name)
    found = rf"""(?<![\w'"/.-])({names})(?![\w'"/])|^({"|".join(flags)})(?=[ :])"""
    return re.sub(found, lambda match: flags[match[0]], text)


_WORDS = ("context", "regex", "grammar", "choices", "streams")
"""Names of one word of options that are not a reply's; messages begin with them."""


def _biases(*entries: str) -> dict[int, float]:
    return dict(map(_parse_bias, entries))


def _parse_bias(entry: str) -> tuple[int, float]:
    token, _, bias = entry.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise click.UsageError(
            f"--logit-bias is {entry!r}; give a token id and a number, as in 42=-1.5"
        ) from None


def _click_option(declared: DeclaredOption) -> Callable[..., Any]:
    attributes: dict[str, Any] = {
        "default": declared.default,
        "help": in_flags(declared.help),
        "metavar": declared.metavar or None,
        "group": declared.heading,
        "rare": declared.rare,
        "also": _hidden_flags(declared),
        "check": declared.kind.check,
    }
    match declared.kind:
        case Choice(names):
            attributes["type"] = click.Choice(names)
        case Number():
            attributes["type"] = float
        case Count():
            attributes["type"] = int
        case Texts() | Biases():
            several = f"{attributes['help'].removesuffix('.')}; repeatable."
            attributes |= {"multiple": True, "default": None, "help": several}
            one = _biases if isinstance(declared.kind, Biases) else lambda *texts: texts
            attributes["check"] = lambda name, item: declared.kind.check(name, one(item))
    if declared.name in _SAMPLING:
        # Left out, the model's makers come before the default.
        attributes["show_default"] = declared.name == "temperature" and "the model's, else 0"
    attributes |= _ATTRIBUTES.get(declared.name, {})
    return option(*_flags(declared), declared.name, **attributes)


_GENERATION_OPTIONS = {declared.name: _click_option(declared) for declared in _OFFERED}
_DRAFTING_OPTIONS = {name: _GENERATION_OPTIONS[name] for name in DRAFTING_FIELDS}

_KEEPING_OPTIONS = (
    option(
        "--memory", type=GivenPath(path_type=Path, file_okay=False), metavar="FOLDER",
        group="Drafting", rare=True, help="Keep replies here, and draft from them in later runs.",
    ),
    option(
        "--trace-file", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
        group="Output", rare=True,
        callback=lambda _context, _option, path: _in_a_folder(path),
        help="Append prompt and reply to FILE, for akunu bench replay.",
    ),
)  # fmt: skip


def generation_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the sampling and drafting options; the command gets one `config` in their place.

    Messages of a ConfigError, here or in the command, name options by their flags.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        chosen = {name: options.pop(name) for name in _GENERATION_OPTIONS}
        with naming_flags():
            options["config"] = _config(chosen)
            warn_if_not_exact(options["config"])
            return function(*args, **options)

    return stack(_GENERATION_OPTIONS.values(), wrapped)


def drafting_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the options of how is drafted, but which drafter, how many tokens and by which budget.

    The command gets one `drafting` in their place: fields of a `GenerationConfig` by name. Messages
    are as with `generation_options`.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        options["drafting"] = {name: options.pop(name) for name in _DRAFTING_OPTIONS}
        with naming_flags():
            return function(*args, **options)

    return stack(_DRAFTING_OPTIONS.values(), wrapped)


def value_sources(context: click.Context) -> dict[str, str]:
    """Return the source of each reply option that is not at its default, by option.

    A source is the flag as it was typed, a variable, or a key of the settings file.
    """
    settings = load_settings()
    words = tuple(context.command_path.split()[1:])
    found = {}
    for one in settings_of(context.command, words):
        parameter = one.parameter
        if parameter.name in {*_GENERATION_OPTIONS, "reasoning"}:
            typed = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
            name = typed_name(parameter, context) if isinstance(parameter, click.Option) else ""
            found[parameter.name] = name if typed else one.sourced_value(settings).source
    return {name: source for name, source in found.items() if source}


@contextlib.contextmanager
def naming_flags() -> Iterator[None]:
    """Have messages of a ConfigError name options by their flags."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(in_flags(error.message), choices=error.choices) from error


def warn_if_not_exact(config: GenerationConfig) -> None:
    """Say on stderr where replies are not exact, unless it is to be quiet."""
    if config.exactness == "none" and not is_quiet():
        click.echo(
            "Warning: replies are not exact: what is drafted changes how likely they are.",
            err=True,
        )


def keeping_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--memory` and `--trace-file`: what is kept beyond the run."""
    return stack(_KEEPING_OPTIONS, function)


def _in_a_folder(path: Path | None) -> Path | None:
    """Refuse a file that cannot be made before a reply is waited for."""
    if path is None:
        return None
    if not path.parent.is_dir():
        raise click.UsageError(f"the folder {path.parent} for the trace file does not exist")
    try:
        os.close(open_to_append(path))
    except OSError as error:
        raise click.UsageError(
            f"the trace file {path} cannot be written: {error.strerror}"
        ) from None
    return path


def _config(chosen: dict[str, Any]) -> GenerationConfig:
    """Check everything that can be checked before a model is loaded."""
    from akunu_py.drafting.registry import check_drafter  # numpy, for --help

    if "" in chosen["stop"]:
        raise click.UsageError("--stop is empty; give the text that ends a reply")
    chosen["logit_bias"] = _biases(*chosen["logit_bias"])
    check_short_temperature(chosen["temperature"], in_flags("temperature is").split()[0])
    config = GenerationConfig(**chosen)
    if config.drafter is not None:
        check_drafter(config.drafter, num_draft_tokens=config.num_draft_tokens, config=config)
    return config


def check_short_temperature(temperature: float, typed: str) -> None:
    """Refuse what llama.cpp calls -t, the number of threads."""
    if temperature > _HIGHEST_USUAL_TEMPERATURE and typed == "-t":
        raise click.UsageError(
            f"-t {temperature:g} would be a temperature, at which replies are random; akunu has "
            "no option for threads: leave -t out, or type --temperature if you mean it"
        )
