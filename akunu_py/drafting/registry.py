"""Drafters by name: akunu's own and those that installed packages offer.

A package offers one by an entry point of the group "akunu.drafters" whose object is a factory:
called with `num_draft_tokens=N`, it returns a `Drafter` for one reply.
"""

import difflib
from collections.abc import Callable
from importlib.metadata import entry_points

from akunu_py.drafting.auto import AutoDrafter
from akunu_py.drafting.lookup import LookupDrafter
from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.recycling import RecyclingDrafter
from akunu_py.errors import ConfigError, ContractError
from akunu_py.types import Drafter

ENTRY_POINT_GROUP = "akunu.drafters"
DEFAULT_DRAFTER = "ngram"

BUILT_IN: dict[str, Callable[[int], Drafter]] = {
    "none": lambda _: PlainDrafter(),
    "ngram": lambda count: NgramDrafter(num_draft_tokens=count),
    "ngram-window": lambda count: WindowedNgramDrafter(num_draft_tokens=count),
    "lookup": lambda count: LookupDrafter(num_draft_tokens=count),
    "auto": lambda count: AutoDrafter(max_length=count),
    "recycling": lambda count: RecyclingDrafter(num_draft_tokens=count),
}


def drafter_names() -> tuple[str, ...]:
    """Return the names `make_drafter` knows: akunu's own first."""
    offered = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(offered - BUILT_IN.keys()))


def make_drafter(name: str, *, num_draft_tokens: int) -> Drafter:
    """Make the drafter of that name for one reply.

    Raises ConfigError for an unknown name, ContractError when a plug-in returns no drafter.
    """
    if name in BUILT_IN:
        return BUILT_IN[name](num_draft_tokens)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            drafter = point.load()(num_draft_tokens=num_draft_tokens)
            if not isinstance(drafter, Drafter):
                raise ContractError(
                    f"the plug-in {point.value!r} returned a {type(drafter).__name__} for the "
                    f"drafter {name!r}; a drafter has the methods observe and propose"
                )
            return drafter
    names = drafter_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no drafter {name!r}; choose from {', '.join(names)}{hint}")
