"""Models whose layers keep a state that cannot be rolled back, beyond their logits."""

import mlx.core as mx
import numpy as np
import pytest
from engine_inside import session_of
from tiny_architectures.builder import BUILDERS, build
from whole_numbers import LEEWAY

from akunu_py import Engine
from akunu_py.models import cached_rows
from akunu_py.models.layers import StackedLinear

NAMES = sorted(
    {
        "falcon-h1", "granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "mamba", "mamba2",
        "nemotron_h", "nemotron_h_moe", "plamo2", "qwen35", "qwen35moe", "qwen3next", "rwkv7",
    }
    & set(BUILDERS)
)  # fmt: skip
# Their states are those of another one, in another mixture of layers.
ALIKE = {
    "falcon-h1", "granitehybrid", "jamba", "lfm2moe", "nemotron_h", "nemotron_h_moe", "plamo2",
    "qwen35", "qwen35moe",
}  # fmt: skip
BEGINNING = list(range(20, 44))


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in NAMES],
)
def path(request, tmp_path_factory):
    """A model whose matrices are in Q8_0: MLX has no dense experts in float16 on a CPU."""
    model = build(request.param)
    for name, values in model.tensors.items():
        if values.ndim > 1 and values.shape[-1] % 32 == 0:
            model.quantize(name, "Q8_0")
    return model.write(tmp_path_factory.mktemp("recurrent") / "model.gguf")


@pytest.fixture(scope="module")
def engine(path):
    with load(path) as loaded:
        yield loaded


def load(path, **options):
    return Engine.load(path, **{"compute_type": "float32", **options})


def reply(engine, prompt, tokens=8, **options):
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    return engine.generate(prompt, max_tokens=tokens, logit_bias=never, **options).token_ids


@pytest.mark.fast_every(2)
def test_a_shared_beginning_changes_no_reply(engine):
    """Prompts that go on from a reply, turn off from it, are its beginning, or come again."""
    engine.reset()
    first = reply(engine, BEGINNING)
    prompts = [[*BEGINNING, *first, 7, 8, 9], [*BEGINNING, *first[:5], 9, 8, 7]]
    prompts += [BEGINNING[:10], BEGINNING]
    found = [reply(engine, prompt) for prompt in prompts]
    expected = []
    for prompt in prompts:
        engine.reset()
        expected.append(reply(engine, prompt))
    assert found == expected
    assert found[-1] == first


def test_a_prompt_in_pieces_gives_the_same_logits(engine, monkeypatch):
    whole = engine.logits(BEGINNING)
    monkeypatch.setattr(cached_rows, "PREFILL_CHUNK", 5)
    assert np.abs(whole - engine.logits(BEGINNING)).max() < 1e-3 * whole.std()


def test_drafting_changes_no_reply(engine):
    """Whether the session can take drafts back here or makes none at all."""
    prompt = [5, 6, 7, 8] * 6
    engine.reset()
    drafted = reply(engine, prompt, drafter="ngram", num_draft_tokens=4)
    engine.reset()
    assert drafted == reply(engine, prompt, drafter="none")


def test_activations_stay_in_the_type_of_the_model(path):
    """What is kept in float32 must not spread to everything behind it, or MLX is half as fast."""
    with load(path, compute_type="float16", weights="quantized") as engine:
        session = session_of(engine)
        logits = session.rows.model(mx.array([BEGINNING]), cache=session.rows.caches)
        assert logits.dtype == mx.float16
        last = session.rows.model(mx.array([[3]]), cache=session.rows.caches)
        assert last.dtype == mx.float16


def test_the_state_is_in_float32(path):
    """It takes up every token, so that half precision's rounding would add up."""
    with load(path, compute_type="float16", weights="quantized") as engine:
        session = session_of(engine)
        session.rows.model(mx.array([BEGINNING]), cache=session.rows.caches)
        parts = [
            part for cache in session.rows.caches for part in getattr(cache, "caches", (cache,))
        ]
        # The last after what convolutions need.
        states = [part.cache[-1] for part in parts if len(getattr(part, "cache", ())) > 1]
        assert {state.dtype for state in states} <= {mx.float32}


def test_parts_of_one_matrix_may_have_different_quantizations(tmp_path):
    """mlx-lm fuses what GGUF holds as qkv and gate, of which a file quantizes each as it likes."""
    model = build("qwen3next")
    model.quantize("blk.0.attn_qkv.weight", "Q8_0")
    model.quantize("blk.0.attn_gate.weight", "Q5_1")
    model.quantize("blk.2.attn_qkv.weight", "Q8_0")
    model.quantize("blk.2.attn_gate.weight", "Q8_0")
    path = model.write(tmp_path / "model.gguf")
    logits = []
    for weights in ("dense", "quantized"):
        with load(path, weights=weights) as engine:
            logits.append(engine.logits(BEGINNING))
            layers = session_of(engine).rows.model.model.layers
            stacked = [
                isinstance(layers[i].linear_attn.in_proj_qkvz, StackedLinear) for i in (0, 2)
            ]
            assert stacked == [weights == "quantized", False]
    assert np.abs(logits[0] - logits[1]).max() < 1e-3 * LEEWAY * logits[0].std()


def test_the_first_files_of_kimi_linear_have_keys_and_values_in_one_matrix(tmp_path):
    model = build("kimi-linear")
    path = model.write(tmp_path / "model.gguf")
    with load(path) as engine:
        expected = engine.logits(BEGINNING)
    keys = model.tensors.pop("blk.2.attn_k_b.weight").swapaxes(1, 2)
    both = np.concatenate((keys, model.tensors.pop("blk.2.attn_v_b.weight")), axis=1)
    model.tensor("blk.2.attn_kv_b.weight", both.reshape(-1, both.shape[-1]))
    with load(model.write(path)) as engine:
        found = engine.logits(BEGINNING)
    assert np.abs(found - expected).max() < 1e-3 * expected.std()


@pytest.mark.parametrize(
    "name",
    [
        "falcon-h1", "kimi-linear", "lfm2", "qwen3next",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "granitehybrid-dense", "jamba", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen35",
                "qwen35moe",
            )
        ),
    ],
)  # fmt: skip
def test_queries_keys_and_values_may_be_one_matrix(tmp_path, name):
    """llama.cpp's converters fuse them when asked to."""
    model = build(name)
    path = model.write(tmp_path / "model.gguf")
    with load(path) as engine:
        expected = engine.logits(BEGINNING)
    for query in [tensor for tensor in model.tensors if ".attn_q." in tensor]:
        names = [query.replace("attn_q", f"attn_{part}") for part in "qkv"]
        if all(part in model.tensors for part in names):
            parts = [model.tensors.pop(part) for part in names]
            model.tensor(query.replace("attn_q", "attn_qkv"), np.concatenate(parts))
    assert any("attn_qkv" in tensor for tensor in model.tensors)
    with load(model.write(path)) as engine:
        found = engine.logits(BEGINNING)
    assert np.abs(found - expected).max() < 1e-3 * expected.std()
