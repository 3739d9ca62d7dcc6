"""`akunu bench speed`: tokens a second next to mlx-lm's own decoding."""

from typing import Any

import click

from akunu_py.cli.command import Command
from akunu_py.cli.measuring import Measurement, measuring


@click.command(cls=Command)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Decode each reply N times in every way, in turns.",
)
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(0, 64),
    metavar="N",
    help="Draft at most N tokens a pass; each drafter's own number when left out.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=8),
    default=96,
    show_default=True,
    metavar="N",
    help="Decode N tokens a reply.",
)
@measuring(
    model=True,
    loading=("draft_model", "heads"),
    drafters="Measure this drafter; repeatable.",
    drafters_default=("none", "ngram", "auto"),
    prompts="shipped",
    limit="Use N prompts of each category.",
    limit_default=4,
    quick=1,
)
def speed(bench: Measurement, **options: Any) -> None:
    """Compare decoding with mlx-lm's own, greedily, ids to ids, in one run.

    Every case is decoded by mlx-lm's generate_step and by akunu with each drafter, in turns. Ratios
    are of tokens a second to mlx-lm's: the median of the pairs with its 95 % interval; files have
    that of all tokens, too. Outside is the share of the time that is not spent in passes. A second
    table counts drafted tokens by where they come from, if a drafter has several sources.

    \b
    Examples:
      akunu bench speed
      akunu bench speed model.gguf --limit 20 --drafter none --drafter auto
    """  # noqa: D301 - \b keeps click from wrapping the examples
    for name in ("kv_bits", "reproducible"):
        if getattr(bench.loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )

    from akunu_py.bench.runner import Item  # imports MLX
    from akunu_py.bench.speed import run_speed

    arguments = {
        "limit": bench.limit,
        "categories": bench.categories,
        "drafters": bench.drafters,
        **options,
        **bench.settled,
    }
    prompts, _ = bench.prompts()
    with bench.engine(waits=True) as engine:
        items, failures = Item.encoded(prompts, engine.tokenizer, engine.context)
        run = bench.begin(arguments, engine=engine)
        with bench.progress("replies", "measuring passes") as progress:
            report = run_speed(engine, items, drafters=bench.drafters, progress=progress, **options)
    result = run.result(report.findings(failures))
    sizes = {name: options[name] for name in ("max_tokens", "num_draft_tokens")}
    bench.emit(result, report.head(result, "the model's own", **sizes))
