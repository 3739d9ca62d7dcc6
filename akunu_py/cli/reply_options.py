"""Options of how replies are made, and the configuration they make."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from akunu_py.cli import completing
from akunu_py.cli.command import DRAFT_OPTIONS, DraftOption, option, setting, stack, typed_name
from akunu_py.cli.command_settings import settings_of
from akunu_py.cli.declared_options import (
    biases_of,
    declared_option,
    in_flags,
    is_offered,
    names_of,
    naming_flags,
)
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.files import open_to_append
from akunu_py.system.settings import load_settings
from akunu_py.values.generation_config import GenerationConfig, SamplingConfig
from akunu_py.values.option_fields import options_of

_P = ParamSpec("_P")
_R = TypeVar("_R")

DRAFTER_NAMES = (
    f"{', '.join(completing.DRAFTERS[:-1])}, another of docs/methods.md or of a package, or none"
)
"""What --drafter takes, for --help."""

_HIGHEST_USUAL_TEMPERATURE = 2

_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    **{
        declared.name: {"show_default": declared.name == "temperature" and "the model's, else 0"}
        for declared in options_of(SamplingConfig)
        if not declared.setting
    },
    "stop_loops": {
        "default": lambda: click.get_current_context().command.name in {"chat", "generate"},
    },
    "drafter": {
        "help": f"Draft with {DRAFTER_NAMES}; else auto.",
        "shell_complete": completing.drafters,
        "check": lambda _, name: _find_drafter(name),
    },
}
"""What click is told of an option beyond its declaration, or instead of it."""


def _find_drafter(name: str) -> None:
    from akunu_py.drafting.registry import DrafterKind  # numpy, for --help

    DrafterKind.named(name)


_GENERATION_OPTIONS = {
    declared.name: declared_option(declared, **_ATTRIBUTES.get(declared.name, {}))
    for declared in options_of(GenerationConfig)
    if is_offered(declared)
}


def _keep_draft_option(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value not in (None, ()):
        context.meta.setdefault(DRAFT_OPTIONS, {})[parameter.name] = value


def make_draft_options(command: click.Command) -> None:
    """Give a command the options that drafters and verifiers declare."""
    from akunu_py.drafting.registry import draft_options  # numpy, for --help

    found = draft_options().values()
    for declared in found:
        shown = "" if declared.default is None else f"  [default: {declared.default}]"
        declared_option(
            declared, names_of(*found), cls=DraftOption, callback=_keep_draft_option,
            default=None, show_default=False, expose_value=False, group="Drafting", rare=True,
            help=in_flags(declared.help, names_of(*found)) + shown,
        )(command)  # fmt: skip


def given_draft_options() -> dict[str, Any]:
    """Return the options of drafters and verifiers that the running command was given."""
    found: dict[str, Any] = click.get_current_context().meta.get(DRAFT_OPTIONS, {})
    return found


_SHOWING_OPTIONS = (
    setting(
        "trace_file", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
        callback=lambda _context, _option, path: _in_a_folder(path),
        help="Append prompts and replies to FILE, for akunu bench replay.",
    ),
    option(
        "--reasoning", type=click.Choice(["show", "fold", "hide"]), default="show", metavar="HOW",
        help="Show, fold or hide the reasoning of a model.",
    ),
    setting(
        "plain", type=bool, default=False, help="Print Markdown as it is, without formatting it."
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


def value_sources(context: click.Context) -> dict[str, str]:
    """Return the source of each reply option that is not at its default, by option.

    A source is the flag as it was typed, a variable, or a key of the settings file.
    """
    settings = load_settings()
    words = tuple(context.command_path.split()[1:])
    found = {}
    for one in settings_of(context.command, words):
        parameter = one.parameter
        if parameter.name in {*_GENERATION_OPTIONS, "reasoning"} or isinstance(
            parameter, DraftOption
        ):
            typed = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
            name = typed_name(parameter, context) if isinstance(parameter, click.Option) else ""
            found[parameter.name] = name if typed else one.sourced_value(settings).source
    return {name: source for name, source in found.items() if source}


def warn_if_not_exact(config: GenerationConfig) -> None:
    """Say on stderr where replies are not exact, unless it is to be quiet."""
    if config.exactness == "none" and not is_quiet():
        click.echo(
            "Warning: replies are not exact: what is drafted changes how likely they are.",
            err=True,
        )


def showing_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `reasoning`, `plain` and `trace_file`: how replies are shown, and where to write them."""
    return stack(_SHOWING_OPTIONS, function)


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
    from akunu_py.drafting.registry import check_drafting  # numpy, for --help

    if "" in chosen["stop"]:
        raise click.UsageError("--stop is empty; give the text that ends a reply")
    chosen["logit_bias"] = biases_of(*chosen["logit_bias"])
    check_short_temperature(chosen["temperature"], in_flags("temperature is").split()[0])
    config = GenerationConfig(**chosen, draft_options=given_draft_options())
    check_drafting(config)
    return config


def check_short_temperature(temperature: float, typed: str) -> None:
    """Refuse what llama.cpp calls -t, the number of threads."""
    if temperature > _HIGHEST_USUAL_TEMPERATURE and typed == "-t":
        raise click.UsageError(
            f"-t {temperature:g} would be a temperature, at which replies are random; akunu has "
            "no option for threads: leave -t out, or type --temperature if you mean it"
        )
