"""Several options on one command."""

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def stack(options: Iterable[Callable[..., Any]], function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add options to a command; --help shows them in their order."""
    for option in reversed(list(options)):
        function = option(function)
    return function
