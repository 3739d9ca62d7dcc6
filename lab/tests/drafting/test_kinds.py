"""The drafters of the laboratory by name, and the rules of length that they take."""

import pytest

from akunu_lab.counts import CorpusModel, fit_counts
from akunu_lab.drafting.adaptive_length import (
    EntropyLength,
    FixedLength,
    LowerBoundStop,
    length_rule,
)
from akunu_lab.drafting.options import DrawOptions
from akunu_py.drafting import (
    DrafterKind,
    check_drafter,
    default_num_draft_tokens,
    make_drafter,
    registry,
)
from akunu_py.drafting.registry import DrafterSetup
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig


def test_each_is_made_by_name():
    assert DrafterKind.names("text", "candidates") == (
        "auto", "ngram", "ngram-window", "lookup", "none",
        "bigram", "counts", "ngram-assisted", "recycling", "tree", "unigram",
    )  # fmt: skip
    assert DrafterKind.names() == (
        "auto", "ngram", "ngram-window", "lookup", "draft-model", "mtp", "none",
        "bigram", "corpus", "counts", "draft-model-ngram", "ngram-assisted", "ngram-draft-model",
        "recycling", "tree", "unigram",
    )  # fmt: skip
    for name in ("bigram", "counts", "ngram-assisted", "recycling", "tree", "unigram"):
        drafter = make_drafter(name, num_draft_tokens=2)
        drafter.observe([1, 2, 1, 2, 1])
        # recycling drafts where it was told of candidates.
        assert len(drafter.propose(9)) == (0 if name == "recycling" else 2)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("recycling", 4),
        ("tree", 16),
        ("ngram-assisted", 4),
        ("unigram", 4),
        ("bigram", 4),
        ("counts", 4),
    ],
)
def test_each_has_a_number_of_tokens_of_its_own(name, count):
    assert default_num_draft_tokens(name) == count
    drafter = make_drafter(name)
    assert drafter.num_draft_tokens == count
    if name not in {"unigram", "bigram", "counts"}:
        assert type(drafter)().num_draft_tokens == count  # the class says the same


def test_missing_counts_are_said_with_how_to_get_them():
    (name,) = DrafterKind.names("file")
    for check in (check_drafter, make_drafter):
        with pytest.raises(ConfigError, match=r"akunu counts fit.*--counts"):
            check(name)
    with pytest.raises(ConfigError, match="did you mean 'corpus'"):
        check_drafter("corpsu")


class NoModel:
    """A token model that is never asked."""


def made(name, config, corpus):
    setup = DrafterSetup(
        4, config, vocabulary_size=8, kept={"corpus": ("any", corpus)}
    )  # fmt: skip
    return registry.make(name, setup)


def test_counts_draw_as_the_reply_does():
    """Coupled to the target's noise, independently for rejection, at their own temperature."""
    corpus = CorpusModel(fit_counts([[1, 2, 3, 1, 2, 4]], 8))
    for name in ("unigram", "bigram", "counts", "corpus"):
        for sampling, sampled in (("coupled", False), ("rejection", True)):
            config = GenerationConfig(temperature=1.5, draft_options={"draft_sampling": sampling})
            if name == "corpus":
                config = config.with_values({"counts": "any"})
            drafter = made(name, config, corpus)
            assert drafter.draws == sampled
            drafts = set()
            for seed in range(30):
                drafter = made(name, config, corpus)
                drafter.begin_reply(config, seed)
                drafter.observe([1, 2, 3, 1, 2, 4, 1])
                draft = drafter.propose(3)
                assert draft.source == name
                assert bool(draft.confidence) != sampled
                drafts.add(draft.tokens)
            assert len(drafts) > 5
    # Without the vocabulary's size nothing is drawn: the likeliest token, whatever the noise.
    for sampling in ("coupled", "rejection"):
        config = GenerationConfig(temperature=1.5, draft_options={"draft_sampling": sampling})
        drafter = make_drafter("bigram", config=config)
        drafter.begin_reply(config, 5)
        drafter.observe([1, 2, 3, 1, 2, 3, 1])
        assert drafter.propose(3).tokens == (2, 3, 1)


def test_a_draft_temperature_is_for_counts_too():
    config = GenerationConfig(temperature=1.5, draft_options={"draft_temperature": 0})
    for seed in range(10):
        drafter = make_drafter("counts", config=config, vocabulary_size=8)
        drafter.begin_reply(config, seed)
        drafter.observe([1, 2, 3, 1, 2, 3, 1])
        assert drafter.propose(4).tokens == (2, 3, 1, 2)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, FixedLength),
        ({"draft_length": "fixed"}, FixedLength),
        ({"draft_length": "entropy"}, EntropyLength),
        ({"draft_length": "lower-bound"}, LowerBoundStop),
    ],
)
def test_rules_of_length_for_counts(options, kind):
    config = GenerationConfig(draft_options=options)
    drafter = make_drafter("counts", config=config, num_draft_tokens=6, vocabulary_size=8)
    assert type(drafter.length) is kind


def test_the_numbers_of_a_rule():
    entropy = DrawOptions(draft_length="entropy", min_draft_tokens=2, draft_length_beta=0.5)
    rule = length_rule(entropy, 6)
    assert (rule.shortest, rule.longest, rule.beta) == (2, 6, 0.5)
    assert length_rule(DrawOptions(draft_length="entropy"), 6).shortest == 1
    assert length_rule(DrawOptions(draft_length="entropy"), 0).longest == 0
    bound = DrawOptions(draft_length="lower-bound", draft_length_bound=0.9)
    assert length_rule(bound, 6).bound == 0.9
    assert length_rule(DrawOptions(draft_length="lower-bound"), 6).bound == 0.4
    assert length_rule(DrawOptions(), 6) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft_length": "entropy", "min_draft_tokens": 5}, "min_draft_tokens is 5, and at most 4"),
        ({"draft_length": "long"}, "draft_length is 'long'"),
        ({"min_draft_tokens": 2}, "for draft_length 'entropy', but draft_length is 'budget'"),
        ({"draft_length_bound": 0.2, "draft_length": "entropy"}, "for draft_length 'lower-bound'"),
        ({"draft_length": "entropy", "min_draft_tokens": -1}, "min_draft_tokens is -1"),
        ({"draft_length": "entropy", "draft_length_beta": 1.0}, "draft_length_beta is 1"),
        ({"draft_length": "entropy", "draft_length_beta": -0.1}, "draft_length_beta is -0.1"),
        ({"draft_length": "lower-bound", "draft_length_bound": 1.1}, "draft_length_bound is 1.1"),
    ],
)  # fmt: skip
def test_lengths_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        check_drafter(
            "draft-model", num_draft_tokens=4, config=GenerationConfig(draft_options=options)
        )


@pytest.mark.parametrize("rule", ["fixed", "entropy", "lower-bound"])
def test_a_rule_needs_a_drafter_with_probabilities(rule):
    config = GenerationConfig(draft_options={"draft_length": rule})
    for name in ("auto", "ngram", "lookup", "recycling", "tree", "ngram-assisted", "none"):
        with pytest.raises(ConfigError, match=rf"{name}' has no draft_length.*bigram"):
            make_drafter(name, config=config)
    for name in ("unigram", "bigram", "draft-model", "ngram-draft-model"):
        check_drafter(name, config=config)


def test_a_rule_reaches_the_draft_model():
    for name in DrafterKind.names("draft model"):
        config = GenerationConfig(draft_options={"draft_length": "entropy"})
        drafter = make_drafter(name, config=config, token_model=NoModel(), vocabulary_size=8)
        model = drafter if name != "ngram-draft-model" else drafter.sources[1].drafter
        assert type(model._length.rule) is EntropyLength
