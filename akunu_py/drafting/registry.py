"""Drafters by name: akunu's own and those that installed packages offer.

A package offers one by an entry point of the group "akunu.drafters": a `DrafterKind`, or a function
that is called with a `DrafterSetup` and returns a `Drafter` for one reply.
"""

import difflib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import MAX_LENGTH
from akunu_py.drafting.draft_model import NUM_DRAFT_TOKENS, DraftModelDrafter, TokenModel
from akunu_py.drafting.ngram_settings import (
    NGRAM_DEFAULTS,
    NgramSettings,
    make_ngram_drafter,
)
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.errors import ConfigError, ContractError
from akunu_py.protocols import Drafter
from akunu_py.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.drafters"

Need = Literal["text", "candidates", "draft model", "counts"]
"""What a drafter drafts from besides the text: the target's likeliest tokens (`CandidateObserver`),
a second model, a file of counts."""


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """What a drafter is made from, for one reply.

    Attributes:
        num_draft_tokens: most tokens of a draft.
        config: how the reply is sampled and drafted.
        vocabulary_size: number of the target's logits; None where that is not known.
        token_texts: returns the text of each token id, as the vocabulary writes it.
        token_model: the engine's draft model, where there is one.
        load_token_model: loads a further model to draft with, from a path; it must have the
            target's vocabulary.
        counts: the file of n-gram counts that the engine was given, if any.
        kept: for what this drafter keeps from reply to reply; empty at the first.
        auto_state: what earlier replies left to `auto`; None: nothing.

    """

    num_draft_tokens: int
    config: GenerationConfig = field(default_factory=GenerationConfig)
    vocabulary_size: int | None = None
    token_texts: Callable[[], Sequence[str]] = lambda: ()
    token_model: TokenModel | None = None
    load_token_model: Callable[[Path], TokenModel] | None = None
    counts: Path | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    auto_state: AutoState | None = None

    @property
    def rejection(self) -> bool:
        """Whether drafts are drawn for rejection sampling."""
        return self.config.draft_sampling == "rejection"

    @property
    def known_token_model(self) -> TokenModel:
        """Return the draft model; raises ConfigError where there is none."""
        if self.token_model is None:
            raise ConfigError(
                "there is no draft model to ask; give draft_model when the model is loaded"
            )
        return self.token_model

    @property
    def known_vocabulary_size(self) -> int:
        """Return the number of the target's logits; raises ContractError where it is not known."""
        if self.vocabulary_size is None:
            raise ContractError("this drafter needs the size of the vocabulary")
        return self.vocabulary_size


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A drafter that can be chosen by name.

    Attributes:
        make: makes it for one reply.
        num_draft_tokens: most tokens that it drafts for a pass where nobody says.
        needs: what it drafts from; "text" where that is all.
        has_q: whether it draws from probabilities, which a rule of length needs.
        proposes_several: whether it may propose several tokens for a position.
        check: raises ConfigError for a configuration that it cannot follow, before what it needs
            is loaded; called with the configuration and the number of draft tokens.

    """

    make: Callable[[DrafterSetup], Drafter]
    num_draft_tokens: int = 4
    needs: Need = "text"
    has_q: bool = False
    proposes_several: bool = False
    check: Callable[[GenerationConfig, int], None] = lambda _config, _most: None


def _ngram(name: str) -> DrafterKind:
    """Return one of the drafters whose order and least match can be chosen."""

    def make(setup: DrafterSetup) -> Drafter:
        return make_ngram_drafter(name, setup.num_draft_tokens, NgramSettings.of(setup.config))

    return DrafterKind(make, NGRAM_DEFAULTS[name]["num_draft_tokens"])


def _auto(setup: DrafterSetup) -> Drafter:
    return AutoDrafter(state=setup.auto_state, max_length=setup.num_draft_tokens)


def _no_rule_of_length(config: GenerationConfig, _num_draft_tokens: int) -> None:
    if config.draft_length != "budget":
        raise ConfigError(
            f"draft_length is {config.draft_length!r}, a rule of akunu's laboratory, which is not "
            "installed; leave it out"
        )


def _draft_model(setup: DrafterSetup) -> Drafter:
    return DraftModelDrafter(
        setup.known_token_model,
        num_draft_tokens=setup.num_draft_tokens,
        rejection=setup.rejection,
    )


BUILT_IN: dict[str, DrafterKind] = {
    "auto": DrafterKind(_auto, MAX_LENGTH),
    "ngram": _ngram("ngram"),
    "ngram-window": _ngram("ngram-window"),
    "lookup": _ngram("lookup"),
    "draft-model": DrafterKind(
        _draft_model, NUM_DRAFT_TOKENS, needs="draft model", has_q=True, check=_no_rule_of_length
    ),
    "none": DrafterKind(lambda _: PlainDrafter(), 0),
}
"""Akunu's own."""


def drafter_names(*needs: Need) -> tuple[str, ...]:
    """Return the names of drafters that need only that, akunu's own first; all without a need."""
    return tuple(name for name in _names() if not needs or kind_of(name).needs in needs)


def kind_of(name: str, config: GenerationConfig | None = None) -> DrafterKind:
    """Return the drafter of that name; raises ConfigError for one that nobody offers.

    Rules of length and several proposals for a position are no matter of akunu's own drafters: for
    a configuration with them a plug-in of the same name is taken, where there is one.
    """
    studied = config is not None and (config.draft_length != "budget" or config.num_proposals > 1)
    if name in BUILT_IN and not (studied and name in _plug_ins() and _loaded(name)):
        return BUILT_IN[name]
    if name in _plug_ins():
        found = _loaded(name)
        if found is not None:
            return found
    names = drafter_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no drafter {name!r}; choose from {', '.join(names)}{hint}")


def proposes_several(name: str) -> bool:
    """Return whether a drafter, or a plug-in of its name, may propose several tokens at once."""
    return kind_of(name, GenerationConfig(num_proposals=2)).proposes_several


def default_num_draft_tokens(name: str) -> int:
    """Return the most tokens a drafter drafts for a pass where nobody says."""
    return kind_of(name).num_draft_tokens


def drafter_name(name: str | None, draft_model: object | None) -> str:
    """Return the drafter that a config means: what it names, or the one to take by default.

    That depends on whether there is a draft model.
    """
    if name is not None:
        return name
    return AutoDrafter.name if draft_model is None else DraftModelDrafter.name


def check_drafter(
    name: str, *, num_draft_tokens: int | None = None, config: GenerationConfig | None = None
) -> None:
    """Check what can be checked of a drafter before what it needs is loaded.

    Raises as `make_drafter` does, but for a draft model or counts that are missing.
    """
    config = config or GenerationConfig()
    kind = _checked_kind(name, config)
    most = kind.num_draft_tokens if num_draft_tokens is None else num_draft_tokens
    kind.check(config, most)
    if kind.needs in {"text", "candidates"}:
        make(name, DrafterSetup(most, config))


def make_drafter(
    name: str,
    *,
    num_draft_tokens: int | None = None,
    config: GenerationConfig | None = None,
    vocabulary_size: int | None = None,
    token_model: TokenModel | None = None,
    auto_state: AutoState | None = None,
) -> Drafter:
    """Make the drafter of that name for one reply, alone from these; see `DrafterSetup`.

    `num_draft_tokens` is its own number when left out, whatever the config says. Raises as `make`
    does.
    """
    setup = DrafterSetup(
        default_num_draft_tokens(name) if num_draft_tokens is None else num_draft_tokens,
        config or GenerationConfig(),
        vocabulary_size=vocabulary_size,
        token_model=token_model,
        auto_state=auto_state,
    )
    return make(name, setup)


def make(name: str, setup: DrafterSetup) -> Drafter:
    """Make the drafter of that name for one reply.

    Raises ConfigError for an unknown name, a draft model or counts that are missing, or a
    configuration that the drafter cannot follow; ContractError when a plug-in returns no drafter.
    """
    kind = _checked_kind(name, setup.config)
    kind.check(setup.config, setup.num_draft_tokens)
    drafter = kind.make(setup)
    if not isinstance(drafter, Drafter):
        raise ContractError(
            f"the drafter {name!r} is a {type(drafter).__name__}; a drafter has the methods "
            "observe and propose"
        )
    return drafter


def _checked_kind(name: str, config: GenerationConfig) -> DrafterKind:
    """Return a drafter that can follow a configuration, as far as its kind says."""
    kind = kind_of(name, config)
    NgramSettings.of(config).check_fit(name)
    if config.num_proposals > 1 and not kind.proposes_several:
        able = ", ".join(filter(proposes_several, _names()))
        raise ConfigError(
            f"num_proposals is {config.num_proposals} and the drafter {name!r} proposes one token "
            f"for a position; leave it out, or choose from {able}"
        )
    if config.draft_length != "budget" and not kind.has_q:
        known = (other for other in _names() if kind_of(other).has_q)
        raise ConfigError(
            f"draft_length is {config.draft_length!r} and the drafter {name!r} has no "
            f"probabilities to go by; leave it out, or choose from {', '.join(known)}"
        )
    return kind


def _names() -> tuple[str, ...]:
    """Return all names: akunu's own, then those of plug-ins that can be loaded, sorted."""
    others = (name for name in sorted(_plug_ins()) if name not in BUILT_IN)
    return (*BUILT_IN, *(name for name in others if _loaded(name) is not None))


@functools.cache
def _plug_ins() -> dict[str, EntryPoint]:
    """Return what installed packages offer; looking for it takes some 20 ms."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def forget_plug_ins() -> None:
    """Look for plug-ins anew: for tests, and after one was installed."""
    _plug_ins.cache_clear()
    _loaded.cache_clear()


@functools.cache
def _loaded(name: str) -> DrafterKind | None:
    """Return what a plug-in offers under a name; None where its module is not installed."""
    try:
        offered = _plug_ins()[name].load()
    except ModuleNotFoundError:
        return None
    return offered if isinstance(offered, DrafterKind) else DrafterKind(offered)
