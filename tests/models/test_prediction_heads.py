"""Heads that predict further tokens: what they compute, and every layout they are read from."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models import mimo
from mlx_lm.models.cache import can_trim_prompt_cache
from prediction_heads import (
    EXTRA_LAYER,
    LAYERS,
    MIMO,
    QWEN,
    TARGETS,
    VOCABULARY,
    less_one,
    loaded_from,
    named,
    outputs,
    parameters_of,
    random_head,
    tiny_target,
    with_fused_experts,
    with_single_experts,
    write,
    write_config,
)

from akunu_py import ConfigError, ModelFormatError
from akunu_py.models.heads import load_head


@pytest.fixture(scope="module")
def target():
    return tiny_target("qwen3_5")


@pytest.fixture(scope="module")
def head(target):
    return random_head(target)


def same(found, head):
    np.testing.assert_array_equal(np.array(outputs(found)), np.array(outputs(head)))


@pytest.mark.parametrize("family", TARGETS)
def test_a_head_of_each_family_is_one_layer_with_a_cache_of_its_own(family):
    target = tiny_target(family)
    head = random_head(target)
    hidden = mx.random.normal((1, 5, head.width), key=mx.random.key(1))
    tokens = mx.array([[3, 1, 4, 1, 5]], dtype=mx.int32)
    whole = head(hidden, tokens, head.make_cache())
    cache = head.make_cache()
    assert can_trim_prompt_cache(cache)
    parts = [head(hidden[:, :3], tokens[:, :3], cache)]
    head(hidden[:, 1:4], tokens[:, 1:4], cache)
    assert cache[0].trim(3) == 3
    parts.append(head(hidden[:, 3:], tokens[:, 3:], cache))
    np.testing.assert_allclose(np.array(mx.concatenate(parts, axis=1)), np.array(whole), atol=1e-5)
    assert cache[0].offset == 5
    np.testing.assert_array_equal(np.array(head(hidden, tokens)), np.array(whole))
    # The logits are the target's, and its layers do not count as the head's own.
    output = target.language_model.lm_head if "language_model" in target else target.lm_head
    np.testing.assert_array_equal(np.array(head.logits(whole)), np.array(output(whole)))
    assert not any("embed" in path.split(".")[0] for path in parameters_of(head))
    assert all(97 not in array.shape for array in parameters_of(head).values())


QWEN_PLACES = {
    "among the weights": ("model.safetensors", "mtp."),
    "among those of a vision model": ("model-00001-of-00002.safetensors", "language_model.mtp."),
    "MTPLX": ("mtp.safetensors", "mtp."),
    "vllm-mlx": ("mtp/weights.safetensors", "language_model.mtp."),
    "Rapid-MLX": ("mtp/model.safetensors", ""),
    "vllm-mlx, one folder": ("model-mtp.safetensors", "mtp."),
    "a side-car without a prefix": ("mtp.safetensors", ""),
}


@pytest.mark.parametrize("place", QWEN_PLACES)
@pytest.mark.parametrize("norms", ["whole", "less one"])
def test_a_head_is_the_same_from_every_place_in_a_models_folder(
    target, head, tmp_path, place, norms
):
    file, prefix = QWEN_PLACES[place]
    write_config(tmp_path)
    arrays = named(parameters_of(head), QWEN, prefix)
    if norms == "less one":
        arrays = less_one(arrays)
    others = {"model.layers.0.mlp.up_proj.weight": mx.zeros((4, 4))} if prefix else {}
    write(tmp_path / "model.safetensors", {"model.norm.weight": mx.zeros(64)})
    write(tmp_path / file, {**arrays, **others})
    found = load_head(loaded_from(tmp_path, target), None)
    np.testing.assert_allclose(np.array(outputs(found)), np.array(outputs(head)), atol=1e-5)
    if norms == "whole":
        same(found, head)
        same(load_head(loaded_from(tmp_path / "another", target), tmp_path / file), head)


def test_a_head_in_a_folder_of_its_own(target, head, tmp_path):
    write_config(tmp_path, "qwen3_5_mtp")
    write(tmp_path / "model.safetensors", named(parameters_of(head), QWEN, ""))
    same(load_head(loaded_from(tmp_path / "model", target), tmp_path), head)


def test_norms_that_are_stored_less_one_only_in_part(target, head, tmp_path):
    """The last norm whole and the others not, as one program wrote them (oMLX #1507)."""
    arrays = named(parameters_of(head), QWEN, "mtp.")
    mixed = {**less_one(arrays), "mtp.norm.weight": arrays["mtp.norm.weight"]}
    path = write(tmp_path / "mtp.safetensors", mixed)
    found = load_head(loaded_from(tmp_path, target), path)
    np.testing.assert_allclose(np.array(outputs(found)), np.array(outputs(head)), atol=1e-5)


EXTRA = f"model.layers.{LAYERS}."
CHECKPOINTS = {
    "qwen3_next": (QWEN, "mtp.", lambda arrays: with_single_experts(less_one(arrays))),
    "qwen3_5_moe": (QWEN, "mtp.", lambda arrays: with_fused_experts(less_one(arrays))),
    "qwen3_5_moe, single experts": (QWEN, "mtp.", with_single_experts),
    "deepseek_v3": (EXTRA_LAYER, EXTRA, with_single_experts),
    "glm4_moe": (EXTRA_LAYER, EXTRA, with_single_experts),
    "glm4_moe_lite": (EXTRA_LAYER, EXTRA, with_single_experts),
    "mimo": (MIMO, "model.mtp_layers.0.", dict),
    "llama": (QWEN, "mtp.", dict),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_head_of_each_familys_checkpoints(name, tmp_path):
    names, prefix, stored = CHECKPOINTS[name]
    target = tiny_target(name.partition(",")[0])
    head = random_head(target)
    arrays = stored(named(parameters_of(head), names, prefix))
    # A layer of the model, and a second head, are not the first head's.
    second = {EXTRA: f"model.layers.{LAYERS + 1}.", "mtp.": "mtp.layers.1."}
    others = {
        "model.layers.3.input_layernorm.weight": mx.zeros(64),
        f"{second.get(prefix, 'model.mtp_layers.1.')}input_layernorm.weight": mx.zeros(64),
    }
    write_config(tmp_path)
    write(tmp_path / "model.safetensors", {**arrays, **others})
    found = load_head(loaded_from(tmp_path, target), None)
    np.testing.assert_allclose(np.array(outputs(found)), np.array(outputs(head)), atol=1e-5)


def test_keys_and_values_of_a_checkpoint_in_one_matrix(tmp_path):
    target = tiny_target("deepseek_v3")
    head = random_head(target)
    arrays = named(parameters_of(head), EXTRA_LAYER, EXTRA)
    at = f"{EXTRA}self_attn."
    keys = arrays.pop(f"{at}embed_q.weight").swapaxes(-1, -2)
    joined = mx.concatenate([keys, arrays.pop(f"{at}unembed_out.weight")], axis=1)
    arrays[f"{at}kv_b_proj.weight"] = joined.reshape(-1, joined.shape[-1])
    path = write(tmp_path / "head.safetensors", arrays)
    same(load_head(loaded_from(tmp_path, target), path), head)


def test_mimos_head_takes_the_state_before_the_embedding():
    target = tiny_target("mimo")
    head = random_head(target)
    hidden = mx.random.normal((1, 4, head.width), key=mx.random.key(0))
    tokens = mx.array([[9, 8, 7, 6]], dtype=mx.int32)
    layer = mimo.TransformerBlock(target.args)
    layer.update(head.body.layers[0].parameters())
    joined = [head.hnorm(hidden), head.enorm(target.model.embed_tokens(tokens))]
    states = head.body.norm(layer(head.eh_proj(mx.concatenate(joined, axis=-1)), "causal"))
    np.testing.assert_allclose(np.array(head(hidden, tokens)), np.array(states), atol=1e-5)


def test_a_heads_own_embedding_and_output_head(tmp_path):
    target = tiny_target("glm4_moe")
    head = random_head(target)
    plain = parameters_of(head)
    loaded = loaded_from(tmp_path, target)
    own = {
        "embed_tokens.weight": target.model.embed_tokens.weight,
        "lm_head.weight": target.lm_head.weight,
    }
    path = tmp_path / "head.safetensors"
    write(path, named({**plain, **own}, EXTRA_LAYER, EXTRA))
    found = load_head(loaded, path)
    # Copies of the target's are dropped.
    assert parameters_of(found).keys() == plain.keys()
    same(found, head)
    # Rows in the opposite order.
    own = {name: array[::-1] for name, array in own.items()}
    write(path, named({**plain, **own}, EXTRA_LAYER, EXTRA))
    found = load_head(loaded, path)
    assert parameters_of(found).keys() == plain.keys() | own.keys()
    tokens = mx.array([[1, 2]], dtype=mx.int32)
    hidden = mx.random.normal((1, 2, 64), key=mx.random.key(0))
    np.testing.assert_allclose(
        np.array(found.logits(found(hidden, VOCABULARY - 1 - tokens))),
        np.array(head.logits(head(hidden, tokens)))[..., ::-1],
        atol=1e-5,
    )


def test_a_head_in_a_form_without_biases(target, tmp_path):
    head = random_head(target)
    nn.quantize(
        head, group_size=32, bits=4, mode="mxfp4",
        class_predicate=lambda path, _: path == "eh_proj",
    )  # fmt: skip
    path = write(tmp_path / "mtp.safetensors", named(parameters_of(head), QWEN, "mtp."))
    found = load_head(loaded_from(tmp_path, target, weights="quantized"), path)
    assert found.eh_proj.mode == "mxfp4"
    same(found, head)


def test_blocks_of_8_bit_floats_of_a_checkpoint(tmp_path):
    target = tiny_target("deepseek_v3")
    head = random_head(target)
    arrays = named(parameters_of(head), EXTRA_LAYER, EXTRA)
    for name in ("eh_proj", "mlp.experts.1.up_proj"):
        arrays = with_single_experts(arrays)
        arrays[f"{EXTRA}{name}.weight"] = mx.to_fp8(arrays[f"{EXTRA}{name}.weight"] * 4)
        arrays[f"{EXTRA}{name}.weight_scale_inv"] = mx.full((1, 1), 0.25)
    head.eh_proj.weight = mx.from_fp8(arrays[f"{EXTRA}eh_proj.weight"], dtype=mx.float32) / 4
    stack = head.body.layers[0].mlp.switch_mlp.up_proj
    up = mx.from_fp8(arrays[f"{EXTRA}mlp.experts.1.up_proj.weight"], dtype=mx.float32) / 4
    stack.weight = mx.concatenate([stack.weight[:1], up[None], stack.weight[2:]])
    path = write(tmp_path / "mtp.safetensors", arrays)
    same(load_head(loaded_from(tmp_path, target), path), head)


def test_numbers_that_the_type_of_the_target_cannot_hold(head, tmp_path):
    arrays = named(parameters_of(head), QWEN, "mtp.")
    arrays["mtp.fc.weight"] = arrays["mtp.fc.weight"] * 1e6
    path = write(tmp_path / "mtp.safetensors", arrays)
    half = tiny_target("qwen3_5")
    half.set_dtype(mx.float16)
    with pytest.raises(ConfigError, match=r"eh_proj.weight that float16 cannot hold; choose"):
        load_head(loaded_from(tmp_path, half), path)


def test_the_bias_of_a_router_keeps_its_type(tmp_path):
    target = tiny_target("deepseek_v3")
    head = random_head(target)
    target.set_dtype(mx.bfloat16)
    path = write(tmp_path / "mtp.safetensors", named(parameters_of(head), EXTRA_LAYER, EXTRA))
    found = parameters_of(load_head(loaded_from(tmp_path, target), path))
    kept = [path for path, array in found.items() if array.dtype == mx.float32]
    assert kept == ["body.layers.0.mlp.gate.e_score_correction_bias"]


def test_a_missing_expert_is_named(tmp_path):
    target = tiny_target("qwen3_next")
    arrays = with_single_experts(named(parameters_of(random_head(target)), QWEN, "mtp."))
    arrays.pop("mtp.layers.0.mlp.experts.2.up_proj.weight")
    path = write(tmp_path / "mtp.safetensors", arrays)
    with pytest.raises(ModelFormatError, match=r"the experts \[0, 1, 3\] for .*up_proj"):
        load_head(loaded_from(tmp_path, target), path)


def test_places_without_a_head(target, tmp_path):
    write_config(tmp_path)
    path = write(tmp_path / "model.safetensors", {"model.norm.weight": mx.ones(64)})
    loaded = loaded_from(tmp_path, target)
    assert load_head(loaded, None) is None
    assert load_head(loaded_from(tmp_path / "nowhere", target), None) is None
    for source in (tmp_path, path):
        with pytest.raises(ConfigError, match="has no prediction head for this model; give"):
            load_head(loaded, source)
    with pytest.raises(ConfigError, match=r"absent does not exist; give a GGUF or safetensors"):
        load_head(loaded, tmp_path / "absent")


def test_a_model_on_several_machines_takes_no_head(target, head, tmp_path):
    path = write(tmp_path / "mtp.safetensors", named(parameters_of(head), QWEN, "mtp."))
    loaded = dataclasses.replace(loaded_from(tmp_path, target), make_passes=lambda *_: None)
    with pytest.raises(ConfigError, match="work on one machine only; leave them out, or run"):
        load_head(loaded, path)
