"""Options that several commands of the laboratory have."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def tokenizer_option(text: str) -> Callable[..., Any]:
    """Add --tokenizer, `tokenizer`, with this help."""
    return click.option(
        "--tokenizer", type=click.Path(path_type=Path), metavar="MODEL|GGUF", help=text
    )


processes_option = click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=lambda: os.cpu_count() or 1,
    show_default="one a core",
    metavar="N",
    help="Replay in N processes.",
)
