"""The session's caches: what can be rolled back, what is reused, and what an interrupt leaves."""

import threading

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import QuantizedKVCache
from tiny_models import VOCABULARY, adversary, begin, generate, prompt_of, tiny

from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft, GenerationConfig


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_caches_roll_back_too(model, bits):
    session = Session(tiny(hidden_size=128, head_dim=32), context=600, kv_bits=bits)
    assert all(isinstance(cache, QuantizedKVCache) for cache in session.rows.caches)
    prompt = prompt_of(30)
    plain = generate(session, prompt, GenerationConfig(), PlainDrafter())
    drafter = adversary("half", prompt + plain, 4)
    assert generate(session, prompt, GenerationConfig(), drafter) == plain


def test_kv_bits_are_refused_where_they_cannot_work(model):
    with pytest.raises(ConfigError, match="4 or 8"):
        make_caches(model, 3)
    with pytest.raises(ConfigError, match="too narrow"):
        make_caches(model, 8)  # heads of 16
    sliding = tiny(
        head_dim=32, layer_types=["sliding_attention", "full_attention"], sliding_window=8
    )
    for other, kind in ((sliding, "RotatingKVCache"), (build_family("mamba2"), "ArraysCache")):
        with pytest.raises(ConfigError, match=kind):
            make_caches(other, 8)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 3), st.integers(1, 12)), min_size=2, max_size=5
    )
)
@settings(max_examples=settings.default.max_examples // 4)
def test_reusing_a_prefix_changes_nothing(model, session, calls):
    """Any sequence of calls on one session gives what fresh sessions give."""
    for size, seed, count in calls:
        prompt = prompt_of(size, seed)
        fresh = Session(model, context=600)
        expected = generate(fresh, prompt, GenerationConfig(), PlainDrafter(), max_tokens=count)
        found = generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=count)
        assert found == expected


def test_only_the_tail_of_a_conversation_is_prefilled(model):
    session = Session(model, context=600)
    prompt = prompt_of(50)
    reply = generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=20)
    seen = []
    kept = begin(session, [*prompt, *reply, 1, 2, 3], progress=lambda *p: seen.append(p))
    # The last token of the reply was never fed, unless a step was in flight.
    assert kept in (69, 70)
    assert seen[0] == (kept, 73)
    assert seen[-1] == (73, 73)
    assert begin(session, [*prompt, 96, 96]) in (50, 51)


def test_an_interrupt_in_prefill_loses_nothing(model):
    session = Session(model, context=4096)
    prompt = prompt_of(PREFILL_CHUNK + 300)
    expected = generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    interrupted = Session(model, context=4096)

    def stop(done, total):
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(interrupted, prompt, progress=stop)
    assert 0 < len(interrupted.rows.tokens) < len(prompt) - 1
    found = generate(interrupted, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    assert found == expected


def test_an_interrupt_inside_a_pass_starts_the_caches_afresh(model):
    session = Session(model, context=600)
    prompt = prompt_of(20)
    expected = generate(session, prompt, GenerationConfig(), PlainDrafter())
    forward = session.feed
    calls = []

    def interrupted(rows):
        calls.append(1)
        if len(calls) == 7:
            forward(rows)  # the caches have taken the rows in
            raise KeyboardInterrupt
        return forward(rows)

    session.feed = interrupted
    with pytest.raises(KeyboardInterrupt):
        generate(session, prompt, GenerationConfig(), NgramDrafter())
    session.feed = forward
    assert generate(session, prompt, GenerationConfig(), NgramDrafter()) == expected


def test_calls_out_of_order_are_named(model):
    session = Session(model, context=100)
    with pytest.raises(ContractError, match="before begin"):
        session.choose(1, Draft.empty())
    begin(session, [1, 2])
    session.choose(2, Draft.chain([1, 2]))
    with pytest.raises(ContractError, match="twice"):
        session.choose(2, Draft.empty())


def test_a_tree_that_is_not_taken_is_named(model):
    session = Session(model, context=100, reproducible=True)
    begin(session, [1, 2])
    with pytest.raises(ContractError, match="'plug-in' drafted a tree"):
        session.choose(2, Draft((1, 2), (-1, -1), "plug-in"))


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40])
def test_drafted_ids_outside_the_vocabulary_are_refused(model, token):
    """MLX would read beyond the embedding."""
    session = Session(model, context=100)
    begin(session, [1, 2])
    with pytest.raises(ContractError, match="ids go from 0 to 96"):
        session.choose(2, Draft.chain([3, token], "plug-in"))


def test_a_session_may_be_used_in_another_thread_than_it_was_made_in():
    """Llama 3's frequencies are made lazily, on the loading thread's stream."""
    scaling = {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_type": "llama3",
    }  # fmt: skip
    session = Session(tiny(rope_scaling=scaling), context=100)
    found = []

    def call():
        found.append(generate(session, [1, 2], GenerationConfig(), PlainDrafter(), max_tokens=5))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(300)
    assert len(found[0]) == 5


def test_logits_leave_the_conversation_alone(model, session):
    prompt = prompt_of(20)
    generate(session, prompt, GenerationConfig(), PlainDrafter())
    before = list(session.rows.tokens)
    rows = session.logits(prompt)
    assert rows.shape == (20, VOCABULARY)
    assert rows.dtype == np.float32
    assert session.rows.tokens == before
    np.testing.assert_allclose(rows, np.array(model(mx.array([prompt]))[0]), atol=2e-5)
