"""Options of loading a model, and the engine they make."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from akunu_py.cli import completing
from akunu_py.cli.command import option, stack
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.ranks import follow, is_follower, join
from akunu_py.cli.reply_options import naming_flags
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import ModelFormatError
from akunu_py.system.settings import load_settings

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.models.memory_check import MemoryPart, PlannedModel
    from akunu_py.models.ranks.link import Link

_P = ParamSpec("_P")
_R = TypeVar("_R")

_FORCE = "akunu_py.force"

_TOY_ANSWERS = (
    "akunu-tiny answers, a toy that edits short Python functions, often wrongly. For a real model: "
    "akunu models pull smollm2"
)

_MODEL_OPTIONS = (
    option(
        "--context",
        type=int,
        metavar="N",
        help="Limit prompt and reply together to N tokens.",
    ),
    option(
        "--weights",
        type=click.Choice(["auto", "quantized", "dense"]),
        default="auto",
        metavar="FORM",
        group="Model",
        rare=True,
        help="quantized, dense (expanded), or auto: float32 on a CPU without kernels where it "
        "fits, else quantized.",
    ),
    option(
        "--compute-type",
        type=click.Choice(["auto", "float16", "bfloat16", "float32"]),
        default="auto",
        metavar="TYPE",
        group="Model",
        rare=True,
        help="Compute a GGUF model in float16, bfloat16 or float32. auto: float32 on the CPU "
        "backend, elsewhere float16 where it holds the model's numbers.",
    ),
    option(
        "--kv-bits",
        type=int,
        metavar="4|8",
        group="Model",
        help="Quantize the KV cache, for long contexts in less memory.",
    ),
    option(
        "--reproducible",
        is_flag=True,
        group="Model",
        help="Compute all passes at one size, so that drafting never changes a token by rounding. "
        "For GPUs: on a CPU akunu's kernels mostly rule that out. `akunu tune` says what it costs.",
    ),
    option(
        "--force",
        is_flag=True,
        expose_value=False,
        group="Model",
        callback=lambda context, _option, force: context.meta.update({_FORCE: force}),
        help="Load a model that is too large for the memory.",
    ),
    option(
        "--exact-weights/--fitted-weights",
        default=None,
        group="Model",
        rare=True,
        help="Keep quantized weights of the IQ types as the file has them, or in smaller forms "
        "close to them. Exact where memory holds them, when left out.",
    ),
    option(
        "--q6k",
        type=click.Choice(["planes", "8bit"]),
        default="planes",
        metavar="FORM",
        group="Model",
        rare=True,
        help="Keep Q6_K tensors as exact bit planes (planes), or requantize them (8bit).",
    ),
    option(
        "--pre-tokenizer",
        metavar="NAME",
        group="Model",
        rare=True,
        help="How the tokenizer of a GGUF file splits texts, where the file does not say so or is "
        "wrong, such as llama-bpe or qwen2.",
    ),
)


def model_argument(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add MODEL and `-m/--model`, which say the same: the command gets one `model`."""

    @functools.wraps(function)
    def wrapped(*args: Any, model: str | None, model_option: str | None, **options: Any) -> _R:
        context = click.get_current_context()
        if model_option is not None:
            if context.get_parameter_source("model") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"the model is given twice, as {model} and as {model_option}; give it once"
                )
            model = model_option
        options["model"] = model
        return function(*args, **options)

    argument = click.argument("model", required=False, shell_complete=completing.models)
    return argument(model_option(wrapped))


def model_option(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add `-m/--model`, passed as `model_option`."""
    added: Callable[_P, _R] = option(
        "-m", "--model", "model_option", metavar="MODEL", shell_complete=completing.models,
        help="The same as MODEL.",
    )(function)  # fmt: skip
    return added


def model_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the options of loading; the command gets one `loading` in their place."""
    names = (
        "weights", "compute_type", "exact_weights", "q6k", "pre_tokenizer", "context", "kv_bits",
        "reproducible",
    )  # fmt: skip

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        options["loading"] = {name: options.pop(name) for name in names}
        with naming_flags():
            return function(*args, **options)

    return stack(_MODEL_OPTIONS, wrapped)


def draft_model_option(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--draft-model` to what `model_options` collects; to be put below it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        options["loading"]["draft_model"] = options.pop("draft_model")
        return function(*args, **options)

    return option(
        "--draft-model", type=GivenPath(path_type=Path), metavar="MODEL",
        shell_complete=completing.models,
        help="Draft with this smaller model of the same vocabulary.",
    )(wrapped)  # fmt: skip


def heads_option(*, shipped: bool = False) -> Callable[[Callable[_P, _R]], Callable[..., _R]]:
    """Add `--heads` to what `model_options` collects; to be put below it.

    A command that is told to draft with a head takes the model's own. With `shipped` it drafts with
    the head that akunu ships for the default model, unless it is told otherwise.
    """

    def add(function: Callable[_P, _R]) -> Callable[..., _R]:
        @functools.wraps(function)
        def wrapped(*args: Any, **options: Any) -> _R:
            heads = options.pop("heads")
            if heads is None and _HEAD_DRAFTER in _named_drafters(options):
                heads = "own"
            options["loading"]["heads"] = None if heads == "none" else heads
            if shipped and heads is None:
                options["loading"][_SHIPPED_HEAD] = True
            return function(*args, **options)

        return option(
            "--heads", type=GivenPath(), metavar="own|none|PATH", group="Drafting",
            help="Draft with a prediction head: the model's own, or that of a file or folder. "
            "Left out: own with --drafter mtp" + _SHIPPED_HELP * shipped + ", else none.",
        )(wrapped)  # fmt: skip

    return add


_SHIPPED_HEAD = "shipped_head"
"""Entry of `loading`: whether the default model is to draft with the head that akunu ships."""

_SHIPPED_HELP = " and with the default model"
_HEAD_DRAFTER = "mtp"


def _named_drafters(options: Mapping[str, Any]) -> set[str | None]:
    """Return the drafters that a command was told to use, in whichever option it has."""
    config = options.get("config")
    return {
        options.get("drafter"),
        *options.get("drafters", ()),
        None if config is None else config.drafter,
    }


def counts_option(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--counts` to what `model_options` collects; to be put below it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        options["loading"]["counts"] = options.pop("counts")
        return function(*args, **options)

    return option(
        "--counts", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
        group="Drafting", rare=True,
        help="Counts of a corpus that `akunu counts fit` wrote, for --drafter corpus.",
    )(wrapped)  # fmt: skip


def tool_parser_option(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--tool-parser` to what `model_options` collects; to be put below it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        options["loading"]["tool_parser"] = options.pop("tool_parser")
        return function(*args, **options)

    return option(
        "--tool-parser", metavar="NAME", group="Model", rare=True,
        help="Read tool calls with this parser of mlx-lm, such as kimi_k3, where the chat template "
        "does not show how they look, or shows it wrong.",
    )(wrapped)  # fmt: skip


def model_path(name: str | None) -> Path:
    """Return where a model lies that a command was given by name, fetched if it must be."""
    from akunu_py.cli.default_model_offer import fetch_unasked  # not for --help
    from akunu_py.model_store.names import resolve_model

    if name is None:
        fetch_unasked()
    return resolve_model(name, load_settings())


def load_engine(
    model: str | None,
    loading: dict[str, Any],
    *,
    memory: Path | None = None,
    several: bool = False,
) -> "Engine":
    """Load the model a command was given, with what `model_options` collected.

    A command that says so with `several` runs on several ranks; those other than 0 follow it here,
    and end with it.

    Raises ConfigError where it, with the draft model, would not fit into this machine's memory,
    unless `--force` was given.
    """
    from akunu_py.model_store.default_model import (  # not for --help
        fetched_model_path,
        is_toy,
    )

    ranks = join(several=several)
    path = model_path(model)
    if model is None and is_toy(path) and not is_quiet() and not is_follower():
        click.echo(_TOY_ANSWERS, err=True)
    draft = loading.get("draft_model")
    if draft is not None:
        draft = model_path(str(draft))
        loading = {**loading, "draft_model": draft}
    loading = with_shipped_head(loading, path, ranks)
    from akunu_py.engine.engine import Engine  # mlx-lm takes over a second

    try:
        exact_weights = check_memory(path, draft, loading, ranks=ranks)
        loading = {**loading, "exact_weights": exact_weights}
        if ranks is not None and ranks.rank != 0:
            follow(ranks, path, planned_models(path, None, loading)[0].options, loading)
        engine = Engine.load(path, memory=memory, ranks=ranks, **loading)
    except ModelFormatError as error:
        if path == fetched_model_path():
            raise ModelFormatError(f"{error}: akunu models pull smollm2") from None
        raise
    engine.compares_rows = False  # the commands that show it set this
    return engine


def with_shipped_head(
    loading: Mapping[str, Any], path: Path, ranks: "Link | None"
) -> dict[str, Any]:
    """Return `loading` with the head of the default model, if that is the model at `path`.

    Only if the command left it to akunu what to draft with, and nothing else draws: neither a draft
    model nor ranks go together with a head.
    """
    from akunu_py.model_store.default_model import fetched_model_path  # for --help
    from akunu_py.models.heads.loading import OWN, own_place  # imports MLX

    loading = dict(loading)
    wanted = loading.pop(_SHIPPED_HEAD, False)
    alone = loading.get("draft_model") is None and ranks is None
    if wanted and alone and path.absolute() == fetched_model_path() and own_place(path) != path:
        loading["heads"] = OWN
    return loading


def check_memory(
    path: Path,
    draft: Path | None,
    loading: Mapping[str, Any],
    others: "Sequence[MemoryPart]" = (),
    *,
    ranks: "Link | None" = None,
) -> bool | None:
    """Return `exact_weights`: what was asked for, or False where memory does not hold exact ones.

    Refuses models that do not fit into this machine's memory together, unless `--force` says so.
    `loading` is what `model_options` collected, `others` what the command holds besides, `ranks`
    the machines that the model is split over. Raises ConfigError.
    """
    exact_weights: bool | None = loading.get("exact_weights")
    if is_forced():
        return exact_weights
    from akunu_py.models import memory_check  # imports MLX

    models = planned_models(path, draft, loading, ranks)
    # What is neither a file nor a folder is refused when it is loaded.
    if all(model.path.is_file() or model.path.is_dir() for model in models):
        fitted = memory_check.check_memory(models, context=loading.get("context"), others=others)
        # An MLX folder's weights have their form, whatever its draft model gets.
        if fitted and path.is_file():
            return False
    return exact_weights


def is_forced() -> bool:
    """Return whether `--force` was given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_FORCE))


def planned_models(
    path: Path, draft: Path | None, loading: Mapping[str, Any], ranks: "Link | None" = None
) -> "list[PlannedModel]":
    """Return a model, and its draft model, as `model_options` says to load them."""
    from akunu_py.models.load import LoadOptions, draft_options  # imports MLX
    from akunu_py.models.memory_check import PlannedModel
    from akunu_py.models.rank_split import PlannedGroup

    names = ("weights", "compute_type", "exact_weights", "q6k", "pre_tokenizer")
    options = LoadOptions(**{name: loading[name] for name in names if name in loading})
    part = None if ranks is None else PlannedGroup(ranks.rank, ranks.size)
    heads = loading.get("heads")
    models = [PlannedModel(path, options, loading.get("kv_bits"), part, heads)]
    if draft is not None:
        # Its cache is never quantized.
        models.append(PlannedModel(draft, draft_options(draft, options)))
    return models
