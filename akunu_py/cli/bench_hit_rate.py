"""`akunu bench hit-rate`: how many drafted tokens a model accepts, and what that brings."""

from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.measuring import Measurement, measuring
from akunu_py.cli.reply_options import DRAFTER_NAMES, given_draft_options, warn_if_not_exact

if TYPE_CHECKING:
    from akunu_py.bench.hit_rate import HitRateReport
    from akunu_py.bench.result_file import BenchResult
    from akunu_py.values.types import GenerationConfig

_QUICK_LIMIT = 2
_QUICK_TOKENS = 64
_TOKENS = 128

_EXACTNESS = {
    "stream": "",
    "distribution": "Drafts are accepted by probability: the replies follow the law of those "
    "without drafting and are other texts.",
    "none": "Replies with drafting are not exact: no two need be the same.",
}


@click.command("hit-rate", cls=Command)
@click.option(
    "--drafter",
    shell_complete=completing.drafters,
    default="auto",
    show_default=True,
    metavar="NAME",
    help=f"{DRAFTER_NAMES}, which shows how far two equal runs differ.",
)
@click.option(
    "--num-draft-tokens",
    type=int,
    metavar="N",
    help="Draft at most N tokens a pass; the drafter's own number when left out.",
)
@click.option(
    "--draft-budget",
    type=click.Choice(["auto", "always"]),
    default="auto",
    show_default=True,
    help="auto drafts what pays on this machine, as replies do. always drafts everything: rates "
    "are then the drafter's own, and the same in every run.",
)
@click.option(
    "--max-tokens",
    type=int,
    metavar="N",
    help=f"Generate at most N tokens a reply.  [default: {_TOKENS}; {_QUICK_TOKENS} with --quick]",
)
@measuring(
    model=True,
    loading=("draft_model", "heads"),
    prompts="files",
    limit="Use N prompts of each category.",
    quick=_QUICK_LIMIT,
    seed=True,
    temperature=True,
)
def hit_rate(bench: Measurement, max_tokens: int | None, **options: Any) -> None:
    """Measure how many drafted tokens a model accepts, and the speedup.

    Each prompt is answered with and without drafting. Fire rate is the share of passes with a
    draft, hit rate accepted over drafted tokens; tokens a pass counts all passes. Speeds are of
    decoding alone, end to end with prefill. Loops is the share of the reply that repeats itself.
    Same counts the prompts whose two replies are equal, token by token. A second table counts
    drafted tokens by where they come from, if the drafter has several sources.

    \b
    Examples:
      akunu bench hit-rate
      akunu bench hit-rate model.gguf --quick --category edit
      akunu bench hit-rate model.gguf --drafter ngram --draft-budget always
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.bench.hit_rate import run_hit_rate, settled_config  # imports MLX
    from akunu_py.bench.hit_rate_findings import hit_rate_findings
    from akunu_py.values.types import GenerationConfig

    drafting = given_draft_options()
    if max_tokens is None:
        max_tokens = _QUICK_TOKENS if bench.quick else _TOKENS
    measured = {
        "max_tokens": max_tokens,
        **options,
        "temperature": bench.temperature,
        "seed": bench.seed,
    }
    # A mistyped option should not cost the seconds that a large model takes to load.
    config = settled_config(GenerationConfig(**measured, draft_options=drafting))
    measured["num_draft_tokens"] = config.num_draft_tokens
    warn_if_not_exact(config)
    prompts, failures = bench.prompts()
    arguments = {
        "category": bench.categories,
        "prompts": bench.files,
        "limit": bench.limit,
        **measured,
        **drafting,
        **bench.settled,
    }
    with bench.engine() as engine:
        engine.compares_rows = True
        run = bench.begin(arguments, engine=engine)
        with bench.progress("replies", "measuring passes") as progress:
            report = run_hit_rate(engine, prompts, config, with_costs=True, progress=progress)
    result = run.result(hit_rate_findings(report, failures))
    bench.emit(result, _head(result, report.config), _tail(report))


def _head(result: "BenchResult", config: "GenerationConfig") -> str:
    return (
        f"{result.model_line(with_file=True)}\n"
        f"drafter {config.drafter}, up to {config.num_draft_tokens} drafted, "
        f"{config.max_tokens} tokens a reply, temperature {config.temperature:g}, "
        f"seed {config.seed}{_changed(config)}"
    )


def _changed(config: "GenerationConfig") -> str:
    """Return the options of drafting that are not the defaults, on a line."""
    found = [f"{name.replace('_', ' ')} {value}" for name, value in config.draft_options.items()]
    return f"\n{', '.join(found)}" if found else ""


def _tail(report: "HitRateReport") -> str:
    from akunu_py.bench.hit_rate_findings import speedup_line

    lines = [speedup_line(report), _EXACTNESS[report.exactness]]
    for name, found in (report.differences or {}).items():
        margin = found.margin
        reason = "" if margin is None else f"; the two likeliest lie {margin:.2g} apart there"
        lines.append(f"{name}: differs from generated token {found.index} on{reason}")
    return "\n".join(line for line in lines if line)
