"""Options and words for the form of a reply: a schema, an expression, a grammar or choices."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from akunu_py.cli.command import option, stack
from akunu_py.cli.input_text import decode_input, with_file_errors
from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import MOST_CHARACTERS, Constraint

if TYPE_CHECKING:
    from akunu_py.values.generation_config import GenerationConfig

_P = ParamSpec("_P")
_R = TypeVar("_R")

_OPTIONS = (
    option(
        "--json-schema", metavar="FILE|TEXT", group="Form",
        help="Answer in JSON of this schema; {} is any JSON.",
    ),
    option("--regex", metavar="R", group="Form", help="Answer with a text that R matches."),
    option(
        "--grammar", metavar="FILE", group="Form",
        help="Answer with a text of this Lark grammar.",
    ),
    option(
        "--choice", "choices", metavar="TEXT", multiple=True, default=None, group="Form",
        help="Answer with one of the TEXTs; repeatable.",
    ),
)  # fmt: skip


def form_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the options of a reply's form; they become the constraint of the command's `config`."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        given = {name: options.pop(name) for name in FORMS}
        forms = {name: value for name, value in given.items() if value not in (None, ())}
        if len(forms) > 1:
            from akunu_py.cli.first_words import FORM_OPTIONS  # for mistakes alone

            pairs = zip(FORMS, FORM_OPTIONS, strict=True)
            flags = " and ".join(flag for name, flag in pairs if name in forms)
            raise click.UsageError(f"a reply has one form; give one of {flags}")
        config: GenerationConfig = options["config"]
        for name, value in forms.items():
            options["config"] = replace(config, constraint=FORMS[name](value))
        return function(*args, **options)

    return stack(_OPTIONS, wrapped)


def schema_of(text: str) -> Constraint:
    """Return the constraint of a schema, given as JSON or as the path of a file."""
    if text.lstrip().startswith("{") or text.strip() in {"true", "false"}:
        return Constraint.json_schema(text)
    return Constraint.json_schema(_content(text))


def grammar_of(path: str) -> Constraint:
    """Return the constraint of a grammar in a file."""
    return Constraint.grammar(_content(path))


def _content(path: str) -> str:
    if not path:
        raise ConfigError("the name of the file is empty; give one, or leave the option out")
    with with_file_errors(path), Path(path).open("rb") as stream:
        content = stream.read(4 * MOST_CHARACTERS + 1)
    if len(content) > 4 * MOST_CHARACTERS:
        raise ConfigError(f"{path} is larger than {4 * MOST_CHARACTERS // 1024} KB")
    return decode_input(content, path)


FORMS: Mapping[str, Callable[[Any], Constraint]] = {
    "json_schema": schema_of,
    "regex": Constraint.regex,
    "grammar": grammar_of,
    "choices": Constraint.choices,
}
"""What makes a constraint of a word or of words, by the name of its kind."""
