"""The session as a Target: identity with plain decoding, rollback, prefix reuse, interruption.

Mutants of the session, made by hand, that these tests kill (each was tried): one row too many kept
after a rejection; one too few; every row of a pass drawn at the first row's position; penalties blind
to the drafted path; the step in flight kept after a draft was accepted; caches reused after an
interrupt inside a pass; rows kept that a recurrent cache cannot drop; a rotating cache trusted beyond
its window; penalties over more than their window.
"""

import random

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identity import assert_same_tokens
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models import llama, qwen3_next
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from akunu_py.decoding.loop import decode
from akunu_py.drafting import NgramDrafter, PlainDrafter, WindowedNgramDrafter
from akunu_py.errors import ConfigError, ContractError, RollbackError
from akunu_py.models.cache import UNLIMITED, drop_rows, make_caches, rollback_room
from akunu_py.models.session import PREFILL_CHUNK, Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.testing import OracleDrafter
from akunu_py.types import Draft, GenerationConfig

VOCABULARY = 97
ADVERSARIES = ("right", "half", "wrong", "random")


def tiny(seed=3, **options):
    """A random llama whose greedy text does not collapse into one token."""
    arguments = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY, "tie_word_embeddings": True, **options,
    }  # fmt: skip
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs(**arguments))
    model.update(tree_map(lambda array: array * 3, model.parameters()))
    mx.eval(model.parameters())
    return model


@pytest.fixture(scope="module")
def model():
    return tiny()


@pytest.fixture(scope="module")
def session(model):
    return Session(model, context=600)


CONFIGS = {
    "greedy": GenerationConfig(),
    "greedy, penalties": GenerationConfig(repetition_penalty=1.4, presence_penalty=0.5),
    "0.7": GenerationConfig(temperature=0.7),
    "0.7, penalties": GenerationConfig(
        temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.3, logit_bias={5: 2.0}
    ),
    "1.3": GenerationConfig(temperature=1.3),
    "1.3, filters": GenerationConfig(temperature=1.3, top_p=0.9, top_k=30, min_p=0.01),
    "1.3, all": GenerationConfig(temperature=1.3, top_p=0.95, presence_penalty=0.7),
}


def generate(session, prompt, config, drafter, *, max_tokens=60, num_draft_tokens=8, seed=7):
    chain = TransformChain.from_config(config, session.vocabulary_size)
    sampler = Sampler(chain, seed, session.vocabulary_size)
    session.begin(prompt, sampler, max_tokens)
    drafter.observe(prompt)
    steps = decode(
        session, drafter, prompt[-1], num_draft_tokens=num_draft_tokens, max_tokens=max_tokens
    )
    return [token for step in steps for token in step.token_ids]


def prompt_of(size, seed=0):
    rng = random.Random(seed)
    # Repeats itself, so that the n-gram drafters have something to draft.
    phrase = [rng.randrange(VOCABULARY) for _ in range(max(1, size // 3))]
    return (phrase * 4)[:size]


def adversary(kind, truth, seed):
    """Right, half right, always wrong or random drafts of changing length."""
    rng = random.Random(seed)

    def rule(context):
        right = truth[len(context)] if len(context) < len(truth) else 0
        wrong = (right + 1) % VOCABULARY
        return {
            "right": right,
            "half": right if rng.random() < 0.6 else wrong,
            "wrong": wrong,
            "random": rng.randrange(VOCABULARY),
        }[kind]

    class Changing(OracleDrafter):
        def propose(self, limit):
            self.length = rng.randrange(9)
            return super().propose(limit)

    return Changing(rule, 4)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [1, 5, 40])
def test_drafting_never_changes_a_token(session, name, size):
    config, prompt = CONFIGS[name], prompt_of(size)
    plain = generate(session, prompt, config, PlainDrafter())
    assert len(set(plain)) > 5
    drafters = {kind: adversary(kind, prompt + plain, size) for kind in ADVERSARIES}
    drafters |= {"ngram": NgramDrafter(num_draft_tokens=8), "window": WindowedNgramDrafter()}
    for kind, drafter in drafters.items():
        found = generate(session, prompt, config, drafter)
        assert_same_tokens(
            found, plain, logits=session.logits, prompt=prompt, config=config, seed=7, about=kind
        )


@settings(max_examples=40)
@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60),
    name=st.sampled_from(sorted(CONFIGS)),
    seed=st.integers(0, 2**64 - 1),
    script=st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=8), max_size=30),
    kind=st.sampled_from([*ADVERSARIES, "ngram", "ngram-window"]),
    limit=st.integers(0, 8),
)
def test_identity_over_made_up_prompts(session, prompt, name, seed, script, kind, limit):
    config = CONFIGS[name]
    plain = generate(session, prompt, config, PlainDrafter(), seed=seed)
    own = {"ngram": NgramDrafter, "ngram-window": WindowedNgramDrafter}
    drafter = own[kind]() if kind in own else adversary(kind, prompt + plain, len(script))
    found = generate(session, prompt, config, drafter, seed=seed, num_draft_tokens=limit)
    assert_same_tokens(
        found, plain, logits=session.logits, prompt=prompt, config=config, seed=seed, about=kind
    )


@pytest.mark.parametrize("size", [1, 2, 40, 300])
def test_greedy_is_mlx_lms(session, model, size):
    prompt = prompt_of(size)
    expected = [token for token, _ in generate_step(mx.array(prompt), model, max_tokens=100)]
    for drafter in (PlainDrafter(), NgramDrafter()):
        assert generate(session, prompt, GenerationConfig(), drafter, max_tokens=100) == expected


def test_greedy_over_several_prompt_chunks_is_mlx_lms(model):
    prompt = prompt_of(2 * PREFILL_CHUNK + 77)
    expected = [
        token
        for token, _ in generate_step(
            mx.array(prompt), model, max_tokens=30, prefill_step_size=PREFILL_CHUNK
        )
    ]
    session = Session(model, context=4096)
    assert generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=30) == expected


def test_greedy_with_penalties_is_mlx_lms(session, model):
    from mlx_lm.sample_utils import make_logits_processors

    prompt = prompt_of(30)
    expected = [
        token
        for token, _ in generate_step(
            mx.array(prompt), model, max_tokens=60,
            logits_processors=make_logits_processors(None, 1.4, 20, 0.5, 20),
        )
    ]  # fmt: skip
    config = CONFIGS["greedy, penalties"]
    assert generate(session, prompt, config, NgramDrafter()) == expected


def test_without_rollback_the_output_changes(session, model, monkeypatch):
    """The negative control: identity is due to the rollback, and the tests can see it."""
    prompt = prompt_of(20)
    plain = generate(session, prompt, GenerationConfig(), PlainDrafter())
    monkeypatch.setattr("akunu_py.models.session.drop_rows", lambda caches, count: None)
    broken = Session(model, context=600)
    drafter = adversary("wrong", prompt + plain, 1)
    assert generate(broken, prompt, GenerationConfig(), drafter) != plain


def test_a_step_is_kept_in_flight_only_without_drafts_or_penalties(session):
    prompt = prompt_of(10)

    def begin(config, max_tokens=20):
        chain = TransformChain.from_config(config, VOCABULARY)
        session.begin(prompt, Sampler(chain, 1, VOCABULARY), max_tokens)

    begin(GenerationConfig())
    first = session.choose(prompt[-1], Draft.empty())
    session.commit(())
    assert session._in_flight is not None
    # A draft that begins wrongly leaves the pipeline running, one that begins rightly ends it.
    ahead = session._in_flight.item()
    wrong = session.choose(first[0], Draft.chain([(ahead + 1) % VOCABULARY, 3]))
    session.commit(())
    assert wrong == [ahead, -1, -1]
    assert session._in_flight is not None
    following = session._in_flight.item()
    right = session.choose(ahead, Draft.chain([following, 3]))
    assert right[0] == following
    assert len(right) == 3
    session.commit((0,))
    assert session._in_flight is None
    begin(CONFIGS["greedy, penalties"])
    session.choose(prompt[-1], Draft.empty())
    session.commit(())
    assert session._in_flight is None
    # Nothing is computed for a token nobody will ask for.
    begin(GenerationConfig(), max_tokens=1)
    session.choose(prompt[-1], Draft.empty())
    session.commit(())
    assert session._in_flight is None


def test_drafts_are_bounded_by_the_context_and_the_reply(model):
    session = Session(model, context=40)
    sampler = Sampler(TransformChain.from_config(GenerationConfig(), VOCABULARY), 1, VOCABULARY)
    session.begin(prompt_of(30), sampler, 1000)
    assert session.max_draft_tokens() == 9
    session.begin(prompt_of(30), sampler, 5)
    assert session.max_draft_tokens() == 4
    found = generate(session, prompt_of(30), GenerationConfig(), NgramDrafter(), max_tokens=10)
    assert len(found) == 10
    assert len(session._fed) <= 40


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_caches_roll_back_too(model, bits):
    wide = tiny(hidden_size=128, head_dim=32)
    session = Session(wide, context=600, kv_bits=bits)
    assert all(isinstance(cache, QuantizedKVCache) for cache in session._caches)
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
    with pytest.raises(ConfigError, match="RotatingKVCache"):
        make_caches(sliding, 8)


def test_sliding_windows_draft_until_they_wrap_and_stay_right(model):
    sliding = tiny(layer_types=["sliding_attention", "full_attention"], sliding_window=24)
    prompt = prompt_of(10)
    expected = [token for token, _ in generate_step(mx.array(prompt), sliding, max_tokens=60)]
    session = Session(sliding, context=600)
    drafter = adversary("half", prompt + expected, 3)
    assert generate(session, prompt, GenerationConfig(), drafter) == expected
    assert session.max_draft_tokens() == 0


def test_models_that_cannot_roll_back_are_decoded_plainly():
    arguments = qwen3_next.ModelArgs(
        model_type="qwen3_next", hidden_size=64, num_hidden_layers=4, intermediate_size=96,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=VOCABULARY,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2,
        decoder_sparse_step=1, shared_expert_intermediate_size=32, mlp_only_layers=[],
        moe_intermediate_size=32, head_dim=16, rope_theta=1e4, partial_rotary_factor=0.5,
        max_position_embeddings=512, tie_word_embeddings=False,
    )  # fmt: skip
    mx.random.seed(1)
    recurrent = qwen3_next.Model(arguments)
    mx.eval(recurrent.parameters())
    prompt = prompt_of(10)
    expected = [token for token, _ in generate_step(mx.array(prompt), recurrent, max_tokens=30)]
    session = Session(recurrent, context=600)
    assert session.max_draft_tokens() == 0
    for _ in range(2):  # a second reply starts afresh: nothing of the first can be dropped
        found = generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=30)
        assert found == expected


def test_rollback_room_of_cache_kinds():
    assert rollback_room(KVCache()) == UNLIMITED
    assert rollback_room(RotatingKVCache(max_size=10)) == 9
    assert rollback_room(CacheList(KVCache(), RotatingKVCache(max_size=10))) == 9
    assert rollback_room(ArraysCache(2)) == 0
    wrapped = RotatingKVCache(max_size=4)
    for _ in range(6):
        wrapped.update_and_fetch(mx.zeros((1, 1, 1, 8)), mx.zeros((1, 1, 1, 8)))
    assert rollback_room(wrapped) == 0
    with pytest.raises(RollbackError, match="RotatingKVCache dropped 0 of 2"):
        drop_rows([wrapped], 2)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 3), st.integers(1, 12)), min_size=2, max_size=5
    )
)
@settings(max_examples=25)
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
    chain = TransformChain.from_config(GenerationConfig(), VOCABULARY)
    sampler = Sampler(chain, 1, VOCABULARY)
    prompt = prompt_of(50)
    reply = generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=20)
    seen = []
    kept = session.begin([*prompt, *reply, 1, 2, 3], sampler, 10, lambda *p: seen.append(p))
    # The last token of the reply was never fed, unless a step was in flight.
    assert kept in (69, 70)
    assert seen[0] == (kept, 73)
    assert seen[-1] == (73, 73)
    assert session.begin([*prompt, 96, 96], sampler, 10) in (50, 51)


def test_an_interrupt_in_prefill_loses_nothing(model):
    session = Session(model, context=4096)
    prompt = prompt_of(PREFILL_CHUNK + 300)
    expected = generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    chain = TransformChain.from_config(GenerationConfig(), VOCABULARY)
    interrupted = Session(model, context=4096)

    def stop(done, total):
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted.begin(prompt, Sampler(chain, 1, VOCABULARY), 10, stop)
    assert len(interrupted._fed) == PREFILL_CHUNK
    found = generate(interrupted, prompt, GenerationConfig(), PlainDrafter(), max_tokens=10)
    assert found == expected


def test_an_interrupt_inside_a_pass_starts_the_caches_afresh(model):
    session = Session(model, context=600)
    prompt = prompt_of(20)
    expected = generate(session, prompt, GenerationConfig(), PlainDrafter())
    forward = session._forward
    calls = []

    def interrupted(rows):
        calls.append(1)
        if len(calls) == 7:
            forward(rows)  # the caches have taken the rows in
            raise KeyboardInterrupt
        return forward(rows)

    session._forward = interrupted
    with pytest.raises(KeyboardInterrupt):
        generate(session, prompt, GenerationConfig(), NgramDrafter())
    session._forward = forward
    assert generate(session, prompt, GenerationConfig(), NgramDrafter()) == expected


def test_calls_out_of_order_are_named(model):
    session = Session(model, context=100)
    with pytest.raises(ContractError, match="before begin"):
        session.choose(1, Draft.empty())
    chain = TransformChain.from_config(GenerationConfig(), VOCABULARY)
    session.begin([1, 2], Sampler(chain, 1, VOCABULARY), 10)
    with pytest.raises(ContractError, match="tree"):
        session.choose(2, Draft((1, 2), (-1, -1)))
    session.choose(2, Draft.chain([1, 2]))
    with pytest.raises(ContractError, match="twice"):
        session.choose(2, Draft.empty())


def test_logits_leave_the_conversation_alone(model, session):
    prompt = prompt_of(20)
    generate(session, prompt, GenerationConfig(), PlainDrafter())
    before = list(session._fed)
    rows = session.logits(prompt)
    assert rows.shape == (20, VOCABULARY)
    assert rows.dtype == np.float32
    assert session._fed == before
    expected = np.array(model(mx.array([prompt]))[0])
    np.testing.assert_allclose(rows, expected, atol=2e-5)
