"""Metadata to a plan of the model, tensor names to parameters; tests of what is refused."""

import re

import numpy as np
import pytest
from gguf_files import write_tiny_llama
from programs import python

from akunu_py.gguf import BLOCK_TYPES, GGUFFile, TensorInfo, read_plan, supported_architectures
from akunu_py.gguf.architectures import find_reader
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import halves_from_neighbours, module, place
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError


@pytest.fixture
def parts(tmp_path):
    with GGUFFile.open(write_tiny_llama(tmp_path / "m.gguf")) as file:
        return dict(file.metadata), dict(file.tensors)


def vector(name, size, kind=0):
    return TensorInfo(name, BLOCK_TYPES[kind], (size,), 0, size * 4)


def matrix(name, rows, cols):
    return TensorInfo(name, BLOCK_TYPES[0], (cols, rows), 0, rows * cols * 4)


def table(*infos):
    return {info.name: info for info in infos}


def test_several_sources_are_stacked_and_one_source_is_split():
    rules = [
        module(("q", "k"), "qk"),
        module("kv", "k2", rows=slice(0, 2)),
        module("kv", "v2", rows=slice(2, 4)),
    ]
    tensors = table(matrix("q.weight", 2, 2), matrix("k.weight", 2, 2), matrix("kv.weight", 4, 2))
    placed = {placement.path: placement for placement in place(rules, tensors, 1)}
    assert placed["qk.weight"].tensors == ("q.weight", "k.weight")
    assert placed["v2.weight"].rows == slice(2, 4)
    del tensors["k.weight"], tensors["kv.weight"]
    with pytest.raises(ModelFormatError, match=r"2 tensors are missing: k\.weight, kv\.weight;"):
        place(rules, tensors, 1)


def test_rules_for_some_layers_and_optional_ones():
    rules = [
        module("blk.{}.q", "layers.{}.q", layers=lambda layer: layer != 1),
        module("blk.{}.n", "layers.{}.n", required=False),
    ]
    tensors = table(matrix("blk.0.q.weight", 2, 2), matrix("blk.2.q.weight", 2, 2))
    paths = [placement.path for placement in place(rules, tensors, 3)]
    assert paths == ["layers.0.q.weight", "layers.2.q.weight"]


def test_two_rules_for_one_parameter_are_a_mistake():
    tensors = table(matrix("a.weight", 2, 2), matrix("b.weight", 2, 2))
    with pytest.raises(ValueError, match="two rules"):
        place([module("a", "x"), module("b", "x")], tensors, 1)


@pytest.mark.parametrize(
    "name",
    ["blk.0.attn_sinks.weight", "blk.00.attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_q",
     "../../etc/passwd", "output.weight\n", "blk.0.output.weight", "attn_q.weight",
     "blk.0.attn_norm.scale", "blk.0.attn_other.scale"],
)  # fmt: skip
def test_unknown_tensors_are_refused(parts, name):
    metadata, tensors = parts
    tensors[name] = vector(name, 4)
    with pytest.raises(ModelFormatError, match=re.escape(repr(name))):
        read_plan(metadata, tensors)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blk.7.attn_q.weight": vector("blk.7.attn_q.weight", 4)}, "2 layers"),
        ({"blk.1.ffn_up.weight": None}, r"1 tensors are missing: blk\.1\.ffn_up\.weight"),
        (None, "only a vocabulary"),
    ],
)
def test_tensors_that_do_not_fit_are_named(parts, changes, words):
    """Changes of the tensors, or of the metadata; None leaves one out, or all."""
    metadata, tensors = parts
    for name, value in (changes or dict.fromkeys(tensors)).items():
        if value is None:
            del tensors[name]
        else:
            (metadata if name.startswith("llama.") else tensors)[name] = value
    with pytest.raises(ModelFormatError, match=words):
        read_plan(metadata, tensors)


def test_rows_for_a_rotation_of_halves():
    assert halves_from_neighbours(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_layers_that_differ(parts):
    keys = Keys({"x.a": np.array([1, 2, 3]), "x.b": np.array([0, 1], np.bool_), "x.c": 4}, "x")
    assert keys.layer_integers("a", 3) == [1, 2, 3]
    assert keys.layer_integers("c", 2) == [4, 4]
    assert keys.layer_flags("b", 2) == [False, True]
    assert keys.integers("a") == [1, 2, 3]
    with pytest.raises(ModelFormatError, match="4 whole numbers"):
        keys.layer_integers("a", 4)
    with pytest.raises(ModelFormatError, match="to 2"):
        keys.layer_integers("a", 3, high=2)


# The other values that are refused are in malformed_models.py.
WRONG = [
    ("llama.block_count", 1, "1 layers"),
    ("llama.block_count", True, "block_count"),
    ("llama.attention.head_count_kv", np.array([1.5]), "head_count_kv"),
    ("llama.rope.freq_base", -1.0, "freq_base"),
    ("llama.rope.scaling.type", 5, "scaling.type"),
]


@pytest.mark.parametrize(("key", "value", "words"), WRONG)
def test_values_out_of_range(parts, key, value, words):
    metadata, tensors = parts
    metadata[key] = value
    with pytest.raises(ModelFormatError, match=words) as info:
        read_plan(metadata, tensors)
    assert not isinstance(info.value, UnsupportedArchitectureError)


UNSUPPORTED = [
    ("general.architecture", "bert", "bert is an encoder.*qwen3-embedding"),
    ("general.architecture", "abc", "'abc'.*llama"),
    ("general.architecture", "glm5-next", "glm5-next.*; llama.cpp runs it.*akunu reads afmoe"),
    (
        "general.architecture",
        "plamo3",
        "plamo3.*; llama.cpp runs it, and its vocabulary.*akunu reads afmoe",
    ),
    ("general.architecture", "unheard-of", "unheard-of.*; llama.cpp may run it.*akunu reads afmoe"),
    ("llama.attention.clamp_kqv", 8.0, "clamp_kqv"),
    ("llama.rope.scaling.type", "su", "'su'"),
    ("llama.rope.dimension_count", 8, "dimension_count is 8"),
    ("llama.attention.value_length", 32, "value_length is 32"),
    ("llama.attention.head_count_kv", np.array([2, 4], np.uint32), "layer to layer"),
    ("llama.logit_scale", 0.5, "logit_scale"),
    ("llama.rope.freq_base_swa", 777.0, "freq_base_swa"),
    ("llama.attention.output_scale", 3.0, "output_scale"),
    ("llama.swiglu_clamp_exp", 2.0, "swiglu_clamp_exp"),
    # Lists where a number belongs: numpy compares them item by item.
    ("llama.logit_scale", np.array([], np.float32), "logit_scale"),
    ("llama.logit_scale", np.array([1.0, 1.0], np.float32), "logit_scale"),
    ("llama.rope.freq_base_swa", np.array([1e4, 1e4], np.float32), "freq_base_swa"),
]


@pytest.mark.parametrize(("key", "value", "words"), UNSUPPORTED)
def test_what_akunu_cannot_run_is_named(parts, key, value, words):
    metadata, tensors = parts
    metadata[key] = value
    with pytest.raises(UnsupportedArchitectureError, match=words):
        read_plan(metadata, tensors)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope.freq_base_swa", 10000.0), ("expert_group_count", 1), ("logit_scale", 1.0),
     ("attention.sliding_window", 0)],
)  # fmt: skip
def test_settings_that_change_nothing_are_let_through(parts, key, value):
    metadata, tensors = parts
    metadata[f"llama.{key}"] = value
    read_plan(metadata, tensors)


def test_equal_values_a_layer_are_one(parts):
    metadata, tensors = parts
    metadata["llama.attention.head_count_kv"] = np.array([2, 2], np.uint32)
    assert read_plan(metadata, tensors).arguments["num_key_value_heads"] == 2


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, 1.0),
        ({"rope.scale_linear": 2.0}, 2.0),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 0.0}, 1.0),
    ],
)
def test_linear_scaling(parts, keys, factor):
    metadata, tensors = parts
    metadata |= {f"llama.{key}": value for key, value in keys.items()}
    arguments = read_plan(metadata, tensors).arguments
    expected = None if factor == 1 else {"type": "linear", "factor": factor}
    assert arguments["rope_scaling"] == expected


def test_both_kinds_of_scaling_are_refused(parts):
    metadata, tensors = parts
    tensors["rope_freqs.weight"] = vector("rope_freqs.weight", 8)
    metadata |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    with pytest.raises(UnsupportedArchitectureError, match="both"):
        read_plan(metadata, tensors)


def test_biases_all_or_none(parts):
    metadata, tensors = parts
    for layer in range(2):
        for part, size in (("q", 64), ("k", 32), ("v", 32), ("output", 64)):
            name = f"blk.{layer}.attn_{part}.bias"
            tensors[name] = vector(name, size)
    arguments = read_plan(metadata, tensors).arguments
    assert arguments["attention_bias"]
    assert not arguments["mlp_bias"]
    del tensors["blk.1.attn_k.bias"]
    with pytest.raises(UnsupportedArchitectureError, match="5 of 6 attention"):
        read_plan(metadata, tensors)


def test_every_architecture_is_found_by_its_name():
    assert list(supported_architectures()) == sorted(supported_architectures())
    for architecture in supported_architectures():
        assert callable(find_reader(architecture))
    for name in ("", "llam", "llama5", "gemma.", "dense", "__init__", "../llama", "os"):
        assert find_reader(name) is None


def test_a_file_brings_in_its_own_family_only():
    code = (
        "import sys; from akunu_py.gguf.architectures import __name__ as room, find_reader\n"
        "find_reader('llama')\n"
        "print(*(name for name in sys.modules if name.startswith(room + '.')))"
    )
    assert python("-c", code).stdout.split() == ["akunu_py.gguf.architectures.llama"]
