"""Options of loading a model, and the engine they make."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from akunu_py.cli import completing
from akunu_py.cli.command import OWN_WORDS, option, stack
from akunu_py.cli.declared_options import declared_option, naming_flags
from akunu_py.cli.input_text import GivenPath, is_text_file
from akunu_py.cli.ranks import RANKS_OPTIONS, follow, is_follower, join
from akunu_py.cli.terminal import printable
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import ModelFormatError
from akunu_py.system.settings import load_settings
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.option_fields import options_of

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.models.memory_check import MemoryPart
    from akunu_py.models.ranks.link import Link

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingOptions(EngineOptions):
    """What a command was told about loading."""

    force: bool = False
    """Load a model that is too large for the memory."""

    check_ranks: bool | None = None
    """As in `Engine.load`."""

    shipped_head: bool = False
    """Draft with the head that akunu ships for the default model, if that is the model."""


_TOY_ANSWERS = (
    "akunu-tiny answers, a toy that edits short Python functions, often wrongly. For a real model: "
    "akunu models pull smollm2"
)


def _given_once(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return the value of an option; raise UsageError where it was typed twice."""
    words = context.meta.get(OWN_WORDS, ())
    typed = [word for word in words if word.partition("=")[0] in parameter.opts]
    if len(typed) > 1:
        raise click.UsageError(
            f"{typed[0]} is given {len(typed)} times; a model takes one adapter: merge several "
            "where they were trained"
        )
    return value


_DECLARED = {declared.name: declared for declared in options_of(EngineOptions)}
_OF_EVERY_MODEL = (
    "context", "adapter", "weights", "compute_type", "kv_bits", "reproducible",
    "q6k", "pre_tokenizer",
)  # fmt: skip
_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "adapter": {"type": GivenPath(), "callback": _given_once},
    "memory": {"type": GivenPath(path_type=Path, file_okay=False)},
    "draft_model": {"type": GivenPath(path_type=Path), "shell_complete": completing.models},
    "heads": {"type": GivenPath()},
}
"""What click is told of an option beyond its declaration."""

_FORCE = option(
    "--force",
    is_flag=True,
    group="Model",
    help="Load a model that is too large for the memory.",
)


def model_argument(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add MODEL and `-m/--model`, which say the same: the command gets one `model`.

    A command that takes `files` behind it gets a MODEL that is a file of text as the first of them.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, model: str | None, model_option: str | None, **options: Any) -> _R:
        context = click.get_current_context()
        typed = context.get_parameter_source("model") is ParameterSource.COMMANDLINE
        if typed and model is not None and "files" in options and is_text_file(model):
            options["files"] = (Path(model), *options["files"])
            model, typed = _default_model(context), False
        if model_option is not None:
            if typed:
                raise click.UsageError(
                    f"the model is given twice, as {model} and as {model_option}; give it once"
                )
            model = model_option
        options["model"] = model
        return function(*args, **options)

    argument = click.argument("model", required=False, shell_complete=completing.models)
    return argument(model_option(wrapped))


def _default_model(context: click.Context) -> str | None:
    """Return the MODEL of a command that was given none: that of a variable or the settings."""
    (parameter,) = (one for one in context.command.params if one.name == "model")
    found = parameter.value_from_envvar(context) or context.lookup_default("model")
    return None if found is None else str(found)


def model_option(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add `-m/--model`, passed as `model_option`."""
    added: Callable[_P, _R] = option(
        "-m", "--model", "model_option", metavar="MODEL", shell_complete=completing.models,
        help="The same as MODEL.",
    )(function)  # fmt: skip
    return added


def loading_options(
    *also: str, ranks: bool = False, shipped_head: bool = False
) -> Callable[[Callable[_P, _R]], Callable[..., _R]]:
    """Add the options of loading a model, and `also` others of an engine; they become `loading`.

    A command that is told to draft with a head takes the model's own. With `shipped_head` it drafts
    with the head that akunu ships for the default model, unless it is told otherwise.
    """
    options = [
        *(
            declared_option(_DECLARED[name], **_ATTRIBUTES.get(name, {}))
            for name in (*_OF_EVERY_MODEL, *also)
        ),
        _FORCE,
        *(RANKS_OPTIONS if ranks else ()),
    ]
    names = [*_OF_EVERY_MODEL, *also, "force", *(["check_ranks"] if ranks else [])]

    def add(function: Callable[_P, _R]) -> Callable[..., _R]:
        @functools.wraps(function)
        def wrapped(*args: Any, **given: Any) -> _R:
            loading = {name: given.pop(name) for name in names}
            if "heads" in also:
                loading |= _chosen_head(loading["heads"], given, shipped=shipped_head)
            given["loading"] = LoadingOptions(**loading)
            with naming_flags():
                return function(*args, **given)

        return stack(options, wrapped)

    return add


def _chosen_head(heads: str | None, options: Mapping[str, Any], *, shipped: bool) -> dict[str, Any]:
    """Return the fields that `--heads`, and the drafters that a command was told to use, mean."""
    if heads is None:
        config = options.get("config")
        drafters = {
            options.get("drafter"),
            *options.get("drafters", ()),
            None if config is None else config.drafter,
        }
        if "mtp" in drafters:
            heads = "own"
    return {"heads": None if heads == "none" else heads, "shipped_head": shipped and heads is None}


def recorded(loading: LoadingOptions) -> dict[str, Any]:
    """Return the options of loading that the command has, by name, for its result."""
    # A command's `--memory` says something else, in a sweep what drafters remember.
    names = {parameter.name for parameter in click.get_current_context().command.params}
    return {
        field.name: getattr(loading, field.name)
        for field in fields(EngineOptions)
        if field.name in names - {"memory"}
    }


def model_path(name: str | None) -> Path:
    """Return where a model lies that a command was given by name, fetched if it must be."""
    from akunu_py.cli.default_model_offer import fetch_unasked  # not for --help
    from akunu_py.model_store.names import resolve_model

    if name is None:
        fetch_unasked()
    return resolve_model(name, load_settings())


def load_engine(
    model: str | None,
    loading: LoadingOptions,
    *,
    several: bool = False,
    replies: bool = True,
) -> "Engine":
    """Load the model a command was given, with what `loading_options` collected.

    A command that says so with `several` runs on several ranks; those other than 0 follow it here,
    and end with it.

    Raises ConfigError where it, with the draft model, would not fit into this machine's memory,
    unless `--force` was given, and for a model of embeddings where `replies` are wanted.
    """
    from akunu_py.model_store.known_models import (  # not for --help
        fetched_model_path,
        is_toy,
    )

    ranks = join(several=several)
    path = model_path(model)
    if model is None and is_toy(path) and not is_quiet() and not is_follower():
        click.echo(_TOY_ANSWERS, err=True)
    loading = _with_drafting_models(loading, path, ranks)
    from akunu_py.engine.engine import Engine  # mlx-lm takes over a second
    from akunu_py.engine.reply_room import ReplyRoom

    try:
        check_fits(path, loading, ranks=ranks)
        if ranks is not None and ranks.rank != 0:
            follow(ranks, path, loading)
        engine = Engine.load(path, loading, ranks=ranks, check_ranks=loading.check_ranks)
    except ModelFormatError as error:
        if path == fetched_model_path():
            raise ModelFormatError(f"{error}: akunu models pull smollm2") from None
        raise
    if replies:
        engine.check_replies()
    engine.compares_rows = False  # the commands that show it set this
    if loading.force:
        engine.reply_room = ReplyRoom()
    return engine


def _tell(text: str) -> None:
    if not is_quiet() and not is_follower():
        click.echo(printable(text), err=True)


def _with_drafting_models(
    loading: LoadingOptions, path: Path, ranks: "Link | None"
) -> LoadingOptions:
    """Return `loading` with the places of draft model and head, or with the default model's head.

    That head drafts if the default model is the one at `path`, the command left it to akunu what to
    draft with, and nothing else draws: neither a draft model nor ranks go together with a head.
    """
    from akunu_py.model_store.known_models import fetched_model_path  # for --help
    from akunu_py.model_store.names import parse_hub_name
    from akunu_py.models.head_places import AUTO, OWN, own_place  # imports MLX

    if loading.draft_model is not None:
        return replace(loading, draft_model=model_path(str(loading.draft_model)))
    if str(loading.heads) == AUTO:
        if ranks is not None:
            _tell("drafting without a head: on several machines drafts come from the text")
            return replace(loading, heads=None)
        from akunu_py.models.nearby_heads import find_nearby_head  # for a model with a head

        # What is neither a file nor a folder is refused when it is loaded.
        return replace(loading, heads=find_nearby_head(path, _tell) if path.exists() else None)
    if loading.heads is not None and not Path(loading.heads).expanduser().exists():
        name = str(loading.heads)
        return replace(loading, heads=name if parse_hub_name(name) is None else model_path(name))
    wanted = loading.shipped_head and ranks is None
    if wanted and path.absolute() == fetched_model_path() and own_place(path) != path:
        return replace(loading, heads=OWN)
    return loading


def check_fits(
    path: Path,
    loading: LoadingOptions,
    others: "Sequence[MemoryPart]" = (),
    *,
    ranks: "Link | None" = None,
) -> None:
    """Refuse models that do not fit into this machine's memory together, unless `--force` is given.

    `others` is what the command holds besides, `ranks` are the machines that the model is split
    over. Raises ConfigError.
    """
    if loading.force:
        return
    from akunu_py.models.memory_check import check_memory, planned_models  # imports MLX
    from akunu_py.models.rank_split import PlannedGroup

    models = planned_models(
        path, loading, None if ranks is None else PlannedGroup(ranks.rank, ranks.size)
    )
    # What is neither a file nor a folder is refused when it is loaded.
    if all(model.path.is_file() or model.path.is_dir() for model in models):
        check_memory(models, context=loading.context, others=others)
