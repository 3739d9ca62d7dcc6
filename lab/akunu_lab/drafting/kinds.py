"""The laboratory's drafters for the engine's registry, as entry points "akunu.drafters"."""

from pathlib import Path

from akunu_lab.counts import CorpusModel, CountDrafter, CountModel, NgramModel, load_counts
from akunu_lab.counts.drafter import NUM_DRAFT_TOKENS as NUM_COUNT_TOKENS
from akunu_lab.counts.drafter import CountDraws, SampledCountDrafter
from akunu_lab.counts.interpolation import MAX_VOCABULARY
from akunu_lab.drafting.adaptive_length import AfterDraws, LengthRule, length_rule
from akunu_lab.drafting.assisted import AssistedNgramDrafter
from akunu_lab.drafting.combined import CombinedDrafter, CombinedSource
from akunu_lab.drafting.head_tree import NUM_DRAFT_TOKENS as NUM_HEAD_TREE_TOKENS
from akunu_lab.drafting.head_tree import HeadTreeDrafter, check_head_tree
from akunu_lab.drafting.hierarchical import NgramGuesses
from akunu_lab.drafting.options import CorpusOptions, DrawOptions, HeadOptions, ModelOptions
from akunu_lab.drafting.proposals import ProposalsDrafter
from akunu_lab.drafting.recycling import RecyclingDrafter
from akunu_lab.drafting.shaped import ShapedDrafter
from akunu_lab.drafting.tree import NUM_DRAFT_TOKENS as NUM_TREE_TOKENS
from akunu_lab.drafting.tree import TreeDrafter
from akunu_py.api import (
    ConfigError,
    ContractError,
    Drafter,
    DrafterKind,
    DrafterSetup,
    vocabulary_fingerprint,
)

_NUM_DRAFT_TOKENS = DrafterKind.named("draft-model").num_draft_tokens

_CONFIDENT = 0.5
"""Least confidence with which an n-gram, which costs no pass, goes before a draft model."""


def _vocabulary_size(setup: DrafterSetup) -> int:
    if setup.vocabulary_size is None:
        raise ContractError("this drafter needs the size of the vocabulary")
    return setup.vocabulary_size


def _length(setup: DrafterSetup) -> LengthRule | None:
    return length_rule(setup.options, setup.num_draft_tokens)


def _counts(setup: DrafterSetup, model: CountModel, name: str) -> CountDrafter:
    most, length = setup.num_draft_tokens, _length(setup)
    temperature = setup.options.draft_temperature
    if setup.rejection and setup.vocabulary_size is not None:
        return SampledCountDrafter(
            model, num_draft_tokens=most, draft_temperature=temperature, length=length, name=name
        )
    # Without the size of the vocabulary the likeliest token is drafted at any temperature.
    draws: CountDraws = "greedy" if setup.vocabulary_size is None else "coupled"
    return CountDrafter(
        model, num_draft_tokens=most, draws=draws, draft_temperature=temperature, length=length,
        name=name,
    )  # fmt: skip


def _of_text(name: str, order: int) -> DrafterKind:
    """Return the kind of a drafter that counts a reply's own n-grams."""

    def make(setup: DrafterSetup) -> Drafter:
        model = NgramModel(setup.vocabulary_size or MAX_VOCABULARY, order=order)
        return _counts(setup, model, name)

    return DrafterKind(make, NUM_COUNT_TOKENS, options=DrawOptions, check=_length)


def _check_corpus(setup: DrafterSetup) -> None:
    if not setup.options.counts:
        raise ConfigError(
            "the drafter 'corpus' needs counts of a corpus: fit them with `akunu counts fit`, and "
            "give the file as counts (--counts FILE)"
        )
    _length(setup)


def _of_corpus(setup: DrafterSetup) -> Drafter:
    path = setup.options.counts
    known, model = setup.kept.get("corpus", (None, None))
    if known != path or model is None:
        fingerprint = vocabulary_fingerprint(setup.token_texts())
        found = load_counts(Path(path), fingerprint, setup.vocabulary_size)
        model = CorpusModel(found, order=found.order)
        setup.kept["corpus"] = path, model
    return _counts(setup, model, "corpus")


def _draft_model(setup: DrafterSetup, *, guesses: NgramGuesses | None = None) -> ShapedDrafter:
    rule, options = _length(setup), setup.options
    length = None if rule is None else AfterDraws(rule, _vocabulary_size(setup))
    if isinstance(options, ModelOptions) and options.num_proposals > 1:
        return ProposalsDrafter(
            setup.known_token_model,
            num_proposals=options.num_proposals,
            num_draft_tokens=setup.num_draft_tokens,
            rejection=setup.rejection,
            draft_temperature=options.draft_temperature,
            length=length,
            guesses=guesses,
        )
    return ShapedDrafter(
        setup.known_token_model,
        num_draft_tokens=setup.num_draft_tokens,
        rejection=setup.rejection,
        draft_temperature=options.draft_temperature,
        length=length,
        guesses=guesses,
    )


def _draft_model_ngram(setup: DrafterSetup) -> Drafter:
    return _draft_model(setup, guesses=NgramGuesses())


def _ngram_draft_model(setup: DrafterSetup) -> Drafter:
    sources = (
        CombinedSource(AssistedNgramDrafter(num_draft_tokens=setup.num_draft_tokens), _CONFIDENT),
        CombinedSource(_draft_model(setup)),
    )
    size = _vocabulary_size(setup) if setup.rejection else None
    return CombinedDrafter(sources, num_draft_tokens=setup.num_draft_tokens, vocabulary_size=size)


ngram_assisted = DrafterKind(
    lambda setup: AssistedNgramDrafter(num_draft_tokens=setup.num_draft_tokens), needs="candidates"
)
recycling = DrafterKind(
    lambda setup: RecyclingDrafter(num_draft_tokens=setup.num_draft_tokens), needs="candidates"
)
tree = DrafterKind(
    lambda setup: TreeDrafter(num_draft_tokens=setup.num_draft_tokens),
    NUM_TREE_TOKENS,
    needs="candidates",
)
unigram = _of_text("unigram", 1)
bigram = _of_text("bigram", 2)
counts = _of_text("counts", 4)
corpus = DrafterKind(
    _of_corpus, NUM_COUNT_TOKENS, needs="file", options=CorpusOptions, check=_check_corpus
)
draft_model = DrafterKind(
    _draft_model,
    _NUM_DRAFT_TOKENS,
    needs="draft model",
    options=ModelOptions,
    check=_length,
)
"""The engine's drafter with a length rule or several proposals for a position."""

draft_model_ngram = DrafterKind(
    _draft_model_ngram,
    _NUM_DRAFT_TOKENS,
    needs="draft model",
    options=ModelOptions,
    check=_length,
)
ngram_draft_model = DrafterKind(
    _ngram_draft_model, _NUM_DRAFT_TOKENS, needs="draft model", options=DrawOptions, check=_length
)
mtp = DrafterKind(
    lambda setup: HeadTreeDrafter(
        setup.known_head_model,
        num_proposals=setup.options.num_proposals,
        num_draft_tokens=setup.num_draft_tokens,
    ),
    NUM_HEAD_TREE_TOKENS,
    needs="prediction head",
    options=HeadOptions,
    check=check_head_tree,
)
"""The engine's drafter with several proposals for a position."""
