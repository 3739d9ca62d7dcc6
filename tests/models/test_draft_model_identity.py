"""With a draft model the stream is that of plain decoding, for every kind of cache on either side."""

import functools

import mlx.core as mx
import pytest
from family_models import build_family
from identity import assert_same_tokens
from mlx.utils import tree_map
from pairwise import all_pairs
from tiny_models import VOCABULARY, begin, decoded, prompt_of

from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.models.session import Session
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.values.types import GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "greedy, penalties": GenerationConfig(repetition_penalty=1.4, presence_penalty=0.5),
    "0.7": GenerationConfig(temperature=0.7),
    "1.3": GenerationConfig(temperature=1.3),
    "1.3, penalties": GenerationConfig(
        temperature=1.3, top_p=0.95, repetition_penalty=1.2, frequency_penalty=0.3
    ),
}
KINDS = ["llama", "llama, sliding", "qwen3_next"]
SEED = 7


@pytest.fixture(scope="module")
def models():
    return {kind: build_family(kind) for kind in KINDS}


def perturbed(model_name, scale):
    """The family's model with noise on its weights: often of one mind with it, not always."""
    model = build_family(model_name)
    mx.random.seed(5)

    def noisy(array):
        return array * (1 + scale * mx.random.normal(array.shape))

    model.update(tree_map(noisy, model.parameters()))
    mx.eval(model.parameters())
    return model


def token_model(model, context=600):
    return CachedTokenModel(model, context=context, common=VOCABULARY, target_size=VOCABULARY)


def run(session, drafter, prompt, config, max_tokens=60, num_draft_tokens=6):
    """Return tokens and steps of a reply."""
    begin(session, prompt, config, max_tokens, seed=SEED)
    if isinstance(drafter, DraftModelDrafter):
        drafter.begin_reply(config, SEED)
    limits = {"num_draft_tokens": num_draft_tokens, "max_tokens": max_tokens}
    return decoded(session, drafter, prompt, **limits)


def check(session, drafter, prompt, config, about, plain=None, **options):
    """Compare with `plain`, or with the tokens that plain decoding gives; return the steps."""
    if plain is None:
        plain, _ = run(session, PlainDrafter(), prompt, config, **options)
    found, steps = run(session, drafter, prompt, config, **options)
    assert_same_tokens(
        found, plain, logits=session.logits, prompt=prompt, config=config, seed=SEED, about=about
    )
    return steps


class LastTime:
    """Guesses, for a draft model to check, what followed the last token when it came before."""

    def __init__(self):
        self.text = []

    def observe(self, tokens):
        self.text.extend(tokens)

    def guess(self, drawn, limit):
        text = [*self.text, *drawn]
        before = [place for place, token in enumerate(text[:-1]) if token == text[-1]]
        return tuple(text[before[-1] + 1 :][:limit]) if before else ()


# Every configuration, every family as model and as draft model; the slow test has all pairs of them.
FAST = [
    (("llama", "llama"), "greedy"), (("llama, sliding", "qwen3_next"), "greedy, penalties"),
    (("qwen3_next", "llama, sliding"), "0.7"), (("llama, sliding", "llama"), "1.3"),
    (("llama", "llama, sliding"), "1.3, penalties"),
]  # fmt: skip


@pytest.fixture(scope="module")
def plain_text(models):
    """What a family says without drafts, by plain decoding over caches of its own."""

    @functools.cache
    def text(target, name, size, tokens):
        session = Session(models[target], context=600)
        plain, _ = run(session, PlainDrafter(), prompt_of(size), CONFIGS[name], max_tokens=tokens)
        return plain

    return text


class GuessingDrafter(DraftModelDrafter):
    """A drafter whose model checks guesses, several in a pass."""

    def __init__(self, model, **options):
        super().__init__(model, **options)
        self._guesses = LastTime()
        self._guess = self._guesses.guess

    def reading(self, prompt):
        self._guesses.observe(prompt)
        yield from super().reading(prompt)

    def observe(self, tokens):
        if tokens and self._prompt_taken:
            self._guesses.observe(tokens)
        super().observe(tokens)


def leaves_the_stream(models, plain_text, target, draft, name, sizes, tokens):
    session, drafts = Session(models[target], context=600), token_model(models[draft])
    for turn, size in enumerate(sizes):
        drafter = (GuessingDrafter if turn % 2 else DraftModelDrafter)(drafts, num_draft_tokens=6)
        about = f"{target}, {draft}, {name}, {size}"
        plain = plain_text(target, name, size, tokens)
        steps = check(
            session, drafter, prompt_of(size), CONFIGS[name], about, plain, max_tokens=tokens
        )
        assert sum(step.num_draft_tokens for step in steps) >= 3 * tokens // 4
    if target == draft:
        # The very model as its own draft model: nothing is rejected, but for rows that differ in
        # the last bits between the sizes of a pass.
        accepted = sum(step.num_accepted_tokens for step in steps)
        assert accepted == sum(step.num_tested_tokens for step in steps)


@pytest.mark.parametrize(("pair", "name"), FAST)
def test_any_draft_model_leaves_the_stream_as_it_is(models, plain_text, pair, name):
    leaves_the_stream(models, plain_text, *pair, name, [20, 21], 16)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "draft", "name"), all_pairs(KINDS, KINDS, list(CONFIGS)))
def test_every_pair_of_models_and_settings(models, plain_text, target, draft, name):
    leaves_the_stream(models, plain_text, target, draft, name, [1, 25], 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", [("greedy, penalties"), "0.7"])
def test_a_draft_model_that_is_right_now_and_then(models, plain_text, name):
    session, drafts = Session(models["llama"], context=600), token_model(perturbed("llama", 0.08))
    drafter = DraftModelDrafter(drafts, num_draft_tokens=6)
    plain = plain_text("llama", name, 20, 60)
    steps = check(session, drafter, prompt_of(20), CONFIGS[name], name, plain)
    kinds = {step.num_accepted_tokens for step in steps}
    assert len(kinds) > 3
    assert 0 in kinds


@pytest.mark.lab
@pytest.mark.slow
def test_the_drafts_own_temperature_changes_drafts_alone(models):
    from akunu_lab.drafting.shaped import ShapedDrafter

    session, drafts = Session(models["llama"], context=600), token_model(models["llama"])
    name = "1.3, penalties"
    prompt, config, accepted = prompt_of(20), CONFIGS[name], {}
    plain, _ = run(session, PlainDrafter(), prompt, config, max_tokens=40)
    for temperature in (None, 0.0, 2.0):
        drafter = ShapedDrafter(drafts, draft_temperature=temperature)
        about = f"{name} {temperature}"
        steps = check(session, drafter, prompt, config, about, plain, max_tokens=40)
        accepted[temperature] = sum(step.num_accepted_tokens for step in steps) / len(steps)
    assert accepted[None] > accepted[0.0]
    assert accepted[None] > accepted[2.0]


@pytest.mark.parametrize("number", [0, 1, 64])
def test_any_number_of_draft_tokens(models, plain_text, number):
    session, drafts = Session(models["llama"], context=600), token_model(models["llama"])
    drafter = DraftModelDrafter(drafts, num_draft_tokens=number)
    plain = plain_text("llama", "0.7", 20, 60)
    steps = check(
        session, drafter, prompt_of(20), CONFIGS["0.7"], str(number), plain, num_draft_tokens=number
    )
    assert max(step.num_draft_tokens for step in steps) == min(number, 59)


def test_a_shorter_context_ends_drafts_and_nothing_else(models, plain_text):
    session = Session(models["llama"], context=600)
    drafter = DraftModelDrafter(token_model(models["llama"], context=50), num_draft_tokens=5)
    plain = plain_text("llama", "0.7", 20, 60)
    steps = check(session, drafter, prompt_of(20), CONFIGS["0.7"], "context", plain)
    drafted = [step.num_draft_tokens for step in steps]
    # Four tokens are left for the last draft, and none from there on.
    assert drafted[:5] == [5] * 5
    assert 0 in drafted
    assert not any(drafted[drafted.index(0) :])


@pytest.mark.slow
def test_coupled_drafts_agree_more_often_than_independent_ones(models, plain_text):
    """Which is what coupling is for (arXiv:2408.07978): here with q = p at temperature 1.3."""
    session, prompt = Session(models["llama"], context=600), prompt_of(20)
    drafts, config = token_model(perturbed("llama", 0.02)), CONFIGS["1.3"]
    plain = plain_text("llama", "1.3", 20, 60)
    coupled = check(session, DraftModelDrafter(drafts), prompt, config, "coupled", plain)
    independent = check(
        session, DraftModelDrafter(drafts, rejection=True), prompt, config, "independent", plain
    )
    means = [
        sum(step.num_accepted_tokens for step in steps)
        / sum(step.num_tested_tokens for step in steps)
        for steps in (coupled, independent)
    ]
    assert means[0] > means[1] + 0.3
