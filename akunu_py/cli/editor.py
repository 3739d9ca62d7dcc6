"""The user's editor, as VISUAL or EDITOR names it, on a file or a text."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click

_VARIABLES = ("VISUAL", "EDITOR")


def edit_file(path: Path) -> None:
    """Open a file in the editor and wait for its end; raises as `edit_text` does."""
    with _explained():
        click.edit(filename=str(path))


def edit_text(text: str) -> str | None:
    """Return a text as the user edited it; None where nothing was saved.

    Raises click.ClickException where there is no editor, or it failed.
    """
    with _explained():
        return click.edit(text, extension=".md")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (click.ClickException, ValueError) as error:
        name = next((name for name in _VARIABLES if os.environ.get(name)), None)
        editor = "the editor" if name is None else f"the editor {os.environ[name]!r} of {name}"
        if isinstance(error, ValueError):
            problem = f"is not a command: {error}"  # a quotation without its end
        elif isinstance(error.__cause__, OSError):
            problem = f"cannot be started: {error.__cause__.strerror}"
        else:
            problem = "ended with an error"
        name = name or "EDITOR"
        raise click.ClickException(
            f"{editor} {problem}; set {name} to one that is installed, as in {name}=nano"
        ) from None
