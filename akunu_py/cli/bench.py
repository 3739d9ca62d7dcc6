"""`akunu bench`: measurements on this machine."""

import click

from akunu_py.cli.group import CommandGroup

_LATER = {
    "hit-rate": "akunu_py.cli.bench_hit_rate:hit_rate",
    "speed": "akunu_py.cli.bench_speed:speed",
}


@click.group(cls=CommandGroup, lazy=_LATER, plug_ins="bench.")
def bench() -> None:
    """Measure what drafting brings on this machine.

    \b
    Examples:
      akunu bench hit-rate
      akunu bench speed model.gguf --quick
    """  # noqa: D301 - \b keeps click from wrapping the examples
