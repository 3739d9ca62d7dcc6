"""What `--help` of a command prints and imports, in a process of its own."""

import subprocess
import sys

HEAVY = {"mlx", "mlx_lm", "numpy", "transformers", "rich", "jinja2", "sentencepiece"}
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


def printed_and_imported(*arguments: str) -> tuple[str, set[str]]:
    """Return what the command prints, on stdout alone, and which of `HEAVY` it imports."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *arguments], capture_output=True, check=True, text=True
    )
    assert done.stderr == ""
    output, modules = done.stdout.rsplit("imported", 1)
    return output, HEAVY & set(modules.split())
