"""EAGLE-3, DFlash, DFlash 2 and DSpark heads in llama.cpp's GGUF files.

Each draws as the same head does from a folder, and what is damaged or of another kind is refused.
Mutants, made by hand, that these tests kill (each was tried): rows of q and k as they stand in the
file; ids read as offsets; layers counted from outputs; frequencies without the file's factors; a
whole output head in place of that of some tokens.
"""

import gguf
import mlx.core as mx
import numpy as np
import pytest
from dflash_heads import (
    dflash2_config,
    dflash_config,
    dspark_config,
    random_dflash,
    random_dflash2,
    random_dspark,
    write_dflash,
)
from eagle_heads import LLAMA3, eagle_config, eagle_tensors, random_eagle, write_eagle
from family_models import build_family
from gguf_drafters import gguf_of_blocks, gguf_of_eagle, write_drafter
from mlx import nn
from mlx.utils import tree_map
from prediction_heads import loaded_from, tiny_target

from akunu_py import AkunuError, ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.heads import load_head
from akunu_py.models.load import load_model

KINDS = {
    "EAGLE-3": (random_eagle, gguf_of_eagle, eagle_config, {}),
    "EAGLE-3, scaled, of some tokens": (
        lambda target: random_eagle(target, vocabulary=40, rope=LLAMA3, norm_before_residual=True),
        gguf_of_eagle, eagle_config, {"norm_before_residual": True},
    ),
    "DFlash": (random_dflash, gguf_of_blocks, dflash_config, {}),
    "DFlash, YaRN": (
        lambda target: random_dflash(target, rope={
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
        }),
        gguf_of_blocks, dflash_config, {},
    ),
    "DFlash, with windows": (
        lambda target: random_dflash(target, windows=(5, None), causal=(False, False)),
        gguf_of_blocks, dflash_config, {"is_causal": False},
    ),
    "DFlash 2": (random_dflash2, gguf_of_blocks, dflash2_config, {"sliding_window": 4}),
    "DSpark": (
        lambda target: random_dspark(target, markov="vanilla"), gguf_of_blocks, dspark_config, {},
    ),
    "DSpark, of some tokens": (
        lambda target: random_dspark(target, markov="vanilla", vocabulary=40, confidence=False),
        gguf_of_blocks, dspark_config, {},
    ),
}  # fmt: skip
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
}
each_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def target():
    return build_family("llama")


def write_both(name, target, folder, rounded=lambda array: array):
    """Write a head as a folder and as the tensors and keys of a file."""
    make, of_file, config, changes = KINDS[name]
    head = make(target)
    head.update(tree_map(rounded, head.parameters()))
    if of_file is gguf_of_eagle:
        write_eagle(folder, eagle_tensors(head), config(head, **changes))
    else:
        write_dflash(folder, head, config, **changes)
    tensors, keys = of_file(head)
    return tensors, keys | (YARN if "YaRN" in name else {})


def drafted(target, head):
    """Logits of a few places, and chances, behind states of a target that are drawn at random."""
    tokens = mx.array([[number * 7 % 96 for number in range(6)]])
    if "midlayer" in head:
        states = mx.random.normal((1, 6, 3 * head.width), key=mx.random.key(5))
        cache = head.make_cache()
        first = head(states, tokens, cache)
        own = head(first[:, -1:], tokens[:, :1], cache)
        return np.array(head.logits(mx.concatenate([first, own], axis=1)))
    states = mx.random.normal((1, 6, head.width), key=mx.random.key(5))
    rows = head(states, tokens, head.make_cache())
    step, found = head.walk(rows), []
    for place in range(rows.shape[1]):
        logits, chance = step(tokens[0, place % 6 :][:1])
        found += [np.array(logits).ravel(), np.zeros(1) if chance is None else np.array(chance)]
    return np.concatenate(found)


@each_kind
def test_a_head_draws_the_same_from_a_file_and_from_a_folder(target, tmp_path, name):
    tensors, keys = write_both(name, target, tmp_path)
    path = write_drafter(tmp_path / "head.gguf", tensors, keys)
    loaded = loaded_from(tmp_path / "model", target)
    found, expected = load_head(loaded, path), load_head(loaded, tmp_path)
    assert type(found) is type(expected)
    assert found.takes == expected.takes
    # Frequencies are computed in another way from a tensor of factors.
    near = 2e-5 if "scaled" in name or "YaRN" in name else 0
    np.testing.assert_allclose(drafted(target, found), drafted(target, expected), atol=near)


@each_kind
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_a_quantized_head_draws_as_its_numbers_say(target, tmp_path, name, kind):
    number = gguf.GGMLQuantizationType[kind]

    def rounded(array):
        if array.ndim != 2 or array.shape[-1] % 32:
            return array
        return mx.array(gguf.dequantize(gguf.quantize(np.array(array), number), number))

    tensors, keys = write_both(name, target, tmp_path, rounded)
    path = write_drafter(tmp_path / "head.gguf", tensors, keys, kind=number)
    expected = drafted(target, load_head(loaded_from(tmp_path / "model", target), tmp_path))
    for form, near in (("dense", 2e-5), ("quantized", 2e-2)):
        found = load_head(loaded_from(tmp_path / "model", target, weights=form), path)
        quantized = "scales" in found.fc or type(found.fc) is not nn.Linear
        assert quantized == (form == "quantized")
        np.testing.assert_allclose(drafted(target, found), expected, atol=near)


def keyed(name, value):
    return lambda _, keys: keys.update({name: value})


def stored(name, array):
    return lambda tensors, _: tensors.update({name: array})


def without(name):
    return lambda tensors, keys: (tensors.pop(name, None), keys.pop(name, None))


WHOLE = "a whole number from"
LAYER_IDS = "three of the model's 4 layers, in ascending order"
EAGLE, BLOCKS, SECOND, SPARK = (
    "EAGLE-3, scaled, of some tokens", "DFlash", "DFlash 2", "DSpark, of some tokens",
)  # fmt: skip
DAMAGE = [
    *(
        (name, keyed(key, value), f"{prefix}.{key} is .*, not {wanted}")
        for name, prefix in ((EAGLE, "eagle3"), (BLOCKS, "dflash"))
        for key, value, wanted in (
            ("embedding_length", 96, "64, as the model has; use a head of this model"),
            ("attention.head_count", 0, WHOLE), ("attention.head_count_kv", 4, "a divisor of 6"),
            ("attention.layer_norm_rms_epsilon", 2.0, "a number between 0 and 1"),
            ("rope.freq_base", -1.0, "a number between"), ("block_count", 10**6, WHOLE),
            ("feed_forward_length", "80", WHOLE),
        )
    ),
    *(
        (name, without(key), "cannot be loaded: .* tensors are missing: .*; the file is incomplete")
        for name, key in (
            (EAGLE, "fc.weight"), (EAGLE, "blk.0.attn_norm_2.weight"), (BLOCKS, "blk.1.attn_q.weight"),
            (BLOCKS, "enc.output_norm.weight"), (SECOND, "blk.0.ffn_conv_base"),
            (SECOND, "selector_hidden.weight"),
        )
    ),
    (SPARK, without("markov_w2.weight"), "no tensors for 1 parameters .*: markov_head.markov_w2.weight"),
    (EAGLE, stored("fc.weight", np.zeros((64, 64), np.float32)), r"'fc.weight' .*\(64, 64\).*\(64, 192\)"),
    (EAGLE, stored("blk.0.attn_q.weight", np.zeros((95, 128), np.float32)), "attn_q.weight"),
    (EAGLE, stored("output.weight", np.zeros((41, 64), np.float32)), r"output.weight.*\(41, 64\).*\(40, 64\)"),
    (EAGLE, without("d2t"), r"output.weight' .*\(40, 64\)"),
    (EAGLE, stored("norm", np.zeros(3, np.float32)), "it has a tensor norm; use another head"),
    (EAGLE, stored("rope_freqs.weight", np.zeros(8, np.float32)), "8 positive factors"),
    *(
        (name, stored("d2t", ids), "tensor 'd2t' in .*gguf does not name different tokens of the 97")
        for name in (EAGLE, SPARK)
        for ids in (
            np.arange(58, 98), np.arange(-1, 39), np.zeros(40, np.int64), np.arange(40)[::-1].copy(),
            np.array([0, *range(2**62, 2**62 + 39)]), np.arange(40, dtype=np.float32),
            np.full(40, -(2**63)),
        )
    ),
    (EAGLE, keyed("target_layers", [0, 1, 4]), f"eagle3.target_layers is .*, not {LAYER_IDS}"),
    (EAGLE, keyed("target_hidden_size", 96), "64, as the model has"),
    (EAGLE, keyed("norm_before_residual", 1), "true or false"),
    (EAGLE, keyed("block_count", 2), "1, the layer of an EAGLE-3 head"),
    (BLOCKS, keyed("target_layers", [0, 4]), "layers of the model's 4 before the last, in ascending"),
    (BLOCKS, without("target_layers"), "dflash.target_layers is 'None'"),
    (BLOCKS, keyed("block_size", 1), "dflash.block_size is '1', not a whole number from 2 to 65"),
    (BLOCKS, keyed("attention.causal", 1), "dflash.attention.causal is '1', not true or false"),
    (BLOCKS, keyed("logit_scale", 0.0), "dflash.logit_scale is '0.0', not a number between"),
    (BLOCKS, keyed("attention.sliding_window", 4), "_pattern is 'None', not a boolean for each layer"),
    (SECOND, keyed("attention.sliding_window_pattern", [True]), "sliding_window_pattern is"),
    (SECOND, keyed("conv_group_size", 24), "dflash.conv_group_size is '24', not a divisor of 64"),
    (SECOND, keyed("selector_top_k", 98), "dflash.selector_top_k is '98', not a whole number"),
    (SPARK, keyed("sample_from_anchor", 1), "dflash.sample_from_anchor is '1', not true or false"),
    *(
        (name, change, f"is an? {kind} head of a kind that akunu does not run: it has {what}; use another")
        for name, kind, change, what in (
            (EAGLE, "EAGLE-3", keyed("norm_before_fc", True), "norm_before_fc"),
            (EAGLE, "EAGLE-3", keyed("rope.dimension_count", 8), "eagle3.rope.dimension_count"),
            (BLOCKS, "DFlash", keyed("rope.dimension_count", 8), "dflash.rope.dimension_count"),
            (BLOCKS, "DFlash", keyed("attention.value_length", 8), "dflash.attention.value_length"),
            (BLOCKS, "DFlash", keyed("attention.value_scale", 0.5), "attention_value_scale"),
            (BLOCKS, "DFlash", stored("blk.0.attn_sinks.weight", np.zeros(6, np.float32)),
             "a tensor blk.0.attn_sinks.weight"),
            (BLOCKS, "DFlash", keyed("selector_rank", 8), "selector_rank"),
        )
    ),
    (BLOCKS, keyed("attention.scale", 0.5), "sets dflash.attention.scale, which akunu cannot apply"),
    (EAGLE, keyed("embedding_scale", 8.0), "sets eagle3.embedding_scale, which akunu cannot apply"),
]  # fmt: skip


@pytest.fixture(scope="module")
def files(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    return {name: write_both(name, target, folder) for name in (EAGLE, BLOCKS, SECOND, SPARK)}


@pytest.mark.parametrize(("name", "change", "message"), DAMAGE)
def test_damage_and_other_kinds_are_refused(target, files, tmp_path, name, change, message):
    tensors, keys = (dict(part) for part in files[name])
    change(tensors, keys)
    path = write_drafter(tmp_path / "head.gguf", tensors, keys)
    with pytest.raises(ModelFormatError, match=message) as error:
        load_head(loaded_from(tmp_path / "model", target), path)
    assert str(error.value).count(str(path)) == 1


def test_files_of_other_programs_and_other_targets(target, files, tmp_path):
    tensors, keys = files[BLOCKS]
    loaded = loaded_from(tmp_path / "model", target)
    path = write_drafter(tmp_path / "head.gguf", tensors, keys, mask=97)
    with pytest.raises(
        ModelFormatError, match="mask_token_id is '97', not a whole number from 0 to"
    ):
        load_head(loaded, path)
    with pytest.raises(
        UnsupportedArchitectureError, match="is a DFlash head, and the model is a tiny"
    ):
        load_head(loaded_from(tmp_path / "model", tiny_target("mimo")), path)
    with pytest.raises(
        UnsupportedArchitectureError, match=r"a DFlash or DSpark head, .* \(--heads\)"
    ):
        load_model(path)
    path.write_bytes(path.read_bytes().replace(b"dflash", b"dspark"))
    message = "of the architecture 'dspark', of which akunu reads no heads; if it is one, convert"
    with pytest.raises(UnsupportedArchitectureError, match=message):
        load_head(loaded, path)


def test_what_a_file_need_not_have(target, files, tmp_path):
    """The target's output head in place of its own, and a chance as one row of numbers."""
    loaded = loaded_from(tmp_path / "model", target)
    tensors, keys = (dict(part) for part in write_both("EAGLE-3", target, tmp_path))
    tensors["output.weight"] = np.array(target.lm_head.weight)
    whole = load_head(loaded, write_drafter(tmp_path / "whole.gguf", tensors, keys))
    del tensors["output.weight"]
    lacking = load_head(loaded, write_drafter(tmp_path / "lacking.gguf", tensors, keys))
    assert "lm_head" not in whole
    assert "lm_head" not in lacking
    np.testing.assert_array_equal(drafted(target, lacking), drafted(target, whole))
    tensors, keys = (dict(part) for part in write_both("DSpark", target, tmp_path))
    expected = load_head(loaded, write_drafter(tmp_path / "row.gguf", tensors, keys))
    tensors["conf_proj.weight"] = tensors["conf_proj.weight"].ravel()
    found = load_head(loaded, write_drafter(tmp_path / "flat.gguf", tensors, keys))
    np.testing.assert_array_equal(drafted(target, found), drafted(target, expected))


@pytest.mark.parametrize(
    ("file", "how"),
    [("pytorch_model.bin", r"convert_hf_to_gguf\.py FOLDER"),
     ("medusa_lm_head.pt", r"safetensors\.torch\.save_file, as medusa_lm_head\.safetensors")],
)  # fmt: skip
def test_pickled_weights_are_refused_with_the_way_to_convert(target, tmp_path, file, how):
    (tmp_path / file).write_bytes(b"PK")
    for place in (tmp_path, tmp_path / file):
        with pytest.raises(AkunuError, match=rf"{file}, a pickle, .*{how}"):
            load_head(loaded_from(tmp_path / "model", target), place)
