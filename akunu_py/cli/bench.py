"""`akunu bench`: measurements on this machine."""

import importlib

import click

_LATER = {
    "alpha": "akunu_py.cli.bench_alpha:alpha",
    "compare": "akunu_py.cli.bench_compare:compare",
    "hit-rate": "akunu_py.cli.bench_hit_rate:hit_rate",
    "replay": "akunu_py.cli.bench_replay:replay",
    "speed": "akunu_py.cli.bench_speed:speed",
    "sweep": "akunu_py.cli.bench_sweep:sweep",
}


class _BenchGroup(click.Group):
    """Imports commands when they are asked for: their options are their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, for --help."""
        return sorted(_LATER)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in _LATER:
            return super().get_command(ctx, cmd_name)
        module, _, name = _LATER[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_BenchGroup)
def bench() -> None:
    """Measure what drafting brings on this machine."""
