"""Objects that installed packages offer by entry points."""

import functools
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


T = TypeVar("T")


@functools.cache
def plug_ins(group: str) -> Mapping[str, "EntryPoint"]:
    """Return the entry points of a group by name; the search takes about 20 ms."""
    from importlib.metadata import entry_points  # for --help

    return {point.name: point for point in entry_points(group=group)}


@functools.cache
def load_plug_in(group: str, name: str, kind: Callable[[Any], T]) -> T | None:
    """Return what `kind` makes of the object of an entry point, for which it raises an error.

    None if nobody offers it, its module is gone, or it cannot be used: a package that is broken, or
    of another version, must not stop what has no need of it. A warning says so once.
    """
    point = plug_ins(group).get(name)
    if point is None:
        return None
    try:
        return kind(point.load())
    except ModuleNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - any code may run here
        import logging  # for --help

        logging.getLogger(__name__).warning(
            "the plug-in %s (%s) cannot be used: %s; install its package anew, or remove it",
            name, point.value, error,
        )  # fmt: skip
        return None


def forget_plug_ins() -> None:
    """Forget what was found, for tests and after an installation."""
    plug_ins.cache_clear()
    load_plug_in.cache_clear()


def without_laboratory(said: str) -> str:
    """Return a message, and behind it where the methods of the papers are if they are missing."""
    if importlib.util.find_spec("akunu_lab") is not None:
        return said
    where = "the methods of papers are in akunu's laboratory (pip install ./lab in a checkout)"
    return f"{said.removesuffix('.')}; {where}"
