"""Drafters by name: akunu's own and those that installed packages offer.

A package offers one by an entry point of the group "akunu.drafters" whose object is a factory:
called with `num_draft_tokens=N`, it returns a `Drafter` for one reply.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from akunu_py.drafting.adaptive_length import AfterDraws, LengthRule, length_rule
from akunu_py.drafting.assisted import AssistedNgramDrafter
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import MAX_LENGTH
from akunu_py.drafting.combined import CombinedDrafter, Source, combine
from akunu_py.drafting.counts.drafter import NUM_DRAFT_TOKENS as NUM_COUNT_TOKENS
from akunu_py.drafting.counts.drafter import CountDrafter, CountDraws, SampledCountDrafter
from akunu_py.drafting.counts.interpolation import MAX_VOCABULARY, CountModel
from akunu_py.drafting.counts.ngram_model import NgramModel
from akunu_py.drafting.draft_model import NUM_DRAFT_TOKENS, DraftModelDrafter, TokenModel
from akunu_py.drafting.ngram_settings import (
    NGRAM_DEFAULTS,
    NgramSettings,
    make_ngram_drafter,
)
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.proposals import ProposalsDrafter
from akunu_py.drafting.recycling import RecyclingDrafter
from akunu_py.drafting.tree import NUM_DRAFT_TOKENS as NUM_TREE_TOKENS
from akunu_py.drafting.tree import TreeDrafter
from akunu_py.errors import ConfigError, ContractError
from akunu_py.protocols import Drafter
from akunu_py.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.drafters"

_PLUG_IN_TOKENS = 4

_CONFIDENT = 0.5
"""From even odds on an n-gram goes before a draft model: what it says costs no pass."""


@dataclass(frozen=True, slots=True)
class DrafterSetup:
    """What one of akunu's own drafters is made from.

    Attributes:
        num_draft_tokens: most tokens of a draft.
        config: how the reply is sampled and drafted.
        auto_state: what earlier replies left to `auto`; None: nothing.
        token_model: the draft model, where there is one.
        corpus: the counts of a corpus, where there are any.
        vocabulary_size: number of the target's logits; None where that is not known: then counts
            draft their likeliest token, whatever the temperature.

    """

    num_draft_tokens: int
    config: GenerationConfig = field(default_factory=GenerationConfig)
    auto_state: AutoState | None = None
    token_model: TokenModel | None = None
    corpus: CountModel | None = None
    vocabulary_size: int | None = None

    @property
    def rejection(self) -> bool:
        """Whether drafts are drawn for rejection sampling."""
        return self.config.draft_sampling == "rejection"

    @property
    def length(self) -> LengthRule | None:
        """Return a rule of length for one drafter, None where only limits end its drafts."""
        return length_rule(self.config, self.num_draft_tokens)

    @property
    def known_vocabulary_size(self) -> int:
        """Return the number of the target's logits; raises ContractError where it is not known."""
        if self.vocabulary_size is None:
            raise ContractError("this drafter needs the size of the vocabulary")
        return self.vocabulary_size


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A drafter of akunu's own.

    `num_draft_tokens` is how many it drafts where nobody says; `has_q` says whether it draws from
    probabilities, which a rule of length needs.
    """

    make: Callable[[DrafterSetup], Drafter]
    num_draft_tokens: int
    has_q: bool = False


def _of_text(name: str, order: int) -> _BuiltIn:
    """Return the drafter that counts a reply's own n-grams."""

    def make(setup: DrafterSetup) -> Drafter:
        return _counts(
            setup, NgramModel(setup.vocabulary_size or MAX_VOCABULARY, order=order), name
        )

    return _BuiltIn(make, NUM_COUNT_TOKENS, has_q=True)


def _of_corpus(setup: DrafterSetup) -> Drafter:
    if setup.corpus is None:
        raise ConfigError(
            "there are no counts of a corpus to draft from; fit them with `akunu counts fit` and "
            "load them with counts= or --counts"
        )
    return _counts(setup, setup.corpus, "corpus")


def _counts(setup: DrafterSetup, model: CountModel, name: str) -> CountDrafter:
    most, length = setup.num_draft_tokens, setup.length
    if setup.rejection and setup.vocabulary_size is not None:
        return SampledCountDrafter(model, num_draft_tokens=most, length=length, name=name)
    draws: CountDraws = "greedy" if setup.vocabulary_size is None else "coupled"
    return CountDrafter(model, num_draft_tokens=most, draws=draws, length=length, name=name)


def _draft_model(setup: DrafterSetup, *, hierarchical: bool = False) -> DraftModelDrafter:
    if setup.token_model is None:
        raise ConfigError(
            "there is no draft model to ask; load one with draft_model= or --draft-model"
        )
    rule = setup.length
    length = None if rule is None else AfterDraws(rule, setup.known_vocabulary_size)
    if setup.config.num_proposals > 1:
        return ProposalsDrafter(
            setup.token_model,
            num_proposals=setup.config.num_proposals,
            num_draft_tokens=setup.num_draft_tokens,
            rejection=setup.rejection,
            length=length,
            hierarchical=hierarchical,
        )
    return DraftModelDrafter(
        setup.token_model,
        num_draft_tokens=setup.num_draft_tokens,
        rejection=setup.rejection,
        length=length,
        hierarchical=hierarchical,
    )


def _ngram_draft_model(setup: DrafterSetup) -> CombinedDrafter:
    sources = (
        Source(AssistedNgramDrafter(num_draft_tokens=setup.num_draft_tokens), _CONFIDENT),
        Source(_draft_model(setup)),
    )
    size = setup.known_vocabulary_size if setup.rejection else None
    return combine(sources, num_draft_tokens=setup.num_draft_tokens, vocabulary_size=size)


def _ngram(name: str) -> _BuiltIn:
    """Return one of the drafters whose order and least match can be chosen."""

    def make(setup: DrafterSetup) -> Drafter:
        return make_ngram_drafter(name, setup.num_draft_tokens, NgramSettings.of(setup.config))

    return _BuiltIn(make, NGRAM_DEFAULTS[name]["num_draft_tokens"])


BUILT_IN: dict[str, _BuiltIn] = {
    "auto": _BuiltIn(
        lambda setup: AutoDrafter(state=setup.auto_state, max_length=setup.num_draft_tokens),
        MAX_LENGTH,
    ),
    "ngram": _ngram("ngram"),
    "ngram-window": _ngram("ngram-window"),
    "ngram-assisted": _BuiltIn(
        lambda setup: AssistedNgramDrafter(num_draft_tokens=setup.num_draft_tokens), 4
    ),
    "lookup": _ngram("lookup"),
    "recycling": _BuiltIn(
        lambda setup: RecyclingDrafter(num_draft_tokens=setup.num_draft_tokens), 4
    ),
    "tree": _BuiltIn(
        lambda setup: TreeDrafter(num_draft_tokens=setup.num_draft_tokens), NUM_TREE_TOKENS
    ),
    "unigram": _of_text("unigram", 1),
    "bigram": _of_text("bigram", 2),
    "counts": _of_text("counts", 4),
    "none": _BuiltIn(lambda _: PlainDrafter(), 0),
}
"""Drafters that need nothing but the text."""

WITH_COUNTS: dict[str, _BuiltIn] = {"corpus": _BuiltIn(_of_corpus, NUM_COUNT_TOKENS, has_q=True)}
"""Drafters that need the counts of a corpus (`akunu counts fit`)."""

WITH_DRAFT_MODEL: dict[str, _BuiltIn] = {
    "draft-model": _BuiltIn(_draft_model, NUM_DRAFT_TOKENS, has_q=True),
    "draft-model-ngram": _BuiltIn(
        lambda setup: _draft_model(setup, hierarchical=True), NUM_DRAFT_TOKENS, has_q=True
    ),
    "ngram-draft-model": _BuiltIn(_ngram_draft_model, NUM_DRAFT_TOKENS, has_q=True),
}
"""Drafters that ask a draft model."""

_PROPOSING = ("draft-model", "draft-model-ngram")
"""Drafters that may propose several tokens for a position."""

_OWN = {**BUILT_IN, **WITH_COUNTS, **WITH_DRAFT_MODEL}


def drafter_names() -> tuple[str, ...]:
    """Return the names of drafters that need nothing but the text: akunu's own first."""
    offered = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(offered - _OWN.keys()))


def all_drafter_names() -> tuple[str, ...]:
    """Return all names: those of `drafter_names`, and those that need counts or a draft model."""
    return (*drafter_names(), *WITH_COUNTS, *WITH_DRAFT_MODEL)


def default_num_draft_tokens(name: str) -> int:
    """Return the most tokens a drafter drafts for a pass where nobody says; 4 for a plug-in."""
    return _OWN[name].num_draft_tokens if name in _OWN else _PLUG_IN_TOKENS


def has_probabilities(name: str) -> bool:
    """Return whether a drafter draws from probabilities, as a rule of length needs."""
    return name in _OWN and _OWN[name].has_q


def proposes_several(name: str) -> bool:
    """Return whether a drafter may propose several tokens for a position."""
    return name in _PROPOSING


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
    if num_draft_tokens is None:
        num_draft_tokens = default_num_draft_tokens(name)
    if name not in WITH_COUNTS and name not in WITH_DRAFT_MODEL:
        make_drafter(name, num_draft_tokens=num_draft_tokens, config=config)
    elif config is not None:
        NgramSettings.of(config).check_fit(name)
        _check_proposals(name, config)
        length_rule(config, num_draft_tokens)


def make_drafter(
    name: str,
    *,
    num_draft_tokens: int | None = None,
    config: GenerationConfig | None = None,
    auto_state: AutoState | None = None,
    token_model: TokenModel | None = None,
    corpus: CountModel | None = None,
    vocabulary_size: int | None = None,
) -> Drafter:
    """Make the drafter of that name for one reply.

    `num_draft_tokens` is the most it drafts for a pass, its own default when left out, whatever the
    config says; the others are the attributes of `DrafterSetup`.

    Raises ConfigError for an unknown name, a draft model or counts that are missing, a rule of
    length for a drafter without probabilities or settings of n-grams for one without them;
    ContractError when a plug-in returns no drafter.
    """
    config = config or GenerationConfig()
    NgramSettings.of(config).check_fit(name)
    if num_draft_tokens is None:
        num_draft_tokens = default_num_draft_tokens(name)
    built_in = _OWN.get(name)
    if built_in is None:
        drafter = _plug_in(name, num_draft_tokens)
        _check_proposals(name, config)
        _check_length(name, config, has_q=False)
        return drafter
    _check_proposals(name, config)
    _check_length(name, config, has_q=built_in.has_q)
    setup = DrafterSetup(
        num_draft_tokens, config, auto_state, token_model, corpus, vocabulary_size
    )  # fmt: skip
    return built_in.make(setup)


def _check_proposals(name: str, config: GenerationConfig) -> None:
    if config.num_proposals > 1 and name not in _PROPOSING:
        raise ConfigError(
            f"num_proposals is {config.num_proposals} and the drafter {name!r} proposes one token "
            f"for a position; leave it out, or choose from {', '.join(_PROPOSING)}"
        )


def _check_length(name: str, config: GenerationConfig, *, has_q: bool) -> None:
    if config.draft_length != "budget" and not has_q:
        known = ", ".join(name for name, built_in in _OWN.items() if built_in.has_q)
        raise ConfigError(
            f"draft_length is {config.draft_length!r} and the drafter {name!r} has no "
            f"probabilities to go by; leave it out, or choose from {known}"
        )


def _plug_in(name: str, num_draft_tokens: int) -> Drafter:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            drafter = point.load()(num_draft_tokens=num_draft_tokens)
            if not isinstance(drafter, Drafter):
                raise ContractError(
                    f"the plug-in {point.value!r} returned a {type(drafter).__name__} for the "
                    f"drafter {name!r}; a drafter has the methods observe and propose"
                )
            return drafter
    names = all_drafter_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"there is no drafter {name!r}; choose from {', '.join(names)}{hint}")
