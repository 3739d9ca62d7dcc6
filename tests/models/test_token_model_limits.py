"""Where the draft model over its caches ends: context, common ids, rules, interrupts, order of calls."""

import itertools
import logging

import mlx.core as mx
import numpy as np
import pytest
from fresh_draws import CONFIGS, SEED, begin, expected, fresh_row, made
from mlx import nn
from mlx_lm.models.cache import KVCache
from tiny_models import VOCABULARY, prompt_of, tiny

from akunu_py.drafting.draft_model import DrawSettings
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import GenerationConfig


@pytest.fixture(scope="module")
def llama():
    return tiny()


def test_nothing_is_drawn_beyond_the_context(llama):
    config, prompt = CONFIGS["greedy"], prompt_of(20)
    drafts = made(llama, context=24)
    begin(drafts, prompt, config)
    drawn = [token.token for token in drafts.draw(9)]
    assert drawn == expected(llama, prompt, 4, config)
    drafts.extend([*drawn[:3], 1])
    assert drafts.draw(9) == []
    drafts.extend([1, 2, 3])
    assert drafts.draw(9) == []
    # A prompt that does not fit costs no pass; one that does is served again.
    before = drafts.num_passes
    begin(drafts, prompt_of(200), config)
    assert drafts.draw(3) == []
    assert drafts.num_passes == before
    begin(drafts, prompt[:9], config)
    assert [token.token for token in drafts.draw(2)] == expected(llama, prompt[:9], 2, config)


NO_REPEATS = GenerationConfig(
    logit_bias=dict.fromkeys(range(12), 50.0), presence_penalty=100.0, penalty_window=9
)
"""Takes one of twelve tokens that is not among the last nine."""


@pytest.mark.parametrize("size", range(1, 20))
def test_penalties_see_the_window_of_a_text_of_any_length(llama, size):
    text = [place % 12 for place in range(size)]
    drafts = made(llama)
    begin(drafts, text, NO_REPEATS)
    assert [token.token for token in drafts.draw(4)] == expected(llama, text, 4, NO_REPEATS)


@pytest.mark.parametrize("config", [*CONFIGS.values(), NO_REPEATS])
@pytest.mark.parametrize("text", [[90, 5, 127, 4, 80, 3], [5, 6, 7, 90, 91, 92, 93, 94, 95, 3]])
def test_ids_that_are_not_common_are_neither_drawn_nor_fed(llama, config, text):
    """The target has more ids than the two share, and its text uses them; so has the draft model.

    They take their place in the penalties' window, as they do for the target.
    """
    common = 60
    drafts = made(llama, common=common, target_size=128)
    begin(drafts, text, config)
    known = [token if token < common else 0 for token in text]
    chain = TransformChain.from_config(config, common)
    sampler, whole = Sampler(chain, SEED, common), list(text)
    for _ in range(8):
        row = fresh_row(llama, known, common)
        recent = [token for token in whole[-chain.window :] if token < common]
        token = sampler.choose(row, len(known), recent).item()
        known.append(token)
        whole.append(token)
    drawn = whole[len(text) :]
    assert [token.token for token in drafts.draw(8)] == drawn
    assert max(drawn) < common


def test_a_bias_of_an_id_that_the_draft_model_has_not_is_left_out(llama):
    config = GenerationConfig(logit_bias={7: 60.0, 120: 90.0})
    drafts = made(llama, common=60, target_size=128)
    begin(drafts, [1, 2, 3], config)
    assert [token.token for token in drafts.draw(2)] == [7, 7]


def test_rows_of_independent_draws(llama):
    """q is the fresh model's adjusted distribution over the target's ids, 0 beyond the common."""
    config, common = GenerationConfig(temperature=0.8, top_k=12), 60
    drafts, text = made(llama, common=common, target_size=128), list(prompt_of(15))
    begin(drafts, text, config, independent=True)
    drawn = [token.token for token in drafts.draw(4)]
    rows = drafts.probabilities()
    assert rows.shape == (4, 128)
    assert rows.dtype == np.float64
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12
    assert not rows[:, common:].any()
    chain = TransformChain.from_config(config, common)
    known = [token if token < common else 0 for token in text]
    for token, row in zip(drawn, rows, strict=True):
        q = np.array(mx.softmax(chain.log_probabilities(fresh_row(llama, known, common))[0]))
        assert np.abs(row[:common] - q).max() < 1e-5
        assert row[token] > 0
        known.append(token)
    assert drafts.draw(0) == []
    assert drafts.probabilities().shape == (0, 128)


def test_greedy_rows_are_one_hot(llama):
    drafts = made(llama)
    begin(drafts, prompt_of(9), CONFIGS["greedy"], independent=True)
    drawn = [token.token for token in drafts.draw(3)]
    assert drafts.probabilities().tolist() == np.eye(VOCABULARY)[drawn].tolist()


def test_coupled_draws_have_no_rows_to_give(llama):
    drafts = made(llama)
    begin(drafts, prompt_of(9), CONFIGS["0.7"])
    drafts.draw(3)
    with pytest.raises(ContractError, match="coupled"):
        drafts.probabilities()


@pytest.mark.parametrize("guess", [None, lambda drawn, limit: ()])
def test_a_rule_sees_what_was_drawn_before_and_ends_the_draft(llama, guess):
    config, text = CONFIGS["0.7"], prompt_of(21)
    drafts, truth = made(llama), expected(llama, text, 9, config)
    begin(drafts, text, config)
    seen = []

    def rule(drawn):
        seen.append([token.token for token in drawn])
        return len(drawn) < 3

    drawn = [token.token for token in drafts.draw(9, rule, guess)]
    assert drawn == truth[:3]
    assert seen == [truth[:size] for size in range(4)]
    drafts.extend([*drawn, 5])
    assert [token.token for token in drafts.draw(2)] == expected(
        llama, [*text, *drawn, 5], 2, config
    )
    before = drafts.num_passes
    assert drafts.draw(4, lambda drawn: False, guess) == []
    assert drafts.num_passes == before


def test_after_an_interrupted_pass_the_caches_start_afresh(llama):
    config, text = CONFIGS["greedy"], list(prompt_of(21))
    drafts = made(llama)
    begin(drafts, text, config)

    def interrupt(drawn):
        if drawn:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        drafts.draw(4, interrupt)
    assert [token.token for token in drafts.draw(3)] == expected(llama, text, 3, config)
    with pytest.raises(KeyboardInterrupt):
        drafts.draw(4, interrupt)
    begin(drafts, text, config)
    assert [token.token for token in drafts.draw(3)] == expected(llama, text, 3, config)


def held_in(drafts, text, sampling):
    """Number of rows before the first pass over a prompt, and after each."""
    return (len(drafts._rows.tokens) for _ in drafts.beginning(text, sampling))


def test_a_prompt_can_be_left_between_its_passes(llama):
    drafts, text = made(llama, context=4000), list(prompt_of(2000))
    sampling = DrawSettings(CONFIGS["greedy"], SEED)
    # How many rows a pass has follows the pace.
    start, _, fed = itertools.islice(held_in(drafts, text, sampling), 3)
    assert start == 0 < fed < len(text)
    # What was fed stays.
    assert next(held_in(drafts, text, sampling)) == fed


class OtherCache(KVCache):
    """A kind that rollback does not know."""


def test_a_model_that_cannot_go_back_is_refused():
    model = tiny()
    model.make_cache = lambda: [OtherCache() for _ in model.layers]
    with pytest.raises(ConfigError, match="cannot roll back after a rejection"):
        made(model)


def test_order_of_calls(llama):
    drafts = made(llama)
    with pytest.raises(ContractError, match="before it was given a prompt"):
        drafts.draw(2)
    begin(drafts, [1, 2], CONFIGS["greedy"])
    drafts.close()
    with pytest.raises(ContractError, match="closed"):
        drafts.draw(2)


def at_position(place, value):
    """A model whose logits of the row of the token at a position are all that value."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny()
            self.layers = self.inner.layers

        def __call__(self, inputs, cache):
            rows = cache[0].offset + mx.arange(inputs.shape[1])
            return mx.where((rows == place)[:, None], value, self.inner(inputs, cache=cache))

    return Odd()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("guess", [None, lambda drawn, limit: [1, 2][:limit]])
@pytest.mark.parametrize("name", ["greedy", "0.7"])
def test_nothing_is_drawn_where_logits_are_no_numbers(
    llama, caplog, value, independent, guess, name
):
    """The draft ends before it, and goes on behind it; the rows of q are those of what is left."""
    config, prompt = CONFIGS[name], prompt_of(9)
    drafts, sound = made(at_position(11, value)), made(llama)
    for model in (drafts, sound):
        begin(model, prompt, config, independent=independent)
    with caplog.at_level(logging.WARNING):
        # The row of token 11 says what the token at 12 is.
        drawn, expected_tokens = drafts.draw(6, None, guess), sound.draw(6)
        assert drawn == expected_tokens[:3]
        if independent:
            assert (drafts.probabilities() == sound.probabilities()[:3]).all()
        more = [*(token.token for token in drawn), 4, 5]
        for model in (drafts, sound):
            model.extend(more[:3])
        assert drafts.draw(2, None, guess) == []
        for model in (drafts, sound):
            model.extend(more[3:])
        assert drafts.draw(4, None, guess) == sound.draw(4)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "logits of the draft model are not numbers" in caplog.text
