"""Penalties and filters against mlx-lm's own, one by one and as chains, and what they queue.

Each operation that a choice queues is time of every step. Mutants, made by hand, that these tests
kill: a check on the device, in front of the token or behind it; the total cut apart from the row; a
draw that is not compiled.
"""

import contextlib
import io
import itertools
import math
import re

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm import sample_utils

from akunu_py.models.device import disable_compile_with_kernels
from akunu_py.sampling import transforms
from akunu_py.sampling.sampler import ForcedSampler, Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

SIZE = 300


def logits_of(seed, size=SIZE):
    return mx.array(np.random.default_rng(seed).normal(0, 3, (1, size)).astype(np.float32))


def normalised(seed):
    row = logits_of(seed)
    return row - mx.logsumexp(row, keepdims=True)


@contextlib.contextmanager
def uncompiled():
    """Run mlx-lm's filters as they are written.

    They are compiled, which on a CPU starts the C++ compiler for each number they are given.
    """
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()
        disable_compile_with_kernels()


def same(ours, theirs):
    np.testing.assert_array_equal(np.array(ours), np.array(theirs))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("value", [0.05, 0.3, 0.5, 0.9, 0.95, 0.999])
def test_top_p_and_min_p_are_mlx_lms(seed, value):
    row = normalised(seed)
    with uncompiled():
        same(transforms.top_p(value)(row), sample_utils.apply_top_p(row, value))
        same(transforms.min_p(value)(row), sample_utils.apply_min_p(row, value))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [1, 2, 40, SIZE - 1])
def test_top_k_is_mlx_lms(seed, count):
    row = normalised(seed)
    with uncompiled():
        same(transforms.top_k(count)(row), sample_utils.apply_top_k(row, count))


def test_top_k_gives_ties_at_the_edge_to_the_lowest_ids():
    row = mx.array([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    kept = np.isfinite(np.array(transforms.top_k(3)(row)))[0]
    assert kept.tolist() == [False, True, True, True, False, False]


RECENT = [5, 7, 5, 299, 0, 7, 7]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (transforms.repetition_penalty(1.3), sample_utils.make_repetition_penalty(1.3)),
        (transforms.repetition_penalty(0.8), sample_utils.make_repetition_penalty(0.8)),
        (transforms.presence_penalty(0.7), sample_utils.make_presence_penalty(0.7)),
        (transforms.frequency_penalty(0.3), sample_utils.make_frequency_penalty(0.3)),
        (
            transforms.logit_bias({3: 1.5, 8: -100.0}),
            sample_utils.make_logits_processors(logit_bias={3: 1.5, 8: -100.0})[0],
        ),
    ],
    ids=["repetition", "repetition below 1", "presence", "frequency", "bias"],
)
def test_penalties_are_mlx_lms(seed, ours, theirs):
    row = logits_of(seed)
    before = np.array(row)
    result = np.array(ours(RECENT, row))
    same(row, before)  # the caller's row is left alone
    same(result, theirs(mx.array(RECENT), mx.array(before)))


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.integers(0, 2**16),
    st.floats(0.1, 3.0),
    st.floats(0.05, 1.0),
    st.floats(0.0, 0.9),
    st.integers(0, SIZE - 1),
    st.lists(st.integers(0, SIZE - 1), max_size=40),
)
def test_the_chain_is_mlx_lms(seed, temperature, top_p, min_p, top_k, history):
    config = GenerationConfig(
        temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k,
        repetition_penalty=1.2, presence_penalty=0.4, frequency_penalty=0.1, logit_bias={9: 2.0},
    )  # fmt: skip
    chain = TransformChain.from_config(config, SIZE)
    ours = chain.log_probabilities(logits_of(seed), history[-20:])

    row = logits_of(seed)
    for process in sample_utils.make_logits_processors({9: 2.0}, 1.2, 20, 0.4, 20, 0.1, 20):
        row = process(mx.array(history, dtype=mx.int32), row)
    row = row - mx.logsumexp(row, keepdims=True)
    with uncompiled():
        if 0 < top_p < 1:
            row = sample_utils.apply_top_p(row, top_p)
        if min_p > 0:
            row = sample_utils.apply_min_p(row, min_p)
        if top_k > 0:
            row = sample_utils.apply_top_k(row, top_k)
    same(ours, row * (1.0 / temperature))


def test_any_other_order_can_be_composed():
    row = logits_of(3)
    chain = TransformChain(
        filters=(transforms.temperature(2.0), transforms.top_k(5), transforms.top_p(0.6))
    )
    found = np.array(chain.log_probabilities(row))[0]
    expected = np.array(row)[0] - np.logaddexp.reduce(np.array(row)[0])
    expected = expected / 2
    kept = np.argsort(-expected)[:5]
    masses = np.exp(expected[kept])
    keep = kept[: int((np.cumsum(masses) - masses < 0.6 * masses.sum()).sum())]
    assert sorted(np.flatnonzero(np.isfinite(found))) == sorted(keep)


def test_greedy_skips_filters_and_keeps_the_models_type():
    chain = TransformChain.from_config(GenerationConfig(top_k=3, top_p=0.1, min_p=0.5), SIZE)
    assert chain.greedy
    assert chain.filters == ()
    assert chain.log_probabilities(logits_of(1).astype(mx.bfloat16)).dtype == mx.bfloat16


def test_a_bias_outside_the_vocabulary_is_named():
    with pytest.raises(ConfigError, match="token 300"):
        TransformChain.from_config(GenerationConfig(logit_bias={300: 1.0}), SIZE)


def test_neutral_options_add_no_transform():
    chain = TransformChain.from_config(GenerationConfig(temperature=1.0), SIZE)
    assert len(chain.filters) == 1
    assert not chain.needs_history


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"temperature": 1.3, "top_k": 20}])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_row_is_chosen_alike_in_any_pass(options, penalty):
    config = GenerationConfig(repetition_penalty=penalty, **options)
    sampler = Sampler(TransformChain.from_config(config, SIZE), 42, SIZE)
    rows = mx.concatenate([logits_of(seed) for seed in range(8)])[None]
    recent = list(range(30))
    alone = [sampler.choose(rows[:, i], 100 + i, recent).item() for i in range(8)]
    together = mx.concatenate([sampler.choose(rows[:, i], 100 + i, recent) for i in range(8)])
    assert together.tolist() == alone
    assert options == {} or len(set(alone)) > 1


@pytest.mark.slow
def test_draws_follow_the_chains_law():
    """Frequencies of the sampler itself, filters on, against the chain's distribution."""
    config = GenerationConfig(temperature=0.9, top_p=0.9, top_k=12)
    chain = TransformChain.from_config(config, 20)
    sampler = Sampler(chain, 7, 20)
    row = logits_of(2, 20)
    law = np.exp(np.array(chain.log_probabilities(row))[0].astype(np.float64))
    law /= law.sum()
    count = 8000
    drawn = [sampler.choose(row, position) for position in range(count)]
    observed = np.bincount(np.array(mx.concatenate(drawn)), minlength=20)
    possible = law > 0
    assert observed[~possible].sum() == 0
    statistic = ((observed - law * count)[possible] ** 2 / (law * count)[possible]).sum()
    freedom = int(possible.sum()) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_filters_never_drop_everything():
    row = mx.array([[0.0, 0.0, 0.0, 0.0]])
    for p, m, k in itertools.product([0.01, 1.0], [0.0, 1.0], [0, 1]):
        config = GenerationConfig(temperature=1.0, top_p=p, min_p=m, top_k=k)
        kept = np.isfinite(np.array(TransformChain.from_config(config, 4).log_probabilities(row)))
        assert kept.any()


@pytest.mark.parametrize("tiny", [1e-30, 1e-38, 1e-44, 1e-45, 1e-46, 1e-300, 5e-324])
@pytest.mark.parametrize("name", ["top_p", "temperature"])
def test_numbers_below_float32_keep_the_likeliest(name, tiny):
    """Not token 0: float32 rounds them to 0, or the quotient to infinity."""
    row = mx.array([[0.0, 3.0, 1.0, -2.0, -mx.inf]])
    kept = getattr(transforms, name)(tiny)(row)
    assert kept.argmax().item() == 1
    assert not mx.isnan(kept).any().item()
    assert (mx.exp(kept - kept.max()) > 0).tolist() == [[False, True, False, False, False]]


VIEWS = {"Broadcast", "Squeeze"}
"""Operations that move no number."""


def operations(*arrays):
    """The operations that these arrays wait for, but for views, in order."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *arrays)
    names = re.findall(r'label ?= ?"([A-Z]\w*)', dot.getvalue())
    return sorted(name.removeprefix("Akunu") for name in names if name not in VIEWS)


def chain(**options):
    return TransformChain.from_config(GenerationConfig(**options), SIZE)


def chosen(sampler):
    row = mx.array(np.random.default_rng(3).normal(0, 3, (1, SIZE)).astype(np.float32))
    # Once before: a fused kernel is made at first use.
    mx.eval(row, sampler.choose(row, 20))
    return sampler.choice(row, 20)


def test_a_greedy_choice_is_the_argmax_of_log_probabilities():
    """One operation more than mlx-lm's loop has, for logits of +inf; the host does the check."""
    choice = chosen(Sampler(chain(), 7, SIZE))
    assert operations(*choice) == ["ArgReduce", "LogSumExp", "Minimum", "Subtract"]


def test_the_check_costs_no_operation():
    """The total is computed anyway, and is what the host looks at; with penalties, too."""
    choice = chosen(Sampler(chain(temperature=0.8, repetition_penalty=1.2), 7, SIZE))
    assert operations(*choice) == operations(choice.token)
    assert set(operations(choice.total)) < set(operations(choice.token))


@pytest.fixture
def compiled():
    """As on a GPU: on a CPU with kernels nothing is compiled."""
    mx.enable_compile()
    yield
    disable_compile_with_kernels()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("options", [{}, {"top_k": 20, "top_p": 0.9}])
def test_a_draw_is_fused(options):
    """Around its reductions and sorts; twenty operations of the noise alone are one."""
    names = operations(*chosen(Sampler(chain(temperature=0.8, **options), 7, SIZE)))
    assert [name for name in names if name.startswith("Compiled")]
    assert not {"Multiply", "Log", "Log1p", "Subtract"} & set(names)


def test_a_recorded_token_is_fed_after_the_work_of_choosing_one():
    choice = chosen(ForcedSampler(chain(), 20, (5,), SIZE))
    assert {"LogSumExp", "ArgReduce"} <= set(operations(choice.token))
    assert choice.token.item() == 5
