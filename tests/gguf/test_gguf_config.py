"""Metadata to model arguments, tensor names to parameters, and the shapes between them."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
from gguf_files import write_tiny_llama

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf import (
    BLOCK_TYPES,
    GGUFFile,
    TensorInfo,
    check_tensors,
    expected_tensors,
    parameter_path,
    read_config,
    supported_architectures,
)


@pytest.fixture
def parts(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        return dict(file.metadata), dict(file.tensors)


def vector(name, size, kind=0):
    return TensorInfo(name, BLOCK_TYPES[kind], (size,), 0, size * 4)


def test_reads_the_tiny_model(parts):
    config = read_config(*parts)
    assert dataclasses.asdict(config) == {
        "architecture": "llama", "hidden_size": 64, "num_layers": 2, "num_heads": 4,
        "num_kv_heads": 2, "head_dim": 16, "feed_forward_size": 96,
        "rms_norm_eps": pytest.approx(1e-5), "rope_base": 10000.0, "rope_linear_factor": 1.0,
        "context_length": 256, "vocabulary_size": len(parts[0]["tokenizer.ggml.tokens"]),
        "tied_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "has_rope_frequencies": False,
    }  # fmt: skip
    check_tensors(config, parts[1])


def test_arguments_are_those_of_mlx_lm(parts):
    llama = pytest.importorskip("mlx_lm.models.llama")
    arguments = read_config(*parts).to_mlx_args()
    assert arguments.keys() <= inspect.signature(llama.ModelArgs).parameters.keys()
    assert llama.ModelArgs(**arguments).rope_traditional is True


def test_parameter_paths_are_those_of_mlx_lm(tmp_path):
    llama = pytest.importorskip("mlx_lm.models.llama")
    utils = pytest.importorskip("mlx.utils")
    path = write_tiny_llama(tmp_path / "m.gguf", tied=False, rope_frequencies=True)
    with GGUFFile.open(path) as file:
        config = read_config(file.metadata, file.tensors)
        check_tensors(config, file.tensors)
        paths = {name: parameter_path("llama", name) for name in file.tensors}
    assert config.has_rope_frequencies
    assert paths.pop("rope_freqs.weight") is None
    model = llama.Model(llama.ModelArgs(**config.to_mlx_args()))
    shapes = {name: tuple(value.shape) for name, value in utils.tree_flatten(model.parameters())}
    expected = expected_tensors(config)
    assert {".".join(path): expected[name] for name, path in paths.items()} == shapes


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("token_embd.weight", ("model.embed_tokens", "weight")),
        ("output_norm.weight", ("model.norm", "weight")),
        ("output.weight", ("lm_head", "weight")),
        ("blk.0.attn_q.weight", ("model.layers.0.self_attn.q_proj", "weight")),
        ("blk.12.attn_output.bias", ("model.layers.12.self_attn.o_proj", "bias")),
        ("blk.3.ffn_down.weight", ("model.layers.3.mlp.down_proj", "weight")),
        ("rope_freqs.weight", None),
        ("blk.0.attn_rot_embd.weight", None),
    ],
)
def test_names(name, path):
    assert parameter_path("llama", name) == path


@pytest.mark.parametrize(
    "name",
    ["blk.0.attn_sinks.weight", "blk.00.attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_q",
     "../../etc/passwd", "output.weight\n", "blk.0.output.weight", "attn_q.weight", ""],
)  # fmt: skip
def test_unknown_names_are_refused(name):
    with pytest.raises(ModelFormatError, match=re.escape(repr(name))):
        parameter_path("llama", name)


def test_names_of_an_unknown_architecture():
    with pytest.raises(UnsupportedArchitectureError, match="mamba"):
        parameter_path("mamba", "output.weight")


WRONG = [
    ("llama.block_count", 0, "block_count"),
    ("llama.block_count", 10**9, "block_count"),
    ("llama.block_count", 3, "3 layers"),
    ("llama.block_count", 1, "1 layers"),
    ("llama.block_count", True, "block_count"),
    ("llama.block_count", "2", "block_count"),
    ("llama.embedding_length", 0, "embedding_length"),
    ("llama.embedding_length", 128, "token_embd"),
    ("llama.attention.head_count", 0, "head_count"),
    ("llama.attention.head_count", -4, "head_count"),
    ("llama.attention.head_count", 7, "head_count_kv|multiple"),
    ("llama.attention.head_count_kv", 3, "divisor"),
    ("llama.attention.head_count_kv", np.array([], np.uint32), "head_count_kv"),
    ("llama.attention.head_count_kv", np.array([1.5]), "head_count_kv"),
    ("llama.attention.key_length", 15, "even"),
    ("llama.feed_forward_length", 0, "feed_forward_length"),
    ("llama.feed_forward_length", None, "feed_forward_length"),
    ("llama.attention.layer_norm_rms_epsilon", float("nan"), "epsilon"),
    ("llama.attention.layer_norm_rms_epsilon", 0.0, "epsilon"),
    ("llama.rope.freq_base", float("inf"), "freq_base"),
    ("llama.rope.freq_base", -1.0, "freq_base"),
    ("llama.rope.scaling.type", 5, "scaling.type"),
    ("llama.context_length", 0, "context_length"),
    ("general.architecture", None, "architecture"),
    ("general.architecture", 7, "architecture"),
    ("split.count", 2, "split into 2"),
    ("tokenizer.ggml.tokens", ["a"], "1 tokens"),
]


@pytest.mark.parametrize(("key", "value", "words"), WRONG)
def test_values_out_of_range(parts, key, value, words):
    metadata, tensors = parts
    if value is None:
        del metadata[key]
    else:
        metadata[key] = value
    with pytest.raises(ModelFormatError, match=words) as info:
        read_config(metadata, tensors)
    assert not isinstance(info.value, UnsupportedArchitectureError)


UNSUPPORTED = [
    ("general.architecture", "mamba", "'mamba'.*llama"),
    ("llama.expert_count", 8, "expert_count is 8"),
    ("llama.rope.scaling.type", "yarn", "'yarn'"),
    ("llama.rope.dimension_count", 8, "dimension_count is 8"),
    ("llama.attention.value_length", 32, "value_length is 32"),
    ("llama.attention.head_count_kv", np.array([2, 4], np.uint32), "layer to layer"),
    ("llama.logit_scale", 0.5, "logit_scale"),
]


@pytest.mark.parametrize(("key", "value", "words"), UNSUPPORTED)
def test_what_akunu_cannot_run_is_named(parts, key, value, words):
    metadata, tensors = parts
    metadata[key] = value
    with pytest.raises(UnsupportedArchitectureError, match=words):
        read_config(metadata, tensors)


def test_equal_values_a_layer_are_one(parts):
    metadata, tensors = parts
    metadata["llama.attention.head_count_kv"] = np.array([2, 2], np.uint32)
    assert read_config(metadata, tensors).num_kv_heads == 2


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, 1.0),
        ({"rope.scale_linear": 2.0}, 2.0),
    ],
)
def test_linear_scaling(parts, keys, factor):
    metadata, tensors = parts
    metadata |= {f"llama.{key}": value for key, value in keys.items()}
    arguments = read_config(metadata, tensors).to_mlx_args()
    expected = None if factor == 1 else {"type": "linear", "factor": factor}
    assert arguments["rope_scaling"] == expected


def test_both_kinds_of_scaling_are_refused(parts):
    metadata, tensors = parts
    tensors["rope_freqs.weight"] = vector("rope_freqs.weight", 8)
    metadata |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    with pytest.raises(UnsupportedArchitectureError, match="both"):
        read_config(metadata, tensors)


def test_biases_all_or_none(parts):
    metadata, tensors = parts
    for layer in range(2):
        for part, size in (("q", 64), ("k", 32), ("v", 32), ("output", 64)):
            name = f"blk.{layer}.attn_{part}.bias"
            tensors[name] = vector(name, size)
    config = read_config(metadata, tensors)
    assert config.attention_bias
    assert not config.mlp_bias
    check_tensors(config, tensors)
    del tensors["blk.1.attn_k.bias"]
    with pytest.raises(UnsupportedArchitectureError, match="7 of 8 attention"):
        read_config(metadata, tensors)


def test_missing_tensors_are_named(parts):
    metadata, tensors = parts
    config = read_config(metadata, tensors)
    del tensors["blk.1.ffn_up.weight"]
    with pytest.raises(ModelFormatError, match=r"1 tensors are missing: blk\.1\.ffn_up\.weight"):
        check_tensors(config, tensors)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (vector("output_norm.weight", 32), "shape"),
        (vector("blk.0.attn_sinks.weight", 4), "does not know"),
        (vector("blk.7.attn_q.weight", 4), "does not belong"),
        (vector("output_norm.weight", 64, kind=8), "quantized"),
    ],
)
def test_wrong_tensors_are_named(parts, info, words):
    metadata, tensors = parts
    config = read_config(metadata, tensors)
    tensors[info.name] = info
    with pytest.raises(ModelFormatError, match=words):
        check_tensors(config, tensors)


def test_a_vocabulary_only_file_says_so(parts):
    with pytest.raises(ModelFormatError, match="vocabulary only"):
        read_config(parts[0], {})


def test_supported_architectures():
    assert supported_architectures() == ("llama",)
