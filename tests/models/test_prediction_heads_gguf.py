"""Heads in GGUF files: the same as in a folder, and files whose head is damaged or absent."""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from prediction_heads import (
    EXTRA_LAYER,
    QWEN,
    loaded_from,
    named,
    outputs,
    parameters_of,
    rms,
    rotated,
    silu,
    softmax,
    write,
)
from tiny_architectures import BUILDERS, TinyModel, qwen_linear
from tiny_architectures.builder import build

from akunu_py import ConfigError, ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.heads import load_head
from akunu_py.models.load import LoadOptions, load_model

BLOCKS = {"qwen35": 4, "deepseek2": 3, "glm4moe": 3}
"""Tiny model with a head -> number of the head's block."""


def qwen_mixture(architecture, arrays=None):
    """A mixture with a head; with `arrays`, in a file that states numbers for each block."""
    model = TinyModel(architecture)
    qwen_linear.sizes(model, interval=4, extra=1)
    qwen_linear.experts_keys(model)
    if architecture == "qwen35moe":
        model.key("rope.dimension_sections", [2, 1, 1, 0])
    if arrays:
        model.key("attention.recurrent_layers", [True, True, True, False, False])
        model.key("attention.head_count_kv", [2] * 5)
    split = architecture == "qwen35moe"
    qwen_linear.add_blocks(model, interval=4, experts=True, split=split, fused=False)
    qwen_linear.predictor(model, 4)
    for name in ("gate", "up", "down"):
        del model.tensors[f"blk.4.ffn_{name}.weight"]
    qwen_linear.shared_mixture(model, "blk.4.")
    return model


@pytest.fixture(scope="module")
def tiny():
    return build("qwen35")


@pytest.fixture(scope="module")
def qwen(tiny, tmp_path_factory):
    return load_model(tiny.write(tmp_path_factory.mktemp("qwen") / "qwen.gguf"))


def changed(model, tmp_path, change):
    """Write a tiny model with changed tensors or metadata."""
    change(model)
    return model.write(tmp_path / "changed.gguf")


@pytest.mark.parametrize("name", [*BLOCKS, "qwen35moe", "qwen3next", "qwen3next, arrays"])
def test_a_head_is_the_same_from_gguf_and_from_safetensors(name, tmp_path):
    model = build(name) if name in BLOCKS else qwen_mixture(*name.split(", "))
    loaded = load_model(model.write(tmp_path / "model.gguf"))
    head = load_head(loaded, None)
    names, prefix = (
        (QWEN, "mtp.") if name.startswith("q") else (EXTRA_LAYER, f"model.layers.{BLOCKS[name]}.")
    )
    path = write(tmp_path / "mtp.safetensors", named(parameters_of(head), names, prefix))
    found = load_head(loaded, path)
    np.testing.assert_array_equal(np.array(outputs(found)), np.array(outputs(head)))
    assert head.takes == "normed"
    assert head.width == 64


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def head_in_numpy(tensors, block, hidden, tokens):
    """Qwen 3.5's head, written from vLLM's `qwen3_next_mtp`; float64, [n, H]."""
    weights = {
        name.removeprefix(f"blk.{block}.").removesuffix(".weight"): array.astype(np.float64)
        for name, array in tensors.items()
    }
    heads, kv_heads, head_dim = 4, 2, 32
    rows = len(tokens)
    embedding = rms(weights["token_embd"][tokens], weights["nextn.enorm"])
    joined = np.concatenate([embedding, rms(hidden, weights["nextn.hnorm"])], axis=-1)
    x = joined @ weights["nextn.eh_proj"].T
    normed = rms(x, weights["attn_norm"])
    # Each query is followed by its gate.
    queries = (normed @ weights["attn_q"].T).reshape(rows, heads, 2, head_dim)
    keys = (normed @ weights["attn_k"].T).reshape(rows, kv_heads, head_dim)
    values = (normed @ weights["attn_v"].T).reshape(rows, kv_heads, head_dim)
    # Of 32 numbers the first 8 turn.
    angles = np.arange(rows)[:, None] * 1e6 ** (-np.arange(0, 8, 2) / 8)
    q = rotated(rms(queries[:, :, 0], weights["attn_q_norm"]).swapaxes(0, 1), angles)
    k = rotated(rms(keys, weights["attn_k_norm"]).swapaxes(0, 1), angles).repeat(
        heads // kv_heads, 0
    )
    v = values.swapaxes(0, 1).repeat(heads // kv_heads, 0)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(head_dim)
    scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
    attended = softmax(scores) @ v
    gated = attended.swapaxes(0, 1) * sigmoid(queries[:, :, 1])
    x = x + gated.reshape(rows, -1) @ weights["attn_output"].T
    normed = rms(x, weights["post_attention_norm"])
    gate = normed @ weights["ffn_gate"].T
    x = x + (silu(gate) * (normed @ weights["ffn_up"].T)) @ weights["ffn_down"].T
    return rms(x, weights["nextn.shared_head_norm"])


def test_the_numbers_of_qwens_head(tiny, qwen):
    head = load_head(qwen, None)
    hidden = np.random.default_rng(0).normal(size=(7, 64))
    tokens = np.array([3, 1, 4, 1, 5, 9, 2])
    found = head(mx.array(hidden[None].astype(np.float32)), mx.array(tokens)[None], None)
    expected = head_in_numpy(tiny.tensors, 4, hidden, tokens)
    np.testing.assert_allclose(np.array(found[0]), expected, atol=2e-5)
    logits = expected @ tiny.tensors["output.weight"].T
    np.testing.assert_allclose(np.array(head.logits(found)[0]), logits, atol=2e-4)


def test_a_quantized_head_keeps_the_files_weights(tmp_path):
    model = build("qwen35")
    for name, array in model.tensors.items():
        if array.ndim == 2 and array.shape[-1] % 32 == 0:
            model.quantize(name, "Q8_0")
    path = model.write(tmp_path / "model.gguf")
    quantized = load_head(load_model(path, LoadOptions(weights="quantized")), None)
    assert quantized.eh_proj.bits == 8
    dense = load_head(load_model(path, LoadOptions(weights="dense")), None)
    assert "scales" not in dense.eh_proj
    np.testing.assert_allclose(np.array(outputs(quantized)), np.array(outputs(dense)), atol=1e-3)


def test_a_head_in_a_file_of_its_own(tiny, qwen, tmp_path):
    """As llama.cpp's converter writes it with `--mtp`: the block, embedding and last norm."""
    alone = build("qwen35")
    for name in [
        name for name in alone.tensors if name.startswith(tuple(f"blk.{n}." for n in range(4)))
    ]:
        del alone.tensors[name]
    path = alone.write(tmp_path / "mtp.gguf")
    found, head = load_head(qwen, path), load_head(qwen, None)
    np.testing.assert_array_equal(np.array(outputs(found)), np.array(outputs(head)))


@pytest.mark.parametrize("stated", [4, 5])
@pytest.mark.parametrize("further", [1, None])
@pytest.mark.parametrize("present", [True, False])
def test_the_tensors_say_which_blocks_are_heads(qwen, tmp_path, stated, further, present):
    """Converters differ in whether they count the head's block, and write their number."""
    model = build("qwen35")
    model.key("block_count", stated)
    model.metadata.pop("qwen35.nextn_predict_layers")
    if further:
        model.key("nextn_predict_layers", further)
    for name in list(model.tensors):
        if not present and name.startswith("blk.4."):
            del model.tensors[name]
    path = model.write(tmp_path / "model.gguf")
    if (stated, further, present) == (5, None, False):
        with pytest.raises(ModelFormatError, match="states 5 layers, but the file has 4"):
            load_model(path)
        return
    loaded, ids = load_model(path), mx.array([[3, 1, 4, 1, 5]])
    np.testing.assert_array_equal(np.array(loaded.model(ids)), np.array(qwen.model(ids)))
    head = load_head(loaded, None)
    assert (head is not None) == present
    if head:
        expected = outputs(load_head(qwen, None))
        np.testing.assert_array_equal(np.array(outputs(head)), np.array(expected))


def test_a_head_rotates_as_its_target(tmp_path):
    """Also where the file's scaling of positions has no argument in mlx-lm's class."""
    model = build("glm4moe")
    model.keys(
        rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32,
    )  # fmt: skip
    loaded = load_model(model.write(tmp_path / "model.gguf"))
    head = load_head(loaded, None)
    assert head.body.layers[0].self_attn.rope is loaded.model.layers[0].self_attn.rope
    assert "Yarn" in type(head.body.layers[0].self_attn.rope).__name__


def test_parts_that_a_head_may_have_or_lack(qwen, tmp_path):
    def change(model):
        last = model.tensors["output_norm.weight"]
        model.tensors["blk.4.nextn.shared_head_norm.weight"] = last
        model.tensors["blk.4.nextn.embed_tokens.weight"] = model.tensors["token_embd.weight"]
        model.tensors["blk.4.nextn.shared_head_head.weight"] = 2 * model.tensors["output.weight"]

    whole = load_head(qwen, changed(build("qwen35"), tmp_path, change))
    assert "lm_head" in whole
    assert "embed_tokens" not in whole
    norm = "blk.4.nextn.shared_head_norm.weight"
    lacking = load_head(qwen, changed(build("qwen35"), tmp_path, lambda m: m.tensors.pop(norm)))
    np.testing.assert_allclose(
        np.array(outputs(whole)), 2 * np.array(outputs(lacking)), rtol=1e-5, atol=1e-5
    )


def test_files_without_a_head_for_the_model(qwen, tiny_gguf, tmp_path):
    assert load_head(load_model(tiny_gguf), None) is None
    with pytest.raises(ConfigError, match=r"tiny\.gguf has no prediction head for this model"):
        load_head(qwen, tiny_gguf)

    def without_block(model):
        for name in [name for name in model.tensors if name.startswith("blk.4.")]:
            del model.tensors[name]

    # Files of the model alone keep the key.
    path = changed(build("qwen35"), tmp_path, without_block)
    assert load_head(load_model(path), None) is None
    other = build("glm4moe").write(tmp_path / "glm.gguf")
    with pytest.raises(UnsupportedArchitectureError, match="of the architecture 'glm4moe', which"):
        load_head(qwen, other)


def test_an_architecture_whose_heads_are_not_run(tmp_path):
    assert "bailingmoe2" in BUILDERS
    loaded = load_model(build("bailingmoe2").write(tmp_path / "model.gguf"))
    with pytest.raises(
        UnsupportedArchitectureError, match="prediction head of a bailingmoe2 model"
    ):
        load_head(loaded, None)


def test_the_three_layers_of_mimo_v2_are_refused_by_name(tmp_path):
    names = [f"model.mtp.layers.{number}.eh_proj.weight" for number in range(3)]
    path = write(tmp_path / "mtp.safetensors", {name: mx.zeros((64, 128)) for name in names})
    target = build_family("mimo_v2_flash")
    with pytest.raises(UnsupportedArchitectureError, match="head of a tiny model; it runs those"):
        load_head(loaded_from(tmp_path, target), path)
