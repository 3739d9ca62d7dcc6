"""`akunu bench`: measurements on this machine."""

import click

from akunu_py.cli.group import CommandGroup

_LATER = {
    "alpha": "akunu_py.cli.bench_alpha:alpha",
    "check": "akunu_py.cli.bench_check:check",
    "compare": "akunu_py.cli.bench_compare:compare",
    "hit-rate": "akunu_py.cli.bench_hit_rate:hit_rate",
    "replay": "akunu_py.cli.bench_replay:replay",
    "report": "akunu_py.cli.bench_report:report",
    "speed": "akunu_py.cli.bench_speed:speed",
    "sweep": "akunu_py.cli.bench_sweep:sweep",
}


@click.group(cls=CommandGroup, lazy=_LATER)
def bench() -> None:
    """Measure what drafting brings on this machine.

    \b
    Examples:
      akunu bench hit-rate
      akunu bench speed model.gguf --quick
      akunu bench replay trace.jsonl
    """  # noqa: D301 - \b keeps click from wrapping the examples
