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
    nested_config,
    random_eagle,
    write_eagle,
)
from family_models import Variant, build_family
from mlx import nn
from model_folders import write_family_folder
from prediction_heads import loaded_from, parameters_of, tiny_target, write

from akunu_py import Engine, ModelFormatError, UnsupportedArchitectureError
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


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def rotated(x, frequencies):
    """Rotate [rows, heads, 16] to the places of its rows; pairs lie half a head apart."""
    angles = np.arange(len(x))[:, None, None] * frequencies
    low, high = x[..., :8], x[..., 8:]
    turned = [
        low * np.cos(angles) - high * np.sin(angles),
        low * np.sin(angles) + high * np.cos(angles),
    ]
    return np.concatenate(turned, axis=-1)


def llama3(frequencies):
    """Llama 3.1's change of frequencies, for the numbers in `LLAMA3`."""
    turns = 32 * frequencies / (2 * np.pi)
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0, 1)
    return frequencies * (smooth + (1 - smooth) / 4.0)


def in_numpy(weights, embedding, states, tokens, *, normed_residual=False, scaled=False):
    """A head's logits of seven pairs, the last with its own state; float64, without a cache."""
    weights = {name: np.array(array, np.float64) for name, array in weights.items()}
    layer = {n.removeprefix("midlayer."): w for n, w in weights.items() if "midlayer." in n}
    frequencies = 5000.0 ** (-np.arange(8) / 8)
    if scaled:
        frequencies = llama3(frequencies)
    features = states @ weights["fc.weight"].T
    for rows in (6, 7):
        normed = rms(features, layer["hidden_norm.weight"])
        embedded = rms(embedding[tokens[:rows]], layer["input_layernorm.weight"])
        joined = np.concatenate([embedded, normed], axis=-1)
        q, k, v = (
            (joined @ layer[f"self_attn.{name}_proj.weight"].T).reshape(rows, -1, 16)
            for name in "qkv"
        )
        q, k = rotated(q, frequencies), rotated(k, frequencies)
        # Two heads of queries share one of keys.
        k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / 4.0
        scores[:, np.triu_indices(rows, 1)[0], np.triu_indices(rows, 1)[1]] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        attended = np.einsum("hij,jhd->ihd", shares, v).reshape(rows, -1)
        x = (normed if normed_residual else features) + attended @ layer[
            "self_attn.o_proj.weight"
        ].T
        inner = rms(x, layer["post_attention_layernorm.weight"])
        gate, up = (inner @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer["mlp.down_proj.weight"].T
        features = np.concatenate([features, x[-1:]])
    rows = weights.get("lm_head.rows.weight", weights.get("lm_head.weight"))
    logits = rms(x, weights["norm.weight"]) @ rows.T
    found = np.full((len(x), len(embedding)), -np.inf)
    found[:, weights["lm_head.ids"].astype(int) if "lm_head.ids" in weights else slice(None)] = (
        logits
    )
    return found


LAYOUTS = {
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


def test_a_quantized_head_stays_so_and_is_expanded_where_the_target_is(target, tmp_path):
    head = random_eagle(target, vocabulary=40)
    nn.quantize(
        head, group_size=32, bits=8, class_predicate=lambda _, part: hasattr(part, "to_quantized")
        and part.weight.shape[-1] % 32 == 0,
    )  # fmt: skip
    write_eagle(tmp_path, eagle_tensors(head), eagle_config(head))
    found = load_head(loaded_from(tmp_path / "model", target, weights="quantized"), tmp_path)
    assert isinstance(found.fc, nn.QuantizedLinear)
    same(found, head)
    found = load_head(loaded_from(tmp_path / "model", target), tmp_path)
    assert type(found.fc) is nn.Linear
    np.testing.assert_allclose(outputs(found), outputs(head), atol=1e-3)


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


def put(**changes):
    return lambda arrays, config: config.update(changes)


def store(name, array):
    return lambda arrays, config: arrays.update({name: array})


DAMAGE = {
    "no layer": (
        lambda arrays, _: arrays.pop("midlayer.mlp.up_proj.weight"),
        "head in .*safetensors lacks the tensors of midlayer.mlp.up_proj.weight; it is incomplete",
    ),
    "no output head": (
        lambda arrays, _: arrays.pop("lm_head.weight"), "lacks the tensors of lm_head.weight",
    ),
    "a second layer": (
        store("layers.1.mlp.up_proj.weight", mx.zeros((2, 2))),
        "do not have: layers.1.mlp.up_proj.weight",
    ),
    "another width of the joined states": (
        store("fc.weight", mx.zeros((64, 128))),
        r"has fc.weight in the shape \(64, 128\) where this model asks for \(64, 192\)",
    ),
    "another output": (
        store("lm_head.weight", mx.zeros((41, 64))), r"lm_head.weight in the shape \(41, 64\)",
    ),
    "a whole output without d2t": (
        lambda arrays, _: arrays.pop("d2t"), r"lm_head.weight in the shape \(40, 64\)",
    ),
    "NaN": (
        store("norm.weight", mx.array([float("nan")] * 64)),
        r"tensor 'norm.weight' in .*model.safetensors has infinite numbers or NaN",
    ),
    "a token twice": (
        store("d2t", -mx.arange(40)), "tensor 'd2t' in .*safetensors does not name different tok",
    ),
    "a token beyond": (store("d2t", mx.full((40,), 58, dtype=mx.int64)), "of the 97 of this model"),
    "a table of tokens": (store("d2t", mx.zeros((4, 10), dtype=mx.int64)), "not name different"),
    "another model's width": (
        put(hidden_size=96), "config.json has '96' for hidden_size, not 64, as the model has",
    ),
    "another width of the states": (put(target_hidden_size=96), "'96' for target_hidden_size"),
    "more layers": (put(num_hidden_layers=2), "has '2' for num_hidden_layers, not 1, the layer"),
    "another activation": (put(hidden_act="gelu"), "'gelu' for hidden_act, not silu; use a head"),
    "odd groups": (put(num_key_value_heads=4), "'4' for num_key_value_heads, not a divisor of 6"),
    "heads in words": (put(num_attention_heads="six"), "'six' for num_attention_heads, not a whol"),
    "another rotation": (
        put(rope_scaling={"rope_type": "longrope"}), "'longrope' for rope_scaling.rope_type, not",
    ),
    "a rotation without numbers": (
        put(rope_scaling={"rope_type": "llama3", "factor": "four"}), "safetensors cannot be loaded",
    ),
    "a rotation out of range": (
        put(rope_scaling={"rope_type": "linear", "factor": 0}), "factor is 0, not a number from",
    ),
    "no base": (put(rope_theta=-1), "'-1' for rope_theta, not a number between 0 and 1e"),
    "no number": (put(rms_norm_eps="small"), "'small' for rms_norm_eps, not a number between"),
    "layers of a deeper model": (
        put(eagle_config={IDS: [2, 18, 33]}),
        rf"'\[2, 18, 33\]' for eagle_config.{IDS}, not three of the model's 4 layers",
    ),
    "two layers": (put(**{IDS: [0, 2]}), rf"'\[0, 2\]' for {IDS}, not three of"),
    "a layer twice": (put(**{IDS: [0, 2, 2]}), "not three of the model's 4 layers, in ascending"),
    "the output of the last layer": (put(**{IDS: [1, 2, 3]}), "not three of the model's 4 layers"),
    "a layer below": (put(**{IDS: [-1, 0, 2]}), "not three of the model's 4 layers"),
    "layers in words": (put(**{IDS: "all"}), "'all' for eagle.*, not three of"),
    "no layers where four are too few": (
        put(eagle_config={}), f"'None' for eagle_config.{IDS}, not three of the model's 4 layers",
    ),
    "a flag in words": (put(norm_before_residual="no"), "'no' for norm_before_residual, not true"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_head_is_refused(target, head, tmp_path, damage):
    change, message = DAMAGE[damage]
    arrays, config = eagle_tensors(head), eagle_config(head)
    change(arrays, config)
    write_eagle(tmp_path, arrays, config)
    with pytest.raises(ModelFormatError, match=message):
        load_head(loaded_from(tmp_path / "model", target), tmp_path)


UNKNOWN = {
    "norms before fc": (put(norm_before_fc=True), "not run: it has norm_before_fc; use another"),
    "a normed output": (put(eagle_config={"norm_output": True}), "has eagle_config.norm_output;"),
    "windows": (put(use_sliding_window=True), "it has use_sliding_window; use another head"),
    "no states between layers": (
        put(eagle_config={"use_aux_hidden_state": False}), "use_aux_hidden_state false; use",
    ),
    "no projection": (lambda arrays, _: arrays.pop("fc.weight"), "it has no tensor fc.weight;"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_head_that_is_computed_in_another_way_is_refused(target, head, tmp_path, kind):
    change, message = UNKNOWN[kind]
    arrays, config = eagle_tensors(head), eagle_config(head)
    change(arrays, config)
    write_eagle(tmp_path, arrays, config)
    with pytest.raises(UnsupportedArchitectureError, match=rf"model.safetensors is an.*{message}"):
        load_head(loaded_from(tmp_path / "model", target), tmp_path)


def test_a_head_of_another_family_and_one_without_its_config(target, head, tmp_path):
    path = write(tmp_path / "alone.safetensors", eagle_tensors(head))
    with pytest.raises(ModelFormatError, match=r"and there is no .*config\.json; put the"):
        load_head(loaded_from(tmp_path / "model", target), path)
    with pytest.raises(UnsupportedArchitectureError, match="the model is a tiny model; akunu runs"):
        load_head(loaded_from(tmp_path / "model", tiny_target("mimo")), path)


def test_an_engine_drafts_with_it(tmp_path):
    """And the reply is the same, whatever the random head guesses."""
    path = write_family_folder(tmp_path / "model", "qwen3")
    target = build_family(Variant("qwen3", changes=(("vocab_size", 257),)))
    head = random_eagle(target, vocabulary=100)
    (tmp_path / "head").mkdir()
    heads = write_eagle(tmp_path / "head", eagle_tensors(head), nested_config(head))
    with Engine.load(path, heads=heads) as engine:
        for options in ({}, {"temperature": 0.9, "seed": 3}):
            plain = engine.generate("One, two", max_tokens=30, drafter="none", **options)
            for drafter in ("mtp", "auto"):
                found = engine.generate(
                    "One, two", max_tokens=30, drafter=drafter, draft_budget="always", **options
                )
                assert found.token_ids == plain.token_ids
                drafted = {one.source: one.drafted for one in found.stats.sources}
                assert drafted["mtp"] > 5
