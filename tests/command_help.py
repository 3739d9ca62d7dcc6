"""What `--help` of a command prints and imports, in a process of its own."""

from collections.abc import Set as AbstractSet

import click
from programs import python

HEAVY = frozenset({
    "huggingface_hub", "jinja2", "mlx", "mlx_lm", "numpy", "prompt_toolkit", "rich", "sentencepiece",
    "tokenizers", "transformers",
})  # fmt: skip
"""Packages that take a noticeable time to import."""

_CODE = """
import sys
from akunu_py.cli.main import cli
try:
    cli(sys.argv[1:])
except SystemExit:
    pass
print("imported", *sys.modules)
"""


def printed_and_imported(
    *arguments: str, looked_for: AbstractSet[str] = HEAVY
) -> tuple[str, AbstractSet[str]]:
    """Return what the command prints, on stdout alone, and which modules it imports of some."""
    done = python("-c", _CODE, *arguments)
    assert done.stderr == ""
    output, modules = done.stdout.rsplit("imported", 1)
    return output, looked_for & set(modules.split())


def words_left(context: click.Context) -> list[str]:
    """Return the words of a group's command that the group has not read."""
    return [*context._protected_args, *context.args]
