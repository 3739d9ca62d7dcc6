"""`akunu tune`: measure what passes cost here, remember it, and say what it means for drafting."""

from typing import TYPE_CHECKING

import click

from akunu_py.cli.command import Command
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
)
from akunu_py.cli.terminal import let_others_end, printable, prompt_progress

if TYPE_CHECKING:
    from akunu_py.bench.tuning import Tuning

_SHORT = 4


@click.command(cls=Command)
@model_argument
@click.option(
    "--context-tokens",
    type=click.IntRange(min=2),
    default=128,
    show_default=True,
    metavar="N",
    help="Measure after a prompt of N tokens; costs are remembered by length.",
)
@click.option(
    "--repeats", type=click.IntRange(min=3), default=7, show_default=True, help="Rounds measured."
)
@loading_options()
def tune(model: str | None, context_tokens: int, repeats: int, loading: LoadingOptions) -> None:
    """Measure the cost of a pass by its number of positions, and say which drafts pay.

    akunu also learns costs while it replies; measured in advance, they hold from the first reply
    on. Costs are relative to a step of plain decoding; they are remembered for this model, device
    and version of MLX.

    \b
    Examples:
      akunu tune
      akunu tune model.gguf --context-tokens 4000
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.bench.tuning import race_anew, run_tuning  # imports MLX

    let_others_end()
    race_anew()
    with (
        load_engine(model, loading) as engine,
        prompt_progress("measuring passes", "rounds") as progress,
    ):
        tuning = run_tuning(
            engine, context_tokens=context_tokens, repeats=repeats, progress=progress
        )
    if tuning.times.doubt:
        click.echo(
            f"Warning: {tuning.times.doubt}, which cannot be: other programs disturbed the "
            "measurement. Nothing is remembered; run it again on a quiet machine.",
            err=True,
        )
    click.echo(printable(_text(tuning)))


def _text(tuning: "Tuning") -> str:
    model, environment, unit_ms = tuning.model, tuning.environment, tuning.times.unit_s * 1e3
    device = f"{environment.device_name} ({environment.device}), MLX {environment.mlx}"
    step = f"{unit_ms:.2f} ms ({1e3 / unit_ms:.1f} tokens/s)"
    lines = [
        f"{model.name}, {model.weights} weights; {device}",
        f"after {tuning.times.context} tokens a step of plain decoding takes {step}",
        "",
        "rows of a pass  cost in plain steps  a draft of one less pays from",
    ]
    for rows, cost in tuning.times.costs.items():
        least = tuning.least_confidence(rows - 1)
        pays = "" if rows == 1 else "never" if least is None else f"{least:.0%} a token"
        lines.append(f"{rows:14}  {cost:19.2f}  {pays:>29}")
    if tuning.products:
        lines += ["", "Products and attention of few rows, in those of MLX for one row:"]
        lines += [f"  {': '.join(filter(None, product))}" for product in tuning.products]
    return "\n".join([*lines, "", *_meaning(tuning)])


def _meaning(tuning: "Tuning") -> list[str]:
    short = tuning.least_confidence_up_to(_SHORT)
    if short is None:
        lines = [f"On this machine drafts of up to {_SHORT} tokens never pay."]
    else:
        lines = [
            f"On this machine drafts of up to {_SHORT} tokens pay from a confidence of {short:.0%}."
        ]
    longer = tuning.least_confidence_beyond(_SHORT)
    if longer is None:
        lines.append("Longer ones never pay.")
    else:
        match = tuning.match_for(longer)
        known = "" if match is None else f", which a match of {match} tokens or more mostly has"
        lines.append(f"Longer ones pay from {longer:.0%} a token{known}.")
    cost = tuning.reproducible_cost
    if cost is not None and not tuning.reproducible:
        lines.append(f"With --reproducible a plain step would cost {cost:.2f} times as much.")
    return lines
