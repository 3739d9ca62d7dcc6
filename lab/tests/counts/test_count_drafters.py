"""Counts, combinations and rules of length in the engine: the stream, the law, and what is said of both.

Mutants, made by hand, that these tests kill: a reply's config that does not reach its drafter; counts of
another vocabulary taken; pairs asked of counts without them; a combination whose draft model no budget asks.
"""

import itertools

import mlx.core as mx
import pytest
from pairwise import each_value
from shared_files import ROOT
from whole_replies import above_the_mean
from with_counts import WithCounts

from akunu_lab.counts import fit_counts, save_counts, text_pieces
from akunu_py import ConfigError, Engine, GenerationConfig
from akunu_py.drafting import vocabulary_fingerprint
from akunu_py.sampling.transforms import TransformChain

PROMPT = "def hello(world):\n    return world"
MESSAGES = [{"role": "user", "content": "Write a function that adds two numbers."}]
PENALTIES = {"repetition_penalty": 1.15, "frequency_penalty": 0.1}
OPTIONS = {
    "greedy": {},
    "greedy, penalties": PENALTIES,
    "0.7": {"temperature": 0.7, "seed": 5},
    "0.7, penalties": {"temperature": 0.7, "seed": 6, **PENALTIES},
    "1.3": {"temperature": 1.3, "seed": 7},
    "1.3, penalties": {"temperature": 1.3, "seed": 8, **PENALTIES},
}
OF_TEXT = ("unigram", "bigram", "counts", "corpus")
NAMES = (*OF_TEXT, "ngram-assisted", "ngram-draft-model")
WITH_Q = (*OF_TEXT, "draft-model", "draft-model-ngram", "ngram-draft-model")
CORPUS = ROOT / "docs" / "architecture.md"


def fitted(tokenizer, path, *, corpus=CORPUS, order=2):
    counts = fit_counts(text_pieces(corpus, tokenizer), tokenizer.vocabulary_size, order=order)
    save_counts(counts, path, vocabulary_fingerprint(tokenizer.token_texts()))
    return path


@pytest.fixture(scope="module")
def shipped(default_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("counts") / "docs.counts"
    with Engine.load(default_model) as engine:
        fitted(engine.tokenizer, path)
    draft = default_model.with_name("akunu-tiny-draft.gguf")
    with Engine.load(default_model, draft_model=draft) as engine:
        yield WithCounts(engine, path)


@pytest.fixture(scope="module")
def small(tiny_gguf, tiny_draft, tmp_path_factory):
    with Engine.load(tiny_gguf) as engine:
        path = fitted(engine.tokenizer, tmp_path_factory.mktemp("small") / "docs.counts")
    with Engine.load(tiny_gguf, draft_model=tiny_draft) as engine:
        yield WithCounts(engine, path)


@pytest.fixture
def tiny(small):
    small.reset()
    return small


@pytest.mark.parametrize(
    ("drafter", "name"), each_value(NAMES, ["greedy", "0.7", "1.3, penalties"], most=3)
)
def test_the_shipped_model_says_what_it_says_alone(shipped, plain, drafter, name):
    found = shipped.chat(
        MESSAGES, drafter=drafter, draft_budget="always", max_tokens=10, **OPTIONS[name]
    )
    assert found.token_ids == plain(name, 10)
    assert found.exactness == "stream"
    assert found.stats.drafted > 0


@pytest.mark.slow
@pytest.mark.parametrize("drafter", NAMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_identity_over_whole_replies(shipped, plain, drafter, name):
    options = {"drafter": drafter, "max_tokens": 32, **OPTIONS[name]}
    found = shipped.chat(MESSAGES, draft_budget="auto", **options)
    assert found.token_ids == plain(name, 32)
    # The rules take turns from drafter to drafter and from setting to setting.
    rules = ("budget", "entropy", "lower-bound") if drafter in WITH_Q else ("budget",)
    rule = rules[(NAMES.index(drafter) + list(OPTIONS).index(name)) % len(rules)]
    if drafter in WITH_Q:
        options["draft_length"] = rule
    found = shipped.chat(MESSAGES, draft_budget="always", **options)
    assert found.token_ids == plain(name, 32)
    # Where q is flat the other rules leave all drafts out.
    assert rule != "budget" or found.stats.drafted > 0


@pytest.fixture(scope="module")
def plain(shipped):
    known = {}

    def replied(name, count):
        if (name, count) not in known:
            found = shipped.chat(MESSAGES, drafter="none", max_tokens=count, **OPTIONS[name])
            known[name, count] = found.token_ids
        return known[name, count]

    return replied


@pytest.mark.slow
@pytest.mark.parametrize("drafter", WITH_Q)
def test_rejection_is_a_run_of_its_own_and_repeats(tiny, drafter):
    options = {"drafter": drafter, "draft_sampling": "rejection", "draft_budget": "always"}
    options |= {"max_tokens": 16, "temperature": 0.9}
    found = tiny.generate(PROMPT, seed=4, **options)
    assert found.exactness == "distribution"
    assert found.stats.drafted > 10
    assert tiny.generate(PROMPT, seed=4, **options).token_ids == found.token_ids
    assert tiny.generate(PROMPT, seed=5, **options).token_ids != found.token_ids
    greedy = {**options, "temperature": 0}
    alone = tiny.generate(PROMPT, drafter="none", max_tokens=16)
    assert tiny.generate(PROMPT, **greedy).token_ids == alone.token_ids


def test_a_combination_says_who_drafted(tiny):
    options = {"drafter": "ngram-draft-model", "draft_budget": "always", "max_tokens": 60}
    steps = [event.step.detail for event in tiny.stream(PROMPT * 2, **options)]
    both = [step for step in steps if "+" in step.source]
    assert both
    for step in both:
        names = [drafted.source for drafted in step.drafted]
        assert set(names) == {"ngram-assisted", "draft-model"}
        assert "+".join(dict.fromkeys(names)) == step.source


def ignore_end(engine):
    return dict.fromkeys(engine.tokenizer.end_ids, -1e6)


@pytest.mark.slow
def test_the_budget_is_asked_before_a_combinations_draft_model(tiny):
    """The draft model is as dear as the model here and mostly wrong: drafting with it cannot pay."""
    options = {"drafter": "ngram-draft-model", "logit_bias": ignore_end(tiny), "max_tokens": 80}
    found = {}
    for budget in ("always", "auto"):
        before = tiny._drafters.models.draft_model.num_passes
        tiny.generate(PROMPT, draft_budget=budget, temperature=1.5, seed=3, **options)
        found[budget] = tiny._drafters.models.draft_model.num_passes - before
    assert found["auto"] < found["always"] / 2


def details(engine, **options):
    """Return the steps with a draft, but for those at the end, where room bounds drafts."""
    options = {"draft_budget": "always", "max_tokens": 40, "temperature": 0.8, "seed": 2} | options
    bias = {"logit_bias": ignore_end(engine)}
    steps = [event.step.detail for event in engine.stream(PROMPT, **options, **bias)]
    end = steps[0].position + options["max_tokens"]
    return [step for step in steps if step.drafted and step.position < end - 8]


@pytest.mark.parametrize(("drafter", "sampling"), each_value(WITH_Q, ("coupled", "rejection")))
def test_h_and_gamma_of_every_draft_are_told(tiny, drafter, sampling):
    options = {"drafter": drafter, "draft_sampling": sampling}
    longest = 8 if "model" in drafter else 4
    steps = details(tiny, draft_length="entropy", min_draft_tokens=2, max_tokens=24, **options)
    assert steps
    for step in steps:
        if step.entropy is None:
            # All of it was an n-gram's.
            assert step.source == "ngram-assisted"
            continue
        assert 0 <= step.entropy <= 1
        assert step.gamma == round(longest - (longest - 2) * step.entropy)
        if drafter != "ngram-draft-model":
            assert len(step.drafted) == step.gamma
    assert any(step.gamma is not None for step in steps)


@pytest.mark.parametrize("rule", ["budget", "fixed", "lower-bound"])
def test_other_rules_tell_no_gamma(tiny, rule):
    for drafter, sampling in (("draft-model", "coupled"), ("bigram", "rejection")):
        options = {"drafter": drafter, "draft_sampling": sampling, "max_tokens": 16}
        steps = details(tiny, draft_length=rule, **options)
        assert all(step.gamma is None for step in steps)
        assert steps or rule == "lower-bound"


@pytest.mark.slow
def test_h_of_a_draft_that_had_room_for_one_token(tiny):
    for drafter in ("draft-model", "draft-model-ngram", "counts"):
        steps = details(tiny, drafter=drafter, draft_length="entropy", num_draft_tokens=1)
        assert len({step.entropy for step in steps}) > 3
        assert {(step.gamma, len(step.drafted)) for step in steps} == {(1, 1)}


@pytest.mark.slow
def test_guesses_of_ngrams_make_no_draft_longer(tiny):
    """A pass of the draft model may draw several tokens; those behind gamma are dropped."""
    rule = {"draft_length": "entropy", "num_draft_tokens": 8, "temperature": 0}
    alone = details(tiny, drafter="draft-model", **rule)
    guessed = details(tiny, drafter="draft-model-ngram", **rule)
    assert [(s.gamma, s.drafted) for s in guessed] == [(s.gamma, s.drafted) for s in alone]


@pytest.mark.slow
def test_the_rules_bound_drafts(tiny):
    options = {"drafter": "draft-model", "temperature": 0.8, "max_tokens": 24}
    fixed = details(tiny, draft_length="fixed", num_draft_tokens=5, **options)
    assert {len(step.drafted) for step in fixed} == {5}
    never = details(tiny, draft_length="lower-bound", draft_length_bound=0.0, **options)
    assert {len(step.drafted) for step in never} == {8}
    always = details(tiny, draft_length="lower-bound", draft_length_bound=1.0, **options)
    assert {len(step.drafted) for step in always} == {1}
    # q of counts is known before the first token is drawn.
    options["drafter"] = "counts"
    assert not details(tiny, draft_length="lower-bound", draft_length_bound=1.0, **options)


def test_smoothing_over_drafts(tiny):
    options = {"drafter": "bigram", "draft_length": "entropy", "draft_length_beta": 0.75}
    smoothed = None
    steps = details(tiny, **options, min_draft_tokens=0, num_draft_tokens=40)
    assert len(steps) > 1
    for step in steps:
        smoothed = step.entropy if smoothed is None else 0.75 * smoothed + 0.25 * step.entropy
        assert step.gamma == round(40 - 40 * smoothed)


def test_what_is_wrong_is_said_before_the_first_token(tiny, tiny_gguf, tmp_path):
    with pytest.raises(ConfigError, match="min_draft_tokens is 9, and at most 8"):
        tiny.stream(PROMPT, drafter="draft-model", draft_length="entropy", min_draft_tokens=9)
    with Engine.load(tiny_gguf) as bare:
        with pytest.raises(ConfigError, match="akunu counts fit"):
            bare.generate(PROMPT, drafter="corpus")
        with pytest.raises(ConfigError, match="draft_model when the model is loaded"):
            bare.generate(PROMPT, drafter="ngram-draft-model")
        with pytest.raises(ConfigError, match="'auto' has no draft_length"):
            bare.generate(PROMPT, draft_length="entropy")
        assert bare.generate(PROMPT, max_tokens=3).token_ids


def test_counts_are_checked_before_a_reply(tiny, default_model, tmp_path):
    with Engine.load(default_model) as engine:
        path = fitted(engine.tokenizer, tmp_path / "other.counts")

        def drafted(engine, path):
            config = GenerationConfig(drafter="corpus", draft_options={"counts": path})
            return engine.stream(PROMPT, config)

        with pytest.raises(ConfigError, match="fitted with another vocabulary"):
            drafted(tiny, path)
        with pytest.raises(ConfigError, match="cannot be read"):
            drafted(tiny, tmp_path / "missing.counts")
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(ConfigError, match="holds no counts"):
            drafted(engine, path)


def test_counts_of_order_1(tiny_gguf, tmp_path):
    with Engine.load(tiny_gguf) as engine:
        path = fitted(engine.tokenizer, tmp_path / "one.counts", order=1)
    with Engine.load(tiny_gguf) as engine:
        found = engine.generate(
            PROMPT, drafter="corpus", counts=path, draft_budget="always", max_tokens=20
        )
        assert found.stats.drafted > 20
        drafters = engine._drafters
        assert drafters._kept
    assert not drafters._kept


def test_a_reproducible_engine_drafts_seven_tokens_of_counts(tiny_gguf):
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        options = {"max_tokens": 20, "temperature": 0.8, "seed": 3}
        plain = engine.generate(PROMPT, drafter="none", **options)
        found = engine.generate(
            PROMPT, drafter="counts", draft_budget="always", num_draft_tokens=20, **options
        )
        assert found.token_ids == plain.token_ids
        assert max(found.stats.drafted_per_position) <= len(found.token_ids)
        assert len(found.stats.drafted_per_position) <= 7


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["bigram", "corpus"])
def test_the_law_of_three_tokens_is_the_models(tiny_gguf, tmp_path, drafter):
    """Chi-squared over two and three tokens of four that a bias leaves, seeds 0 to 799.

    Without residuals it was so many standard deviations above its mean: 22 for pairs and 31 for a
    corpus with three tokens and 1,500 runs, 20 and 33 with two and 750.
    """
    with Engine.load(tiny_gguf) as engine:
        ids = engine.tokenizer.encode("abcd")[-4:]
        assert engine.tokenizer.decode(ids) == "abcd"
        counts = fit_counts([ids * 3, ids[::-1], [ids[0]] * 5], engine.tokenizer.vocabulary_size)
        fingerprint = vocabulary_fingerprint(engine.tokenizer.token_texts())
        save_counts(counts, tmp_path / "four.counts", fingerprint)
    with Engine.load(tiny_gguf) as engine:
        bias = dict.fromkeys(set(range(engine.vocabulary_size)) - set(ids), -1e9)
        config = GenerationConfig(max_tokens=3, temperature=0.9, logit_bias=bias, drafter=drafter, num_draft_tokens=2, draft_budget="always", draft_options={"draft_sampling": "rejection"})  # fmt: skip
        if drafter == "corpus":
            config = config.with_values({"counts": tmp_path / "four.counts"})
        prompt = [*ids, *ids[:2]]
        chain = TransformChain.from_config(config, engine.vocabulary_size)
        law = {}
        for text in itertools.product(ids, repeat=3):
            rows = mx.array(engine.logits([*prompt, *text])[len(prompt) - 1 : -1])
            law[text] = 1.0
            for place, token in enumerate(text):
                before = [*prompt, *text[:place]]
                row = chain.log_probabilities(rows[place : place + 1], before[-chain.window :])[0]
                law[text] *= float(mx.softmax(row)[token])
        assert sum(law.values()) == pytest.approx(1, abs=1e-5)
        texts = []
        accepted = tested = 0
        for seed in range(800):
            found = engine.generate(prompt, config, seed=seed)
            texts.append(found.token_ids)
            accepted += found.stats.accepted
            tested += found.stats.tested
        assert 0.2 < accepted / tested < 0.98
        for length in (2, 3):
            assert above_the_mean(texts, law, length) < 4
