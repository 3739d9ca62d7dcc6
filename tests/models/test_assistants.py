"""Gemma 4's assistant: what it computes, and every layout it is read from.

The numbers were also compared by hand with those of transformers 5.23 (PyTorch), for a random
target and assistant of each layout: the four drafted tokens were the same, and logits up to 4.4
differed by 6e-4 at most, which was the type of its rotation tables.
"""

import copy
import json

import gguf
import mlx.core as mx
import numpy as np
import pytest
from assistants import (
    CLUSTERS,
    LAYERS,
    checkpoint,
    gguf_tensors,
    kept_rows,
    random_assistant,
    tiny_gemma,
    write_assistant,
    write_gguf,
)
from mlx_lm.models import gemma4
from prediction_heads import loaded_from, parameters_of, rms, rotated, softmax, write
from whole_numbers import LEEWAY

from akunu_py import ConfigError, UnsupportedArchitectureError
from akunu_py.models.heads import load_head
from akunu_py.models.load import load_model

TOKENS = [number * 7 % 96 for number in range(30)]


@pytest.fixture(scope="module")
def target():
    return tiny_gemma()


@pytest.fixture(scope="module")
def assistant(target):
    return random_assistant(target)


def outputs(target, assistant, tokens=TOKENS):
    """Logits of a draft of three tokens, each after the likeliest one before."""
    states, kept = kept_rows(target, assistant, tokens[:-1])
    state, token, found = states[:, -1:], tokens[-1], []
    for _ in range(3):
        own = assistant(state, mx.array([[token]]), kept, len(tokens) - 1)
        found.append(assistant.logits(own))
        state, token = assistant.state(own), int(found[-1].argmax())
    return np.array(mx.concatenate(found, axis=1)[0])


def same(target, found, assistant):
    np.testing.assert_array_equal(outputs(target, found), outputs(target, assistant))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def in_numpy(weights, embedding, state, token, kept, position, *, clusters):
    """An assistant's logits and state, from transformers' `gemma4_assistant`; float64."""
    weights = {name: np.array(array, np.float64) for name, array in weights.items()}
    # The target's embedding is scaled by the root of its width.
    joined = np.concatenate([embedding[token] * len(state) ** 0.5, state])
    x = weights["pre_projection.weight"] @ joined
    for number, kind in enumerate(LAYERS):
        at = f"model.layers.{number}."
        keys, values = (np.array(array[0], np.float64) for array in kept[kind])
        head_dim = keys.shape[-1]
        normed = rms(x, weights[f"{at}input_layernorm.weight"])
        q = (weights[f"{at}self_attn.q_proj.weight"] @ normed).reshape(4, head_dim)
        q = rms(q, weights[f"{at}self_attn.q_norm.weight"])
        # In layers that see everything a quarter of the pairs rotates.
        full = kind == "full_attention"
        half, base = head_dim // 2, 1e6 if full else 1e4
        turning = np.arange(half) < head_dim // (8 if full else 2)
        q = rotated(q, position * base ** (-2 * np.arange(half) / head_dim) * turning)
        groups = 4 // len(keys)
        keys, values = keys.repeat(groups, 0), values.repeat(groups, 0)
        # Scores are not scaled.
        scores = (keys @ q[:, :, None])[..., 0]
        attended = (softmax(scores)[:, None] @ values)[:, 0].reshape(-1)
        added = weights[f"{at}self_attn.o_proj.weight"] @ attended
        x = x + rms(added, weights[f"{at}post_attention_layernorm.weight"])
        normed = rms(x, weights[f"{at}pre_feedforward_layernorm.weight"])
        gate, up, down = (weights[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        added = down @ (gelu(gate @ normed) * (up @ normed))
        x = x + rms(added, weights[f"{at}post_feedforward_layernorm.weight"])
        x = x * weights[f"{at}layer_scalar"]
    x = rms(x, weights["model.norm.weight"])
    logits = weights["model.embed_tokens.weight"] @ x
    if clusters:
        scores = weights["masked_embedding.centroids.weight"] @ x
        order = weights["masked_embedding.token_ordering"].astype(int).reshape(CLUSTERS, -1)
        active = order[np.argsort(scores)[-3:]].reshape(-1)
        found = np.full(len(logits), logits[active].min() - 1)
        found[active] = logits[active]
        logits = found
    return logits, weights["post_projection.weight"] @ x


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("name", ["small", "large"])
def test_the_numbers_of_an_assistant(name, clusters):
    target = tiny_gemma(name)
    assistant = random_assistant(target, clusters=clusters)
    states, kept = kept_rows(target, assistant, TOKENS[:-1])
    embedding = np.array(target.model.embed_tokens.weight, np.float64)
    state, token = np.array(states[0, -1], np.float64), TOKENS[-1]
    for found in outputs(target, assistant):
        logits, state = in_numpy(
            checkpoint(assistant), embedding, state, token, kept, 29, clusters=clusters
        )
        np.testing.assert_allclose(found, logits, atol=2e-3)
        token = int(logits.argmax())


def test_what_its_layers_attend_to(target, assistant):
    """The last layers of their kinds with keys of their own, and no more rows than they see."""
    assert {kind: (s.cache, s.most) for kind, s in assistant.sources.items()} == {
        "sliding_attention": (2, 15), "full_attention": (3, None),
    }  # fmt: skip
    large = random_assistant(tiny_gemma("large"))
    assert [source.cache for source in large.sources.values()] == [4, 5]
    # Nothing of the target counts as the assistant's own.
    assert all("self_attn.rope" not in path for path in parameters_of(assistant))
    assert parameters_of(assistant)["embed_tokens.weight"].shape == (96, 32)


@pytest.mark.parametrize("clusters", [False, True])
def test_an_assistant_is_the_same_from_a_folder(target, tmp_path, clusters):
    assistant = random_assistant(target, clusters=clusters)
    folder = write_assistant(tmp_path, assistant)
    loaded = loaded_from(tmp_path / "model", target)
    same(target, load_head(loaded, folder), assistant)
    same(target, load_head(loaded, folder / "model.safetensors"), assistant)
    # Google's 12B has another name for the same.
    write_assistant(tmp_path, assistant, model_type="gemma4_unified_assistant")
    same(target, load_head(loaded, folder), assistant)
    # Some converters store the tied output head, too.
    arrays = checkpoint(assistant)
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"]
    write(folder / "model.safetensors", arrays)
    same(target, load_head(loaded, folder), assistant)


def test_the_target_of_a_model_with_images(target, assistant, tmp_path):
    text = {**vars(target.args)}
    whole = gemma4.Model(gemma4.ModelArgs(text_config=copy.deepcopy(text), vocab_size=96))
    whole.language_model.update(target.parameters())
    found = load_head(loaded_from(tmp_path, whole), write_assistant(tmp_path, assistant))
    same(target, found, assistant)


def test_an_assistant_is_the_same_from_a_gguf_file(target, assistant, tmp_path):
    loaded = loaded_from(tmp_path / "model", target)
    tensors = gguf_tensors(assistant)
    same(target, load_head(loaded, write_gguf(tmp_path / "a.gguf", tensors)), assistant)
    # Tensors of the clusters, in the files of some converters, are left out as llama.cpp does.
    tensors["masked_embd_centroids.weight"] = np.zeros((12, 32), np.float32)
    tensors["masked_embd_ordering"] = np.zeros(96, np.int32)
    same(target, load_head(loaded, write_gguf(tmp_path / "b.gguf", tensors)), assistant)


def test_a_quantized_assistant_in_a_gguf_file(target, assistant, tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_0
    path = write_gguf(tmp_path / "a.gguf", gguf_tensors(assistant), kind=kind)
    found = load_head(loaded_from(tmp_path, target, weights="quantized"), path)
    assert found.pre_projection.bits == 8
    dense = load_head(loaded_from(tmp_path, target, weights="dense"), path)
    assert "scales" not in dense.pre_projection
    np.testing.assert_allclose(outputs(target, found), outputs(target, dense), atol=1e-3 * LEEWAY)


def test_an_assistant_is_no_model(assistant, tmp_path):
    folder = write_assistant(tmp_path, assistant)
    for place in (folder, write_gguf(tmp_path / "a.gguf", gguf_tensors(assistant))):
        with pytest.raises(
            UnsupportedArchitectureError, match=r"give (the assistant|this file) as its"
        ):
            load_model(place)


def test_places_without_an_assistant(target, tmp_path):
    write(tmp_path / "model.safetensors", {"model.norm.weight": mx.ones(64)})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4_text"}))
    assert load_head(loaded_from(tmp_path, target), None) is None
    with pytest.raises(ConfigError, match="has no prediction head for this model; give"):
        load_head(loaded_from(tmp_path / "model", target), tmp_path)
    old = write_gguf(tmp_path / "old.gguf", {"token_embd.weight": np.ones((96, 32), np.float32)},
                     {}, "gemma4_assistant")  # fmt: skip
    with pytest.raises(
        UnsupportedArchitectureError, match=r"old\.gguf is of .* 'gemma4_assistant', of which"
    ):
        load_head(loaded_from(tmp_path / "model", target), old)
