"""`akunu bench streams`: what several replies at once bring, and drafts in their company."""

from typing import Any

import click

from akunu_lab.study.options import speed_options, streams_option
from akunu_py.api import Command, Measurement, measuring


@click.command(cls=Command)
@streams_option("Compare these numbers of replies at once.", default="1,2,4,8", show_default=True)
@speed_options
@measuring(
    model=True,
    loading=("draft_model", "heads"),
    drafters="Measure this drafter; repeatable.",
    drafters_default=("none", "auto"),
    prompts="shipped",
    limit="Use N prompts of each category.",
    limit_default=20,
    quick=4,
    temperature=True,
)
def streams(bench: Measurement, streams: tuple[int, ...], **options: Any) -> None:
    """Compare numbers of replies at once.

    Figures are tokens per second of processor time while all places are taken, prompts left out.
    Ratios are to the first number of the same drafter, and to the first drafter at the same number;
    a second table has those by kind of text. A kind needs five times as many prompts as the largest
    number for an interval.

    \b
    Examples:
      akunu bench streams
      akunu bench streams model.gguf --streams 1,4 --drafter none --drafter ngram
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.streams import run_streams
    from akunu_py.api import Item

    options |= {"drafters": bench.drafters, "temperature": bench.temperature, "streams": streams}
    arguments = {"limit": bench.limit, "categories": bench.categories, **options, **bench.settled}
    prompts, _ = bench.prompts()
    with bench.engine(waits=True) as engine:
        # A pass is queued behind the last token.
        room = options["max_tokens"] + 1
        items, failures = Item.encoded(prompts, engine.tokenizer, engine.context, room=room)
        run = bench.begin(arguments, engine=engine)
        with bench.progress("replies", "measuring passes") as progress:
            report = run_streams(engine, items, progress=progress, **options)
    result = run.result(report.findings(failures))
    bench.emit(result, f"{result.model_line()}\n{options['max_tokens']} tokens a reply")
