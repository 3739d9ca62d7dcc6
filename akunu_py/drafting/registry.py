"""Drafters by name: akunu's own and those that installed packages offer.

A package offers one by an entry point of the group "akunu.drafters" whose object is a factory:
called with `num_draft_tokens=N`, it returns a `Drafter` for one reply.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import MAX_LENGTH
from akunu_py.drafting.draft_model import NUM_DRAFT_TOKENS, DraftModelDrafter, TokenModel
from akunu_py.drafting.lookup import LookupDrafter
from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.recycling import RecyclingDrafter
from akunu_py.drafting.tree import NUM_DRAFT_TOKENS as NUM_TREE_TOKENS
from akunu_py.drafting.tree import TreeDrafter
from akunu_py.errors import ConfigError, ContractError
from akunu_py.types import Drafter

ENTRY_POINT_GROUP = "akunu.drafters"

_PLUG_IN_TOKENS = 4

WITH_DRAFT_MODEL = {DraftModelDrafter.name: False, f"{DraftModelDrafter.name}-ngram": True}
"""Drafters that ask a draft model, and whether n-grams guess what it will say."""


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """What one of akunu's own drafters is made from.

    Attributes:
        num_draft_tokens: most tokens of a draft.
        auto_state: what earlier replies left to `auto`; None: nothing.
        token_model: the draft model, where there is one.
        rejection: whether drafts of a draft model are drawn for rejection sampling.

    """

    num_draft_tokens: int
    auto_state: AutoState | None = None
    token_model: TokenModel | None = None
    rejection: bool = False


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A factory, and how many tokens the drafter drafts where nobody says."""

    make: Callable[[DrafterSetup], Drafter]
    num_draft_tokens: int


BUILT_IN: dict[str, _BuiltIn] = {
    "auto": _BuiltIn(
        lambda setup: AutoDrafter(state=setup.auto_state, max_length=setup.num_draft_tokens),
        MAX_LENGTH,
    ),
    "ngram": _BuiltIn(lambda setup: NgramDrafter(num_draft_tokens=setup.num_draft_tokens), 4),
    "ngram-window": _BuiltIn(
        lambda setup: WindowedNgramDrafter(num_draft_tokens=setup.num_draft_tokens), 4
    ),
    "lookup": _BuiltIn(lambda setup: LookupDrafter(num_draft_tokens=setup.num_draft_tokens), 10),
    "recycling": _BuiltIn(
        lambda setup: RecyclingDrafter(num_draft_tokens=setup.num_draft_tokens), 4
    ),
    "tree": _BuiltIn(
        lambda setup: TreeDrafter(num_draft_tokens=setup.num_draft_tokens), NUM_TREE_TOKENS
    ),
    "none": _BuiltIn(lambda _: PlainDrafter(), 0),
}


def drafter_names() -> tuple[str, ...]:
    """Return the names `make_drafter` knows without a draft model: akunu's own first."""
    offered = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(offered - BUILT_IN.keys()))


def default_num_draft_tokens(name: str) -> int:
    """Return the most tokens a drafter drafts for a pass where nobody says; 4 for a plug-in."""
    if name in WITH_DRAFT_MODEL:
        return NUM_DRAFT_TOKENS
    return BUILT_IN[name].num_draft_tokens if name in BUILT_IN else _PLUG_IN_TOKENS


def drafter_name(name: str | None, token_model: TokenModel | None) -> str:
    """Return the drafter that a config means: what it names, or the one to take by default."""
    if name is not None:
        return name
    return AutoDrafter.name if token_model is None else DraftModelDrafter.name


def make_drafter(
    name: str,
    *,
    num_draft_tokens: int | None = None,
    auto_state: AutoState | None = None,
    token_model: TokenModel | None = None,
    rejection: bool = False,
) -> Drafter:
    """Make the drafter of that name for one reply.

    `num_draft_tokens` is the most it drafts for a pass, its own default when left out;
    `auto_state` is for `auto` alone, `token_model` and `rejection` for those that ask a draft
    model. Raises ConfigError for an unknown name or a draft model that is missing, ContractError
    when a plug-in returns no drafter.
    """
    if num_draft_tokens is None:
        num_draft_tokens = default_num_draft_tokens(name)
    setup = DrafterSetup(num_draft_tokens, auto_state, token_model, rejection)
    if name in BUILT_IN:
        return BUILT_IN[name].make(setup)
    if name in WITH_DRAFT_MODEL:
        return _ask_draft_model(setup, hierarchical=WITH_DRAFT_MODEL[name])
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            drafter = point.load()(num_draft_tokens=num_draft_tokens)
            if not isinstance(drafter, Drafter):
                raise ContractError(
                    f"the plug-in {point.value!r} returned a {type(drafter).__name__} for the "
                    f"drafter {name!r}; a drafter has the methods observe and propose"
                )
            return drafter
    names = (*drafter_names(), *WITH_DRAFT_MODEL)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no drafter {name!r}; choose from {', '.join(names)}{hint}")


def _ask_draft_model(setup: DrafterSetup, *, hierarchical: bool) -> DraftModelDrafter:
    if setup.token_model is None:
        raise ConfigError(
            "there is no draft model to ask; load one with draft_model= or --draft-model"
        )
    return DraftModelDrafter(
        setup.token_model,
        num_draft_tokens=setup.num_draft_tokens,
        rejection=setup.rejection,
        hierarchical=hierarchical,
    )
