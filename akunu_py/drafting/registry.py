"""Drafters by name: akunu's own and those that installed packages offer.

A package offers a drafter as an entry point of the group "akunu.drafters": a `DrafterKind`, or a
function of a `DrafterSetup` that returns a `Drafter` for one reply.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import MAX_LENGTH
from akunu_py.drafting.draft_model import NUM_DRAFT_TOKENS, DraftModelDrafter, TokenModel
from akunu_py.drafting.ngram_options import LookupOptions, NgramOptions, WindowOptions
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.prediction_head import NUM_DRAFT_TOKENS as NUM_HEAD_TOKENS
from akunu_py.drafting.prediction_head import HeadModel, PredictionHeadDrafter, default_length
from akunu_py.drafting.text_first import TextFirstDrafter
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.system.plug_ins import load_plug_in, plug_ins, without_laboratory
from akunu_py.values.generation_config import check_own_names, verifier_rules
from akunu_py.values.option_fields import DeclaredOption, make_options, options_of
from akunu_py.values.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.drafters"

Need = Literal["text", "candidates", "draft model", "file", "prediction head"]
"""Sources of a drafter besides the text: the target's likeliest tokens, a
second model, a file that its options name, or a prediction head of the model itself."""


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """Everything that a drafter can be made from, for one reply."""

    num_draft_tokens: int
    config: GenerationConfig = field(default_factory=GenerationConfig)
    options: Any = None
    """The drafter's own options, of the class that its kind names; `make` fills them in."""

    vocabulary_size: int | None = None
    """Number of the target's logits; None if unknown."""

    token_texts: Callable[[], Sequence[str]] = lambda: ()
    """Returns the text of each token id, as the vocabulary writes it."""

    token_model: TokenModel | None = None
    head_model: HeadModel | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    """Dictionary in which this drafter may keep state from reply to reply; empty at first."""

    auto_state: AutoState | None = None
    """State of `auto` after earlier replies; None to start anew."""

    @property
    def rejection(self) -> bool:
        """Whether drafts are drawn for rejection sampling."""
        return self.config.verifier.independent

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


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a drafter that has none."""


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A drafter that can be chosen by name."""

    make: Callable[[DrafterSetup], Drafter]
    num_draft_tokens: int = 4
    needs: Need = "text"
    """What it drafts from."""

    options: type[Any] = NoOptions
    """A frozen dataclass of its own options, declared with `option`; they become flags, settings,
    names of `/set` and, with `wire`, fields of requests."""

    check: Callable[[DrafterSetup], object] = lambda _setup: None
    """Raises ConfigError for options that it cannot follow, before anything is loaded."""

    def has(self, option: str) -> bool:
        """Return whether it has an option of its own of this name."""
        return any(declared.name == option for declared in options_of(self.options))

    @staticmethod
    def named(name: str, options: Collection[str] = ()) -> "DrafterKind":
        """Return the kind of a drafter by name; raises ConfigError for an unknown name.

        Of akunu's own drafter and a plug-in of its name it is the plug-in, if only that has all of
        the `options`.
        """
        own = BUILT_IN.get(name)
        if own is not None and all(map(own.has, options)):
            return own
        other = _load_plug_in(name)
        if other is not None and (own is None or all(map(other.has, options))):
            return other
        if own is not None:
            return own
        names = DrafterKind.names()
        said = f"there is no drafter named {name!r}; choose from {', '.join(names)}"
        raise ConfigError(without_laboratory(said + _near(name, names)))

    @staticmethod
    def names(*needs: Need) -> tuple[str, ...]:
        """Return the names of drafters with one of these needs, akunu's own first; else all."""
        return tuple(
            name for name in _names() if not needs or DrafterKind.named(name).needs in needs
        )


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


def _of_text(setup: DrafterSetup) -> Drafter:
    drafter: Drafter = setup.options.make(setup.num_draft_tokens)
    return drafter


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
    "ngram": DrafterKind(_of_text, options=NgramOptions),
    "ngram-window": DrafterKind(_of_text, options=WindowOptions),
    "lookup": DrafterKind(_of_text, 10, options=LookupOptions),
    "draft-model": DrafterKind(_draft_model, NUM_DRAFT_TOKENS, needs="draft model"),
    "mtp": DrafterKind(_prediction_head, NUM_HEAD_TOKENS, needs="prediction head"),
    "none": DrafterKind(lambda _: PlainDrafter(), 0),
}
"""Akunu's own drafters by name."""


def drafters_with(option: str) -> list[str]:
    """Return the names of the drafters that have an option of their own of this name."""
    return [name for name in _names() if DrafterKind.named(name, [option]).has(option)]


def draft_options() -> dict[str, DeclaredOption]:
    """Return the options that drafters and verifiers declare, by name."""
    plug_in_kinds = (_load_plug_in(name) for name in plug_ins(ENTRY_POINT_GROUP))
    kinds = (*BUILT_IN.values(), *filter(None, plug_in_kinds))
    found: dict[str, DeclaredOption] = {}
    for owner in (*(kind.options for kind in kinds), *verifier_rules()):
        for declared in options_of(owner):
            found.setdefault(declared.name, declared)
    return found


def default_num_draft_tokens(name: str) -> int:
    """Return a drafter's default limit of a draft, in tokens."""
    return DrafterKind.named(name).num_draft_tokens


def drafter_name(
    config: GenerationConfig, draft_model: object | None, head: object | None = None
) -> str:
    """Return the name of the drafter that a configuration asks for, or the default's name.

    The default is `auto`, which asks a draft model or a head as well. It is the drafter that only
    draws for draws that are verified by probability, and for options of that drafter.
    """
    if config.drafter is not None:
        return config.drafter
    if not config.draft_options:
        return AutoDrafter.name
    options = config.drafter_options
    for name, model in ((DraftModelDrafter.name, draft_model), (PredictionHeadDrafter.name, head)):
        shaped = options and all(map(DrafterKind.named(name, options).has, options))
        if model is not None and (config.verifier.independent or shaped):
            return name
    return AutoDrafter.name


def check_drafter(
    name: str, *, num_draft_tokens: int | None = None, config: GenerationConfig | None = None
) -> None:
    """Check a drafter and its configuration before anything is loaded.

    Raises as `make_drafter` does, except for a missing draft model, head or file.
    """
    config = config or GenerationConfig()
    kind, setup = _with_options(name, DrafterSetup(num_draft_tokens or 0, config))
    if num_draft_tokens is None:
        setup = replace(setup, num_draft_tokens=kind.num_draft_tokens)
    kind.check(setup)
    if kind.needs in {"text", "candidates"}:
        make(name, setup)


def check_drafting(config: GenerationConfig) -> None:
    """Check the options of drafters, and the drafter if one is named, before anything is loaded.

    Raises as `check_drafter` does.
    """
    known = draft_options() if config.draft_options else {}
    for name, value in config.draft_options.items():
        if name not in known:
            raise ConfigError(_unknown(name))
        known[name].kind.check(name, value)
    if isinstance(config.drafter, str):
        check_drafter(config.drafter, num_draft_tokens=config.num_draft_tokens, config=config)


def make_drafter(name: str, *, num_draft_tokens: int | None = None, **parts: Any) -> Drafter:
    """Make a drafter by name for one reply, from these parts of a `DrafterSetup` alone.

    `num_draft_tokens` defaults to the drafter's own number, whatever the configuration says. Raises
    as `make` does.
    """
    if num_draft_tokens is None:
        num_draft_tokens = default_num_draft_tokens(name)
    return make(name, DrafterSetup(num_draft_tokens, **parts))


def make(name: str, setup: DrafterSetup) -> Drafter:
    """Make a drafter by name for one reply.

    Raises ConfigError for an unknown name, a missing draft model, head or file, or a
    configuration that the drafter cannot follow; ContractError if a plug-in returns something else.
    """
    kind, setup = _with_options(name, setup)
    kind.check(setup)
    return Drafter.of(kind.make(setup), f"the drafter {name!r}")


def _with_options(name: str, setup: DrafterSetup) -> tuple[DrafterKind, DrafterSetup]:
    """Return the kind of a drafter, and the setup with its options; raises ConfigError."""
    given = setup.config.drafter_options
    kind = DrafterKind.named(name, given)
    for option in given:
        if not kind.has(option):
            able = ", ".join(drafters_with(option))
            raise ConfigError(
                f"the drafter {name!r} has no {option}; leave it out, or choose from {able}"
                if able
                else _unknown(option)
            )
    return kind, replace(setup, options=make_options(kind.options, given))


def _unknown(option: str) -> str:
    said = f"{option} is no option of a drafter or verifier that is installed"
    return without_laboratory(said + _near(option, draft_options()))


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _names() -> tuple[str, ...]:
    """Return all names: akunu's own drafters, then plug-ins that can be loaded, sorted."""
    others = (name for name in sorted(plug_ins(ENTRY_POINT_GROUP)) if name not in BUILT_IN)
    return (*BUILT_IN, *(name for name in others if _load_plug_in(name) is not None))


def _load_plug_in(name: str) -> DrafterKind | None:
    """Return the kind that a package offers by this name; None if there is none."""
    return load_plug_in(ENTRY_POINT_GROUP, name, _kind)


def _kind(offered: Any) -> DrafterKind:
    kind = offered if isinstance(offered, DrafterKind) else DrafterKind(offered)
    if not callable(kind.make):
        raise ContractError("it is neither a DrafterKind nor a function")
    check_own_names(kind.options)
    return kind
