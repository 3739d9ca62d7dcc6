"""Options of how replies are made, and the configuration they come to."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from akunu_py.cli import completing
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.option_stack import stack
from akunu_py.cli.verbosity import is_quiet
from akunu_py.regular_file import open_to_append

if TYPE_CHECKING:
    from akunu_py.types import GenerationConfig

_P = ParamSpec("_P")
_R = TypeVar("_R")

DRAFTERS = ("auto", "ngram", "ngram-window", "lookup", "draft-model", "none")
"""Akunu's own, for --help and Tab, which do without the registry; a test compares the two."""

DRAFTER_NAMES = (
    "auto, ngram, ngram-window, lookup; draft-model with --draft-model; one of the laboratory "
    "(docs/methods.md) or of another package; or none"
)
"""What --drafter takes, for --help."""

_GENERATION_OPTIONS = (
    click.option(
        "--max-tokens", type=int, metavar="N",
        help="Generate at most N tokens; until the context is full, when left out.",
    ),
    click.option(
        "--temperature", "--temp", type=float, default=0.0, show_default=True,
        help="0 takes the likeliest token; above 0 tokens are drawn.",
    ),
    click.option(
        "--top-k", type=int, default=0, metavar="K",
        help="Draw from the K likeliest tokens; 0: from all.",
    ),
    click.option(
        "--top-p", type=float, default=1.0, metavar="P",
        help="Draw from the likeliest tokens that together have probability P; 1: from all.",
    ),
    click.option(
        "--min-p", type=float, default=0.0, metavar="P",
        help="Draw from tokens at least P times as likely as the likeliest; 0: from all.",
    ),
    click.option(
        "--repetition-penalty", type=float, default=1.0, metavar="X",
        help="Make tokens of the text so far less likely: logits divided by X, those below 0 "
        "multiplied. 1 is none.",
    ),
    click.option(
        "--presence-penalty", type=float, default=0.0, metavar="X",
        help="Subtract X from the logits of tokens in the text so far. 0 is none.",
    ),
    click.option(
        "--frequency-penalty", type=float, default=0.0, metavar="X",
        help="Subtract X for each time a token is in the text so far. 0 is none.",
    ),
    click.option(
        "--logit-bias", multiple=True, metavar="ID=BIAS",
        help="Add BIAS to the logit of the token with this id; repeatable.",
    ),
    click.option(
        "--seed", type=int, metavar="N",
        help="With the same seed the same tokens are drawn; drawn itself, when left out.",
    ),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before TEXT; repeatable."),
    click.option(
        "--stop-loops/--no-stop-loops",
        default=lambda: click.get_current_context().command.name == "chat",
        help="End a reply that repeats the same tokens over and over. On in the chat, else off.",
    ),
    click.option(
        "--drafter", metavar="NAME", shell_complete=completing.drafters,
        help=f"{DRAFTER_NAMES}. When left out: draft-model with --draft-model, else auto.",
    ),
    click.option(
        "--num-draft-tokens", type=int, metavar="N",
        help="Draft at most N tokens a pass; the drafter's own number when left out.",
    ),
    click.option(
        "--draft-budget", type=click.Choice(["auto", "always"]), default="auto", show_default=True,
        help="Draft as many tokens as pay on this machine, or always as many as there are.",
    ),
)  # fmt: skip

_DRAFTING_OPTIONS = (
    click.option(
        "--draft-sampling", type=click.Choice(["coupled", "rejection"]), default="coupled",
        show_default=True,
        help="Compare drafts with the model's own choices, so that the text stays that of plain "
        "decoding, or accept them by probability: another text by the same law.",
    ),
    click.option(
        "--draft-temperature", type=float, metavar="T",
        help="Temperature of a draft model or of counts; that of the reply, when left out.",
    ),
    click.option(
        "--draft-length", type=click.Choice(["budget", "fixed", "entropy", "lower-bound"]),
        default="budget", show_default=True,
        help="Where a draft of a draft model or counts ends: where --draft-budget says, at "
        "--num-draft-tokens, the earlier the less certain it is of the first token, or where a "
        "token is unlikely.",
    ),
    click.option(
        "--min-draft-tokens", type=int, metavar="N",
        help="With --draft-length entropy: draft N tokens at least. 1 when left out.",
    ),
    click.option(
        "--draft-length-beta", type=float, metavar="B",
        help="With --draft-length entropy: the share of earlier drafts in what certainty is taken "
        "to be, below 1. 0 when left out.",
    ),
    click.option(
        "--draft-length-bound", type=float, metavar="P",
        help="With --draft-length lower-bound: end a draft below this probability. 0.4 when left "
        "out.",
    ),
    click.option(
        "--ngram-order", type=int, metavar="N",
        help="Tokens of the longest n-gram of ngram, ngram-window and lookup. 4 when left out.",
    ),
    click.option(
        "--ngram-window", type=int, metavar="N",
        help="How many last tokens ngram-window counts. 512 when left out.",
    ),
    click.option(
        "--ngram-min-match", type=int, metavar="N",
        help="Fewest tokens of context that may decide a drafted one, of the same three. 1 when "
        "left out.",
    ),
    click.option(
        "--num-proposals", type=int, default=1, show_default=True, metavar="K",
        help="Let a draft model propose K tokens for each position, verified as a tree.",
    ),
    click.option(
        "--lenience", type=float, default=1.0, metavar="L",
        help="Below 1 replies are not exact: drafted tokens come up to 1/L times as often as they "
        "should, at temperature 0 in place of tokens up to 1/L times as likely. 1 when left out.",
    ),
    click.option(
        "--adjust/--no-adjust", "adjust_residual", default=True,
        help="Draw from the residual after a rejection, or, for study and not exact, from p.",
    ),
)  # fmt: skip


_KEEPING_OPTIONS = (
    click.option(
        "--memory", type=GivenPath(path_type=Path, file_okay=False), metavar="FOLDER",
        help="Keep what replies said in this folder, and draft from it in later runs.",
    ),
    click.option(
        "--trace-file", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
        callback=lambda _context, _option, path: _in_a_folder(path),
        help="Append prompt and reply to this file, a line of JSON that akunu bench replay reads.",
    ),
)  # fmt: skip


def generation_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the sampling and drafting options; the command gets one `config` in their place."""
    names = (
        "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop", "stop_loops",
        "drafter", "num_draft_tokens", "draft_budget",
    )  # fmt: skip

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        from akunu_py.generation_config import DRAFTING_FIELDS  # noqa: PLC0415 - not for --help

        chosen = {name: options.pop(name) for name in (*names, *DRAFTING_FIELDS)}
        options["config"] = _config(chosen)
        warn_if_not_exact(options["config"])
        return function(*args, **options)

    return stack((*_GENERATION_OPTIONS, *_DRAFTING_OPTIONS), wrapped)


def drafting_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add the options of how is drafted, but which drafter, how many tokens and by which budget.

    The command gets one `drafting` in their place: fields of a `GenerationConfig` by name.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> _R:
        from akunu_py.generation_config import DRAFTING_FIELDS  # noqa: PLC0415 - not for --help

        options["drafting"] = {name: options.pop(name) for name in DRAFTING_FIELDS}
        return function(*args, **options)

    return stack(_DRAFTING_OPTIONS, wrapped)


def warn_if_not_exact(config: "GenerationConfig") -> None:
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
        raise click.UsageError(f"there is no folder {path.parent} for the trace file")
    try:
        os.close(open_to_append(path))
    except OSError as error:
        raise click.UsageError(
            f"the trace file {path} cannot be written: {error.strerror}"
        ) from None
    return path


def _config(chosen: dict[str, Any]) -> "GenerationConfig":
    """Check everything that can be checked before a model is loaded."""
    # numpy would slow --help down.
    from akunu_py.drafting.registry import check_drafter  # noqa: PLC0415
    from akunu_py.types import GenerationConfig  # noqa: PLC0415

    if "" in chosen["stop"]:
        raise click.UsageError("--stop is empty; give the text that ends a reply")
    if chosen["max_tokens"] is not None and chosen["max_tokens"] < 1:
        raise click.UsageError(
            f"--max-tokens is {chosen['max_tokens']}; give 1 or more, or leave it out: until the "
            "context is full"
        )
    chosen["logit_bias"] = dict(_parse_bias(entry) for entry in chosen["logit_bias"])
    config = GenerationConfig(**chosen)
    if config.drafter is not None:
        check_drafter(config.drafter, num_draft_tokens=config.num_draft_tokens, config=config)
    return config


def _parse_bias(entry: str) -> tuple[int, float]:
    token, _, bias = entry.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise click.UsageError(
            f"--logit-bias is {entry!r}; give a token id and a number, as in 42=-1.5"
        ) from None
