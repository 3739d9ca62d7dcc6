"""The session's caches, of every kind: what can be rolled back, what is reused, what an interrupt leaves."""

import threading

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache, QuantizedKVCache
from tiny_models import GREEDY, VOCABULARY, adversary, begin, generate, prompt_of, sampler_of, tiny

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
    kept, *_, held = session.beginning([*prompt, *reply, 1, 2, 3], sampler_of(), 60)
    # The last token of the reply was never fed, unless a step was in flight.
    assert kept in (69, 70)
    assert held == 72
    assert begin(session, [*prompt, 96, 96]) in (50, 51)


def test_an_interrupt_in_prefill_loses_nothing(model):
    session = Session(model, context=4096)
    prompt = prompt_of(PREFILL_CHUNK + 300)
    expected = generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    interrupted = Session(model, context=4096)
    # An exception of whoever acts in a pause ends the steps there.
    steps = interrupted.beginning(prompt, sampler_of(), 60)
    next(held for held in steps if held)
    steps.close()
    assert 0 < len(interrupted.rows.tokens) < len(prompt) - 1
    found = generate(interrupted, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    assert found == expected


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


# By length, cut off, in chunks; and a mixture of restored and cut off ones.
KINDS = [
    "llama", "llama, sliding", "llama4", "baichuan_m1",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in (
            "llama, windows with sinks", "mamba2", "recurrent_gemma", "qwen3_next", "falcon_h1"
        )
    ),
]  # fmt: skip
RECURRENT = [
    "mamba2",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in ("baichuan_m1", "recurrent_gemma", "qwen3_next", "falcon_h1")
    ),
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def named(request):
    return request.param, build_family(request.param)


@pytest.fixture(scope="module", params=RECURRENT)
def recurrent(request):
    return build_family(request.param)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("half", GenerationConfig(repetition_penalty=1.3, presence_penalty=0.5)),
        (
            "wrong",
            GenerationConfig(temperature=0.9, top_p=0.9, frequency_penalty=0.4, penalty_window=5),
        ),
    ],
)
def test_penalties_see_the_rows_that_are_kept(recurrent, kind, config):
    session, prompt = Session(recurrent, context=600), prompt_of(12)
    plain = generate(session, prompt, config, PlainDrafter(), max_tokens=40)
    drafter = adversary(kind, prompt + plain, 2)
    assert generate(session, prompt, config, drafter, max_tokens=40) == plain


@pytest.mark.fast_every(2)
def test_any_sequence_of_prompts_gives_what_fresh_sessions_give(named):
    """Going on from a reply, turning off from it, the same again, a beginning of it, another."""
    name, model = named
    session = Session(model, context=600)
    prompt = prompt_of(40)
    first = generate(session, prompt, GREEDY, adversary("wrong", prompt, 1), max_tokens=30)
    prompts = [
        [*prompt, *first, 7, 8, 9],
        [*prompt, *first, 7, 8, 9, *prompt_of(20, 1)],
        [*prompt, *first, 7, 8, 5, 6],
        [*prompt, *first[:9], 9, 8, 7],
        prompt,
        [*prompt, 3],
        prompt[:30],
        prompt[:2],
        prompt_of(50, 2),
        [5],
        prompt,
    ]
    for one in prompts:
        fresh = Session(model, context=600)
        expected = generate(fresh, one, GREEDY, PlainDrafter(), max_tokens=7)
        drafter = adversary("half", one + expected, 3)
        assert generate(session, one, GREEDY, drafter, max_tokens=7) == expected
        assert len(session.rows.tokens) >= len(one) + 5


@pytest.mark.fast_every(2)
def test_what_is_reused_is_what_can_be_restored(named):
    name, model = named
    session = Session(model, context=600)
    prompt = prompt_of(40)
    reply = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    held = len(session.rows.tokens)
    # Whatever the kind: all of it, and the prompt's end, as often as one likes.
    assert begin(session, [*prompt, *reply[:-1], 1]) == held == 69
    generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    for _ in range(2):
        assert begin(session, prompt) == 39
        generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    # A turn elsewhere: the prompt's end, or the very place where every row is kept.
    everything = name == "llama"
    assert begin(session, [*prompt, *reply[:4], 96, 96]) == (44 if everything else 39)
    # That was a prompt of its own, whose end comes later. Chunks hold what is needed by chance.
    assert begin(session, prompt) == (39 if everything or name == "llama4" else 0)


def test_a_window_that_has_lost_nothing_drops_rows():
    session = Session(build_family("llama, sliding"), context=600)
    prompt = prompt_of(6)
    reply = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=9)
    assert begin(session, [*prompt, *reply[:4], 96, 96]) == 10


@pytest.mark.fast_every(2)
def test_an_interrupt_inside_a_pass_starts_the_caches_afresh(named):
    _, model = named
    session, prompt = Session(model, context=600), prompt_of(30)
    expected = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    forward, calls = session.feed, []

    def interrupted(rows):
        calls.append(1)
        logits = forward(rows)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return logits

    session.feed = interrupted
    with pytest.raises(KeyboardInterrupt):
        generate(session, prompt, GREEDY, adversary("half", prompt + expected, 3), max_tokens=30)
    session.feed = forward
    drafter = adversary("half", prompt + expected, 3)
    assert generate(session, prompt, GREEDY, drafter, max_tokens=30) == expected


class Unknown(KVCache):
    """A kind nobody knows here."""


def test_a_model_with_unknown_caches_is_decoded_plainly():
    model = tiny()
    model.make_cache = lambda: [Unknown() for _ in model.layers]
    session, prompt = Session(model, context=600), prompt_of(20)
    found = generate(session, prompt, GREEDY, NgramDrafter())
    assert session.max_draft_tokens() == 0
    expected = generate(Session(tiny(), context=600), prompt, GREEDY, PlainDrafter())
    assert found == expected
    # A reply that goes on keeps the rows; one that does not starts afresh.
    assert begin(session, [*prompt, *found[:-1], 5]) == 79
    assert begin(session, [*prompt, 5, 6]) == 0
    assert generate(session, prompt, GREEDY, NgramDrafter()) == expected


def test_what_was_saved_is_let_go():
    session = Session(build_family("mamba2"), context=600)
    generate(session, prompt_of(20), GREEDY, NgramDrafter())
    assert session.rows.marks
    session.reset()
    assert not session.rows.marks
    generate(session, prompt_of(20), GREEDY, NgramDrafter())
    session.close()
    assert not session.rows.marks
    mx.clear_cache()
