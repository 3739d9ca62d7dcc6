"""Drafters by name: akunu's own and those that installed packages offer.

A package offers a drafter as an entry point of the group "akunu.drafters": a `DrafterKind`, or a
function of a `DrafterSetup` that returns a `Drafter` for one reply.
"""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
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
from akunu_py.drafting.prediction_head import NUM_DRAFT_TOKENS as NUM_HEAD_TOKENS
from akunu_py.drafting.prediction_head import HeadModel, PredictionHeadDrafter, default_length
from akunu_py.drafting.text_first import TextFirstDrafter
from akunu_py.protocols import Drafter, as_drafter
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.drafters"

Need = Literal["text", "candidates", "draft model", "counts", "prediction head"]
"""Sources of a drafter besides the text: the target's likeliest tokens, a
second model, a file of counts, or a prediction head of the model itself."""


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """Everything that a drafter can be made from, for one reply."""

    num_draft_tokens: int
    config: GenerationConfig = field(default_factory=GenerationConfig)
    vocabulary_size: int | None = None
    """Number of the target's logits; None if unknown."""

    token_texts: Callable[[], Sequence[str]] = lambda: ()
    """Returns the text of each token id, as the vocabulary writes it."""

    token_model: TokenModel | None = None
    load_token_model: Callable[[Path], TokenModel] | None = None
    """Loads another model to draft with from a path; it must have the target's vocabulary."""

    head_model: HeadModel | None = None
    counts: Path | None = None
    """File of n-gram counts that the engine was given, if any."""

    kept: dict[str, Any] = field(default_factory=dict)
    """Dictionary in which this drafter may keep state from reply to reply; empty at first."""

    auto_state: AutoState | None = None
    """State of `auto` after earlier replies; None to start anew."""

    @property
    def rejection(self) -> bool:
        """Whether drafts are drawn for rejection sampling."""
        return self.config.draft_sampling == "rejection"

    @property
    def known_token_model(self) -> TokenModel:
        """Return the draft model; raises ConfigError if there is none."""
        if self.token_model is None:
            raise ConfigError(
                "there is no draft model to ask; give draft_model when the model is loaded"
            )
        return self.token_model

    @property
    def known_head_model(self) -> HeadModel:
        """Return the prediction head; raises ConfigError if there is none."""
        if self.head_model is None:
            raise ConfigError(
                "mtp needs a prediction head, and none was loaded; load the model with heads: own "
                "for the model's own, or the path of a file or folder that has one"
            )
        return self.head_model

    @property
    def known_vocabulary_size(self) -> int:
        """Return the number of the target's logits; raises ContractError if it is unknown."""
        if self.vocabulary_size is None:
            raise ContractError("this drafter needs the size of the vocabulary")
        return self.vocabulary_size


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A drafter that can be chosen by name."""

    make: Callable[[DrafterSetup], Drafter]
    num_draft_tokens: int = 4
    needs: Need = "text"
    """What it drafts from."""

    has_q: bool = False
    """Whether the drafter draws from probabilities, which length rules need."""

    settings: Mapping[str, int] = field(default_factory=dict)
    """Defaults of its other settings, by the names of options without "ngram_"."""

    proposes_several: bool = False
    """Whether the drafter may propose several tokens for a position."""

    check: Callable[[GenerationConfig, int], None] = lambda _config, _most: None
    """Raises ConfigError for a configuration that it cannot follow, before anything is loaded;
    called with the configuration and the number of draft tokens."""

    @staticmethod
    def named(name: str, config: GenerationConfig | None = None) -> "DrafterKind":
        """Return the kind of a drafter by name; raises ConfigError for an unknown name.

        A configuration with length rules or several proposals prefers a plug-in of that name.
        """
        return kind_of(name, config)

    @staticmethod
    def names(*needs: Need) -> tuple[str, ...]:
        """Return the names of drafters with one of these needs, akunu's own first; else all."""
        return drafter_names(*needs)


def _ngram(name: str) -> DrafterKind:
    """Return the kind of an n-gram drafter, with its settings."""

    def make(setup: DrafterSetup) -> Drafter:
        return make_ngram_drafter(name, setup.num_draft_tokens, NgramSettings.of(setup.config))

    settings = dict(NGRAM_DEFAULTS[name])
    return DrafterKind(make, settings.pop("num_draft_tokens"), settings=settings)


def _auto(setup: DrafterSetup) -> Drafter:
    """Make `auto`, with a model where there is one; of two the head, whose passes are shorter.

    Drafts for rejection sampling are copied only: a draft that mixes draws would need the
    distributions of both.
    """
    most = setup.num_draft_tokens
    text = AutoDrafter(state=setup.auto_state, max_length=most)
    if setup.rejection:
        return text
    if setup.head_model is not None:
        longest = min(most, default_length(setup.head_model))
        head = PredictionHeadDrafter(setup.head_model, num_draft_tokens=longest)
        return TextFirstDrafter(text, head)
    if setup.token_model is not None:
        return TextFirstDrafter(
            text, DraftModelDrafter(setup.token_model, num_draft_tokens=min(most, NUM_DRAFT_TOKENS))
        )
    return text


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


def _prediction_head(setup: DrafterSetup) -> Drafter:
    return PredictionHeadDrafter(
        setup.known_head_model,
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
    "mtp": DrafterKind(_prediction_head, NUM_HEAD_TOKENS, needs="prediction head"),
    "none": DrafterKind(lambda _: PlainDrafter(), 0),
}
"""Akunu's own drafters by name."""


def drafter_names(*needs: Need) -> tuple[str, ...]:
    """Return the names of drafters with one of these needs, akunu's own first; else all."""
    return tuple(name for name in _names() if not needs or kind_of(name).needs in needs)


def kind_of(name: str, config: GenerationConfig | None = None) -> DrafterKind:
    """Return the kind of a drafter by name; raises ConfigError for an unknown name.

    Akunu's own drafters know neither length rules nor several proposals for a position. For a
    configuration with these, a plug-in of the same name is preferred.
    """
    studied = config is not None and (config.draft_length != "budget" or config.num_proposals > 1)
    if name in BUILT_IN and not (studied and name in _plug_ins() and _load_plug_in(name)):
        return BUILT_IN[name]
    if name in _plug_ins():
        found = _load_plug_in(name)
        if found is not None:
            return found
    names = drafter_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no drafter named {name!r}; choose from {', '.join(names)}{hint}")


def proposes_several(name: str) -> bool:
    """Return whether a drafter, or a plug-in of its name, may propose several tokens at once."""
    return kind_of(name, GenerationConfig(num_proposals=2)).proposes_several


def default_num_draft_tokens(name: str) -> int:
    """Return a drafter's default limit of a draft, in tokens."""
    return kind_of(name).num_draft_tokens


def drafter_name(
    config: GenerationConfig, draft_model: object | None, head: object | None = None
) -> str:
    """Return the name of the drafter that a configuration asks for, or the default's name.

    The default is `auto`, which asks a draft model or a head as well. Options about a model's
    draws make it the drafter that only draws.
    """
    if config.drafter is not None:
        return config.drafter
    if config.shapes_draws and draft_model is not None:
        return DraftModelDrafter.name
    if config.shapes_draws and head is not None:
        return PredictionHeadDrafter.name
    return AutoDrafter.name


def check_drafter(
    name: str, *, num_draft_tokens: int | None = None, config: GenerationConfig | None = None
) -> None:
    """Check a drafter and its configuration before anything is loaded.

    Raises as `make_drafter` does, except for a missing draft model, head or counts.
    """
    config = config or GenerationConfig()
    kind = _check_kind(name, config)
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
    head_model: HeadModel | None = None,
    auto_state: AutoState | None = None,
) -> Drafter:
    """Make a drafter by name for one reply, from these parts of a `DrafterSetup` alone.

    `num_draft_tokens` defaults to the drafter's own number, whatever the configuration says. Raises
    as `make` does.
    """
    setup = DrafterSetup(
        default_num_draft_tokens(name) if num_draft_tokens is None else num_draft_tokens,
        config or GenerationConfig(),
        vocabulary_size=vocabulary_size,
        token_model=token_model,
        head_model=head_model,
        auto_state=auto_state,
    )
    return make(name, setup)


def make(name: str, setup: DrafterSetup) -> Drafter:
    """Make a drafter by name for one reply.

    Raises ConfigError for an unknown name, a missing draft model, head or counts, or a
    configuration that the drafter cannot follow; ContractError if a plug-in returns something else.
    """
    kind = _check_kind(name, setup.config)
    kind.check(setup.config, setup.num_draft_tokens)
    return as_drafter(kind.make(setup), f"the drafter {name!r}")


def _check_kind(name: str, config: GenerationConfig) -> DrafterKind:
    """Return the kind of a drafter; raises ConfigError if it cannot follow the configuration."""
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
            f"probabilities to decide by; leave it out, or choose from {', '.join(known)}"
        )
    return kind


def _names() -> tuple[str, ...]:
    """Return all names: akunu's own drafters, then plug-ins that can be loaded, sorted."""
    others = (name for name in sorted(_plug_ins()) if name not in BUILT_IN)
    return (*BUILT_IN, *(name for name in others if _load_plug_in(name) is not None))


@functools.cache
def _plug_ins() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages; the search takes about 20 ms."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def forget_plug_ins() -> None:
    """Forget known plug-ins, for tests and after an installation."""
    _plug_ins.cache_clear()
    _load_plug_in.cache_clear()


@functools.cache
def _load_plug_in(name: str) -> DrafterKind | None:
    """Return the object of a plug-in; None if its module is not installed."""
    try:
        offered = _plug_ins()[name].load()
    except ModuleNotFoundError:
        return None
    return offered if isinstance(offered, DrafterKind) else DrafterKind(offered)
