"""Objects that installed packages offer by entry points."""

import functools
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@functools.cache
def plug_ins(group: str) -> Mapping[str, "EntryPoint"]:
    """Return the entry points of a group by name; the search takes about 20 ms."""
    from importlib.metadata import entry_points  # for --help

    return {point.name: point for point in entry_points(group=group)}


@functools.cache
def load_plug_in(group: str, name: str) -> Any | None:
    """Return the object of an entry point; None if nobody offers it, or its module is gone."""
    try:
        return plug_ins(group)[name].load()
    except (KeyError, ModuleNotFoundError):
        return None


def forget_plug_ins() -> None:
    """Forget what was found, for tests and after an installation."""
    plug_ins.cache_clear()
    load_plug_in.cache_clear()


def without_laboratory() -> str:
    """Return where the methods of the papers are, for messages; "" if they are installed."""
    if importlib.util.find_spec("akunu_lab") is not None:
        return ""
    return "; the methods of papers are in akunu's laboratory (pip install ./lab in a checkout)"
