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
    streams="Compare numbers of replies at once, such as 1,2,4,8, instead of mlx-lm.",
    prompts="shipped",
    limit="Use N prompts of each category.",
    limit_default=4,
    quick=1,
    temperature=True,
)
def speed(bench: Measurement, **options: Any) -> None:
    """Compare decoding with mlx-lm's own, greedily, ids to ids, in one run.

    Every case is decoded by mlx-lm's generate_step and by akunu with each drafter, in turns. Ratios
    are of tokens a second to mlx-lm's: the median of the pairs with its 95 % interval; files have
    that of all tokens, too. Outside is the share of the time that is not spent in passes. A second
    table counts drafted tokens by where they come from, if a drafter has several sources.

    With --streams mlx-lm has no part. Figures are tokens per second of processor time while all
    places are taken, prompts left out, and ratios are to the first number of the same drafter, and
    to the first drafter at the same number, which a second table has by kind of text. A kind needs
    five times as many prompts as the largest number for an interval.

    \b
    Examples:
      akunu bench speed
      akunu bench speed --streams 1,2,4,8 --limit 20 --drafter none --drafter auto
    """  # noqa: D301 - \b keeps click from wrapping the examples
    for name in ("kv_bits", "reproducible"):
        if getattr(bench.loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )
    if bench.temperature and not bench.streams:
        raise click.UsageError("--temperature goes with --streams; mlx-lm's part is greedy")

    from akunu_py.bench.runner import Item  # imports MLX
    from akunu_py.bench.speed import run_speed
    from akunu_py.bench.streams import run_streams

    arguments = {
        "limit": bench.limit,
        "streams": bench.streams,
        "categories": bench.categories,
        "drafters": bench.drafters,
        "temperature": bench.temperature,
        **options,
        **bench.settled,
    }
    prompts, _ = bench.prompts()
    with bench.engine(waits=True) as engine:
        items, failures = Item.encoded(prompts, engine.tokenizer, engine.context)
        run = bench.begin(arguments, engine=engine)
        with bench.progress("replies", "measuring passes") as progress:
            how = {**options, "drafters": bench.drafters, "progress": progress}
            if bench.streams is None:
                report = run_speed(engine, items, **how)
            else:
                how |= {"streams": bench.streams, "temperature": bench.temperature}
                report = run_streams(engine, items, **how)
    result = run.result(report.findings(failures))
    sizes = {name: options[name] for name in ("max_tokens", "num_draft_tokens")}
    bench.emit(result, report.head(result, "the model's own", **sizes))
