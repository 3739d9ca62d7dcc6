"""What no golden file of llama.cpp's shows of architectures: files of other forms, and its rounding."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.rope_utils import Llama3RoPE
from test_architecture_refusals import separate_experts
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.gguf import GGUFFile, read_plan
from akunu_py.models.variants.feed_forward import Gemma, StarCoder2, gemma, starcoder2
from akunu_py.system.errors import ConfigError

IDS = [5, 50, 90, 17, 201, 33, 77, 8, 120, 64, 31, 99, 140, 3, 250, 12, 45, 180, 66, 20, 111, 7]
WINDOW = 4


def load(model, folder, **options):
    path = model.write(folder / "model.gguf")
    return Engine.load(path, **{"weights": "dense", "compute_type": "float32", **options})


def logits(model, folder, **options):
    with load(model, folder, **options) as engine:
        return engine.logits(IDS)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_gemmas_activation_is_the_approximation_by_tanh():
    """Where it is furthest from the exact one, which llama.cpp's half precision hides."""
    arguments = gemma.ModelArgs(
        model_type="gemma", hidden_size=1, num_hidden_layers=1, intermediate_size=1,
        num_attention_heads=1, head_dim=2, rms_norm_eps=1e-6, vocab_size=1, num_key_value_heads=1,
    )  # fmt: skip
    part = Gemma(arguments).layers[0].mlp
    part.gate_proj.weight = part.up_proj.weight = part.down_proj.weight = mx.ones((1, 1))
    x = np.linspace(-4, 4, 81)
    found = np.array(part(mx.array(x[:, None], mx.float32)))[:, 0]
    assert np.abs(found - gelu(x) * x).max() < 1e-5


def test_starcoders_activation_is_the_approximation_by_tanh():
    arguments = starcoder2.ModelArgs(
        model_type="starcoder2", hidden_size=8, num_hidden_layers=1, intermediate_size=8,
        num_attention_heads=2, num_key_value_heads=2, vocab_size=8,
    )  # fmt: skip
    part = StarCoder2(arguments).layers[0].mlp
    for layer in (part.c_fc, part.c_proj):
        layer.weight, layer.bias = mx.eye(8), mx.zeros(8)
    x = np.linspace(-3, 3, 8)
    # By the error function it would differ by 5e-4.
    np.testing.assert_allclose(part(mx.array(x, mx.float32)), gelu(x), atol=2e-6)


def test_layers_without_scales_have_ones(tmp_path):
    """Files of early conversions of Gemma 4 lack them."""
    ones, without = build("gemma4-moe"), build("gemma4-moe")
    for name, values in ones.tensors.items():
        if name.endswith(("layer_output_scale.weight", "ffn_down_exps.scale")):
            ones.tensor(name, np.ones_like(values))
            del without.tensors[name]
    assert np.array_equal(logits(ones, tmp_path), logits(without, tmp_path))


def test_stacks_of_gate_and_up_apart_compute_the_same(tmp_path):
    fused, apart = build("gemma4-moe"), build("gemma4-moe")
    for name, values in fused.tensors.items():
        if name.endswith("ffn_gate_up_exps.weight"):
            del apart.tensors[name]
            half = values.shape[1] // 2
            apart.tensor(name.replace("gate_up", "gate"), values[:, :half])
            apart.tensor(name.replace("gate_up", "up"), values[:, half:])
    assert np.array_equal(logits(fused, tmp_path), logits(apart, tmp_path))


@pytest.mark.slow
def test_what_early_files_of_3n_do_not_say(tmp_path):
    """Which layers are sparse, use others' keys, see a window: as both released sizes have it."""
    stated, silent = build("gemma3n"), build("gemma3n")
    for key in (
        "activation_sparsity_scale", "attention.shared_kv_layers",
        "attention.sliding_window_pattern",
    ):  # fmt: skip
        del silent.metadata[f"gemma3n.{key}"]
    assert np.abs(logits(stated, tmp_path) - logits(silent, tmp_path)).max() < 1e-5


def test_minicpm_files_without_scales_have_the_first_models_scales(tmp_path):
    """llama.cpp multiplies the logits of such files by what it should divide them by."""
    old, new = build("minicpm"), build("minicpm")
    for key in ("embedding_scale", "residual_scale", "logit_scale"):
        del old.metadata[f"minicpm.{key}"]
    new.keys(embedding_scale=12.0, residual_scale=1.4 / 3**0.5, logit_scale=64 / 256)
    np.testing.assert_allclose(logits(old, tmp_path), logits(new, tmp_path), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_an_expert_a_tensor_is_the_same_as_a_stack(tmp_path, kind):
    results = []
    for change in (lambda tensors: None, separate_experts):
        model = build("llama-experts")
        change(model.tensors)
        for tensor in model.tensors:
            if kind != "F32" and ".ffn_" in tensor and "norm" not in tensor:
                model.quantize(tensor, kind)
        results.append(logits(model, tmp_path, weights="quantized"))
    assert np.array_equal(*results)


def test_experts_of_different_quantization_are_expanded(tmp_path):
    dense, mixed = build("llama-experts"), build("llama-experts")
    separate_experts(dense.tensors)
    separate_experts(mixed.tensors)
    mixed.quantize("blk.1.ffn_down.2.weight", "Q8_0")
    mixed.quantize("blk.1.ffn_down.3.weight", "Q5_0")
    results = [logits(model, tmp_path, weights="quantized") for model in (dense, mixed)]
    difference = np.abs(results[0] - results[1]).max() / results[0].std()
    assert 0 < difference < 0.2


def test_one_expert_a_token(tmp_path):
    """Found by scripts/fuzz_gguf.py: mlx-lm's compiled sum over one expert ended the process."""
    tiny = build("bailingmoe")
    tiny.key("expert_used_count", 1)
    with load(tiny, tmp_path) as engine:
        # With one expert its weight is 1, so each row's mixture is that expert alone.
        with engine.lend("a test") as lent:
            mixture = lent.model.model.layers[-1].mlp
        for size in (1, 3, 8):
            x = mx.random.normal((1, size, 64))
            chosen, weights = mixture.gate(x)
            assert mx.allclose(weights, mx.ones_like(weights))
            expected = mixture.switch_mlp(x, chosen)[..., 0, :] + mixture.shared_experts(x)
            assert mx.allclose(mixture(x), expected, atol=1e-5)
        assert engine.logits([1, 2, 3, 4]).shape[0] == 4


@pytest.mark.parametrize("weights", ["dense", "quantized"])
def test_a_latent_vector_in_a_cache_is_not_quantized(tmp_path, weights):
    tiny = build("deepseek2")
    for name in tiny.tensors:
        if name.endswith(("attn_k_b.weight", "attn_v_b.weight")):
            tiny.quantize(name, "Q8_0")
    with pytest.raises(ConfigError, match=r"one small vector per token.*leave kv_bits out"):
        load(tiny, tmp_path, kv_bits=8, weights=weights)


def phi3(window):
    model = build("phi3")
    model.keys(attention__sliding_window=window)
    return model


def test_tokens_beyond_the_window_of_every_layer_count_for_nothing(tmp_path):
    """llama.cpp leaves the window out: with 3 layers of 4 tokens a token sees 10 back at most."""
    reach = 3 * (WINDOW - 1)
    with load(phi3(WINDOW), tmp_path) as engine:
        kept = engine.logits(IDS)[-1]
        beyond, within = list(IDS), list(IDS)
        beyond[-2 - reach], within[-1 - reach] = 1, 1
        assert np.array_equal(engine.logits(beyond)[-1], kept)
        assert np.abs(engine.logits(within)[-1] - kept).max() > 1e-3


def test_a_reply_stays_in_the_window(tmp_path):
    """One token at a time over rotating caches, as in one pass."""
    with load(phi3(WINDOW), tmp_path) as engine:
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        reply = engine.generate(IDS[:6], max_tokens=24, drafter="none", logit_bias=never)
        rows = engine.logits([*IDS[:6], *reply.token_ids])[5:-1]
        rows[:, list(never)] = -np.inf
        assert rows.argmax(axis=1).tolist() == list(reply.token_ids)


@pytest.mark.parametrize(("window", "wanted"), [(0, None), (255, 255), (256, None), (1000, None)])
def test_a_window_that_nothing_leaves_is_none(tmp_path, window, wanted):
    """Then caches are of the plain kind, which can be quantized and rolled back."""
    with GGUFFile.open(phi3(window).write(tmp_path / "model.gguf")) as file:
        assert read_plan(file.metadata, file.tensors).arguments["sliding_window"] == wanted


def test_steps_factors_are_those_of_the_frequencies_that_rotate(tmp_path):
    """Files have factors for a whole head; llama.cpp takes the first ones for the half that rotates."""
    scaling = {
        "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    whole = Llama3RoPE(32, base=500000.0, scaling_config=scaling)._freqs
    plain = 500000.0 ** (np.arange(0, 32, 2) / 32)
    model = build("step35-fused")
    model.tensor("rope_freqs.weight", np.array(whole) / plain)
    half = Llama3RoPE(16, base=500000.0, scaling_config=scaling)
    x = mx.random.normal((1, 1, 50, 32))
    with load(model, tmp_path) as engine, engine.lend("a test") as lent:
        layers = lent.model.model.layers
        assert mx.allclose(layers[0].self_attn.rope(x), half(x), atol=1e-4)
        assert isinstance(layers[1].self_attn.rope, nn.RoPE)


@pytest.mark.parametrize(("context", "same"), [(32, "phi3-short"), (33, "phi3-long")])
def test_the_context_chooses_the_rotary_factors(tmp_path, context, same):
    """At most what the short factors were made for, or more."""
    found = []
    for name, tokens in (("phi3-long", context), (same, 256)):
        model = build("phi3-long")
        if name == "phi3-short":
            model.key("rope.scaling.original_context_length", 256)
        found.append(logits(model, tmp_path, context=tokens))
    assert np.array_equal(*found)
