"""EAGLE-3 heads: what they compute, the layouts they are read from, and what is refused.

Their drafts are tested in test_head_drafts.py, the states that they take in test_hidden_states.py.
"""

import mlx.core as mx
import numpy as np
import pytest
from eagle_heads import (
    LAYERS,
    LLAMA3,
    eagle_config,
    eagle_tensors,
    llama3,
    nested_config,
    random_eagle,
    write_eagle,
)
from family_models import Variant, build_family
from prediction_heads import loaded_from, parameters_of, rms, rotated, silu, softmax

from akunu_py.models.heads import load_head

IDS = "eagle_aux_hidden_state_layer_ids"
TOKENS = [3, 1, 4, 1, 5, 9, 2]


@pytest.fixture(scope="module")
def target():
    return build_family("llama")


@pytest.fixture(scope="module")
def head(target):
    return random_eagle(target, vocabulary=40)


def states_of(head, rows):
    return mx.random.normal((1, rows, 3 * head.width), key=mx.random.key(5))


def outputs(head):
    """Logits of two passes over states of a target, and of one over the head's own state."""
    states, tokens, cache = states_of(head, 6), mx.array([TOKENS]), head.make_cache()
    found = [head(states[:, :4], tokens[:, :4], cache), head(states[:, 4:], tokens[:, 4:6], cache)]
    found.append(head(found[1][:, -1:], tokens[:, 6:], cache))
    return np.array(head.logits(mx.concatenate(found, axis=1))[0])


def same(found, head):
    np.testing.assert_array_equal(outputs(found), outputs(head))


def in_numpy(
    weights, embedding, states, tokens, *, normed_residual=False, scaled=False, window=None
):
    """A head's logits of seven pairs, the last with its own state; float64, without a cache."""
    weights = {name: np.array(array, np.float64) for name, array in weights.items()}
    layer = {n.removeprefix("midlayer."): w for n, w in weights.items() if "midlayer." in n}
    frequencies = 5000.0 ** (-np.arange(8) / 8)
    if scaled:
        frequencies = llama3(frequencies)
    features = states @ weights["fc.weight"].T
    for rows in (6, 7):
        normed = rms(features, layer["hidden_norm.weight"], 1e-5)
        embedded = rms(embedding[tokens[:rows]], layer["input_layernorm.weight"], 1e-5)
        joined = np.concatenate([embedded, normed], axis=-1)
        q, k, v = (
            (joined @ layer[f"self_attn.{name}_proj.weight"].T).reshape(rows, -1, 16)
            for name in "qkv"
        )
        angles = np.arange(rows)[:, None, None] * frequencies
        q, k = rotated(q, angles), rotated(k, angles)
        # Two heads of queries share one of keys.
        k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / 4.0
        scores[:, np.triu_indices(rows, 1)[0], np.triu_indices(rows, 1)[1]] = -np.inf
        if window:
            scores[
                :, np.tril_indices(rows, -window)[0], np.tril_indices(rows, -window)[1]
            ] = -np.inf
        attended = np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(rows, -1)
        x = (normed if normed_residual else features) + attended @ layer[
            "self_attn.o_proj.weight"
        ].T
        inner = rms(x, layer["post_attention_layernorm.weight"], 1e-5)
        gate, up = (inner @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (silu(gate) * up) @ layer["mlp.down_proj.weight"].T
        features = np.concatenate([features, x[-1:]])
    rows = weights.get("lm_head.rows.weight", weights.get("lm_head.weight"))
    logits = rms(x, weights["norm.weight"], 1e-5) @ rows.T
    found = np.full((len(x), len(embedding)), -np.inf)
    found[:, weights["lm_head.ids"].astype(int) if "lm_head.ids" in weights else slice(None)] = (
        logits
    )
    return found


def with_a_window(head):
    return nested_config(head, transformer_layer_config={
        **nested_config(head)["transformer_layer_config"],
        "layer_types": ["sliding_attention"], "sliding_window": 3,
    })  # fmt: skip


LAYOUTS = {
    "speculators', with a window": (
        {"window": 3, "norm_before_residual": True}, {"window": 3, "normed_residual": True},
        with_a_window, "layers.0.",
    ),
    "the authors'": ({}, {}, eagle_config, "midlayer."),
    "the authors', with a scaled rotation": (
        {"rope": LLAMA3}, {"scaled": True}, eagle_config, "layers.0.",
    ),
    "speculators'": (
        {"rope": LLAMA3, "norm_before_residual": True},
        {"scaled": True, "normed_residual": True}, nested_config, "layers.0.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("vocabulary", [None, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_numbers_of_a_head_from_each_layout(target, tmp_path, layout, vocabulary):
    options, expected, config, layer = LAYOUTS[layout]
    head = random_eagle(target, vocabulary=vocabulary, **options)
    arrays = eagle_tensors(head, layer=layer)
    if layer == "layers.0.":
        outside = ("lm_head", "d2t", "t2d")
        arrays = {
            name if name.startswith(outside) else f"model.{name}": array
            for name, array in arrays.items()
        }
    folder = write_eagle(tmp_path, arrays, config(head))
    embedding = np.array(target.model.embed_tokens.weight, np.float64)
    states = np.array(states_of(head, 6)[0], np.float64)
    logits = in_numpy(parameters_of(head), embedding, states, TOKENS, **expected)
    loaded = loaded_from(tmp_path / "model", target)
    for place in (folder, folder / "model.safetensors"):
        found = load_head(loaded, place)
        np.testing.assert_allclose(outputs(found), logits, atol=1e-4)
        assert found.takes == LAYERS


def test_nothing_of_the_target_counts_as_the_heads_own(target, head, tmp_path):
    """Neither does an embedding or an output head that equals the target's."""
    copies = {
        "embed_tokens.weight": target.model.embed_tokens.weight,
        "lm_head.weight": target.lm_head.weight,
    }
    arrays = {**eagle_tensors(random_eagle(target)), **copies}
    write_eagle(tmp_path, arrays, eagle_config(head))
    found = load_head(loaded_from(tmp_path / "model", target), tmp_path)
    assert not {"embed_tokens.weight", "lm_head.weight"} & parameters_of(found).keys()
    copied = outputs(found)
    for name, array in copies.items():
        write_eagle(tmp_path, {**arrays, name: array[::-1]}, eagle_config(head))
        found = load_head(loaded_from(tmp_path / "model", target), tmp_path)
        assert name in parameters_of(found)
        assert np.abs(outputs(found) - copied).max() > 0.1


@pytest.mark.parametrize(
    ("stated", "layers"),
    [
        ({}, (2, 4, 5)),
        ({"eagle_config": {"use_aux_hidden_state": True}}, (2, 4, 5)),
        # Outputs of layers, and inputs.
        ({IDS: [1, 3, 4]}, (2, 4, 5)),
        ({IDS: [2, 3, 7]}, (2, 3, 7)),
        ({"eagle_config": {IDS: [1, 3, 6]}}, (2, 4, 7)),
    ],
)
def test_the_layers_that_a_head_reads(tmp_path, stated, layers):
    target = build_family(Variant("llama", changes=(("num_hidden_layers", 8),)))
    config = eagle_config(random_eagle(target))
    del config["eagle_config"]
    write_eagle(tmp_path, eagle_tensors(random_eagle(target)), {**config, **stated})
    assert load_head(loaded_from(tmp_path / "model", target), tmp_path).takes == layers


@pytest.mark.parametrize(("ids", "layers"), [([1, 2, 3], (1, 2, 3)), ([0, 1, 3], (0, 1, 3))])
def test_heads_of_gpt_oss_name_inputs_whatever_their_first_number(tmp_path, ids, layers):
    target = build_family("gpt_oss")
    head = random_eagle(target)
    write_eagle(tmp_path, eagle_tensors(head), {**eagle_config(head), "eagle_config": {IDS: ids}})
    assert load_head(loaded_from(tmp_path / "model", target), tmp_path).takes == layers
