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
    KEYS,
    LAYERS,
    checkpoint,
    config_of,
    gguf_tensors,
    kept_rows,
    random_assistant,
    tiny_gemma,
    write_assistant,
    write_gguf,
)
from mlx import nn
from mlx_lm.models import gemma4
from prediction_heads import loaded_from, parameters_of, tiny_target, write

from akunu_py import ConfigError, ModelFormatError, UnsupportedArchitectureError
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


def rms(x, weight, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, position, base, rotated):
    """Rotate [heads, head_dim] to a position; `rotated` of its pairs turn, half a head apart."""
    half = x.shape[-1] // 2
    angles = position * base ** (-2 * np.arange(half) / x.shape[-1]) * (np.arange(half) < rotated)
    low, high = x[:, :half], x[:, half:]
    turned = [
        low * np.cos(angles) - high * np.sin(angles),
        low * np.sin(angles) + high * np.cos(angles),
    ]
    return np.concatenate(turned, axis=-1)


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
        q = rotate(q, position, 1e6 if full else 1e4, head_dim // (8 if full else 2))
        groups = 4 // len(keys)
        keys, values = keys.repeat(groups, 0), values.repeat(groups, 0)
        # Scores are not scaled.
        scores = (keys @ q[:, :, None])[..., 0]
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        attended = (shares[:, None] @ values)[:, 0].reshape(-1)
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


@pytest.mark.parametrize("clusters", [False, True])
def test_a_quantized_assistant_stays_so_and_is_expanded_where_the_target_is(
    target, tmp_path, clusters
):
    assistant = random_assistant(target, clusters=clusters)
    nn.quantize(
        assistant, group_size=32, bits=4,
        class_predicate=lambda _, part: hasattr(part, "to_quantized")
        and part.weight.shape[-1] % 32 == 0,
    )  # fmt: skip
    folder = write_assistant(tmp_path, assistant)
    found = load_head(loaded_from(tmp_path, target, weights="quantized"), folder)
    assert isinstance(found.embed_tokens, nn.QuantizedEmbedding)
    same(target, found, assistant)
    found = load_head(loaded_from(tmp_path, target, weights="dense"), folder)
    assert type(found.embed_tokens) is nn.Embedding
    np.testing.assert_allclose(outputs(target, found), outputs(target, assistant), atol=1e-3)


def test_an_assistant_computes_in_the_type_of_its_target(assistant, tmp_path):
    half = tiny_gemma()
    half.set_dtype(mx.bfloat16)
    found = load_head(loaded_from(tmp_path, half), write_assistant(tmp_path, assistant))
    assert {array.dtype for array in parameters_of(found).values()} == {mx.bfloat16}
    states, kept = kept_rows(half, found, TOKENS[:-1])
    assert found(states[:, -1:], mx.array([[3]]), kept, 29).dtype == mx.bfloat16


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
    np.testing.assert_allclose(outputs(target, found), outputs(target, dense), atol=1e-3)


def without(name):
    return lambda arrays, _: arrays.pop(name)


def put(name, array):
    return lambda arrays, _: arrays.update({name: array})


def stated(name, value):
    def change(_, config):
        place = config["text_config"] if name in config["text_config"] else config
        place[name] = value

    return change


FIRST = "model.layers.0.self_attn.q_norm.weight"
DAMAGE = {
    "no projection": (without("pre_projection.weight"), "lacks the tensors of pre_projection.we"),
    "no norm": (without(FIRST), "lacks the tensors of layers.0.self_attn.q_norm.weight; it is inc"),
    "keys of its own": (
        put("model.layers.0.self_attn.k_proj.weight", mx.zeros((32, 32))),
        "do not have: layers.0.self_attn.k_proj.weight; it is incomplete, or made for another",
    ),
    "an output head alone": (
        lambda arrays, _: arrays.update({"lm_head.weight": arrays.pop("model.embed_tokens.weight")}),
        "lacks the tensors of embed_tokens.weight",
    ),
    "NaN": (
        put(FIRST, mx.array([float("nan")] * 16)), f"tensor '{FIRST}' in .* has infinite numbers",
    ),
    "another target": (
        put("pre_projection.weight", mx.zeros((32, 96))),
        r"pre_projection.weight in the shape \(32, 96\) where this model asks for \(32, 128\)",
    ),
    "no ordering": (without("masked_embedding.token_ordering"), "lacks the tensors of masked_emb"),
    "a token twice": (
        put("masked_embedding.token_ordering", mx.zeros(96, dtype=mx.int64)),
        "does not name each of 96 tokens once; the file is damaged, or made for another model",
    ),
    "an ordering of numbers": (
        put("masked_embedding.token_ordering", mx.zeros(96)), "does not name each of 96 tokens",
    ),
    "width": (stated("hidden_size", 0), "'0' for text_config.hidden_size, not a whole number from"),
    "text for a number": (stated("intermediate_size", "48"), "not a whole number from 1 to"),
    "a flag for a number": (stated("num_attention_heads", True), "not a whole number from 1 to"),
    "heads": (stated("num_attention_heads", 3), "it has 3 heads, and the model 2 with keys in"),
    "head width": (stated("head_dim", 8), "layers of sliding_attention are 8 wide, and the model's"),
    "a wide head": (stated("global_head_dim", 512), "full_attention are 512 wide, and the model's"),
    "layers": (stated("num_hidden_layers", 10**6), "num_hidden_layers, not a whole number from 1"),
    "kinds": (stated("layer_types", ["full_attention"]), "sliding_attention and full_attention for"),
    "an unknown kind": (stated("layer_types", ["x"] * 3), "for each of 3 layers; use a"),
    "kinds in a text": (stated("layer_types", "abc"), "'abc' for text_config.layer_types, not one"),
    "kinds of kinds": (stated("layer_types", [[1]] * 3), "for each of 3 layers"),
    "epsilon": (stated("rms_norm_eps", 2), "'2' for text_config.rms_norm_eps, not a number between"),
    "an endless epsilon": (stated("rms_norm_eps", float("nan")), "not a number between 0 and 1"),
    "vocabulary": (stated("vocab_size", 97), "'97' for text_config.vocab_size, not 96, as the"),
    "clusters": (stated("num_centroids", 7), "'7' for num_centroids, not a divisor of 96"),
    "many clusters": (stated("num_centroids", 10**9), "num_centroids, not a whole number from 1 to"),
    "active clusters": (
        stated("centroid_intermediate_top_k", 13), "top_k, not a whole number from 1 to 12",
    ),
    "no flag": (stated("use_ordered_embeddings", 1), "use_ordered_embeddings, not true or false"),
    "no sizes": (stated("text_config", None), "'None' for text_config.hidden_size, not a whole"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(target, tmp_path, damage):
    change, message = DAMAGE[damage]
    assistant = random_assistant(target, clusters=True)
    arrays, config = checkpoint(assistant), config_of(assistant)
    change(arrays, config)
    write(tmp_path / "model.safetensors", arrays)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match=message):
        load_head(loaded_from(tmp_path / "model", target), tmp_path)


GGUF_DAMAGE = {
    "no projection": (
        lambda tensors, _: tensors.pop("nextn.pre_projection.weight"),
        "a.gguf cannot be loaded: 1 tensors are missing: nextn.pre_projection.weight; the file is",
    ),
    "keys of its own": (
        lambda tensors, _: tensors.update({"blk.0.attn_k.weight": np.zeros((32, 32), np.float32)}),
        "has a tensor 'blk.0.attn_k.weight' that akunu does not know there",
    ),
    "another width": (
        lambda tensors, _: tensors.update({"blk.1.attn_norm.weight": np.ones(16, np.float32)}),
        r"tensor 'blk.1.attn_norm.weight' has the shape \(16,\) where",
    ),
    "another target": (
        lambda _, keys: keys.update({"embedding_length_out": 96}),
        "made for a model of 96 wide, and this one has 64; use the assistant of this model",
    ),
    "another vocabulary": (
        lambda tensors, _: tensors.update({"token_embd.weight": np.ones((50, 32), np.float32)}),
        "made for a model of 50 tokens, and this one has 96; use the assistant of this model",
    ),
    "no target": (lambda _, keys: keys.pop("embedding_length_out"), "has no gemma4-assistant.embe"),
    "heads": (
        lambda _, keys: keys.update({"attention.head_count": 3}),
        "it has 3 heads, and the model 2 with keys in layers of sliding_attention; use the",
    ),
    "no kinds": (
        lambda _, keys: keys.pop("attention.sliding_window_pattern"), "layers.*|attn_q.*shape",
    ),
    "a scale": (
        lambda _, keys: keys.update({"attention.scale": 0.5}),
        "sets gemma4-assistant.attention.scale, which akunu cannot apply to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", GGUF_DAMAGE)
def test_a_damaged_gguf_file_is_refused(target, assistant, tmp_path, damage):
    change, message = GGUF_DAMAGE[damage]
    tensors, keys = gguf_tensors(assistant), dict(KEYS)
    change(tensors, keys)
    path = write_gguf(tmp_path / "a.gguf", tensors, keys)
    with pytest.raises(ModelFormatError, match=message):
        load_head(loaded_from(tmp_path / "model", target), path)


def test_a_model_that_is_no_gemma(assistant, tmp_path):
    other = loaded_from(tmp_path / "model", tiny_target("mimo"))
    folder = write_assistant(tmp_path, assistant)
    path = write_gguf(tmp_path / "a.gguf", gguf_tensors(assistant))
    for place in (folder, path):
        with pytest.raises(UnsupportedArchitectureError, match="is an assistant for Gemma 4, and"):
            load_head(other, place)


def test_an_assistant_is_no_model(assistant, tmp_path):
    folder = write_assistant(tmp_path, assistant)
    path = write_gguf(tmp_path / "a.gguf", gguf_tensors(assistant))
    for place in (folder, path):
        with pytest.raises(UnsupportedArchitectureError, match=r"give the assistant as its head"):
            load_model(place)


def test_places_without_an_assistant(target, tmp_path):
    write(tmp_path / "model.safetensors", {"model.norm.weight": mx.ones(64)})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4_text"}))
    assert load_head(loaded_from(tmp_path, target), None) is None
    with pytest.raises(ConfigError, match="has no prediction head for this model; give"):
        load_head(loaded_from(tmp_path / "model", target), tmp_path)
    old = write_gguf(tmp_path / "old.gguf", {"token_embd.weight": np.ones((96, 32), np.float32)},
                     {}, "gemma4_assistant")  # fmt: skip
    with pytest.raises(ConfigError, match=r"old\.gguf has no prediction head for this model"):
        load_head(loaded_from(tmp_path / "model", target), old)
