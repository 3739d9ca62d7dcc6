"""What a rank keeps of a model, found without other ranks."""

import dataclasses
import gc
from functools import partial

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from family_models import build_family
from gguf_files import write_tiny_llama
from mlx.utils import tree_flatten
from random_block_models import write_model
from tiny_architectures.builder import build
from tiny_models import tiny

from akunu_py.gguf import GGUFFile
from akunu_py.models import gguf_model, rank_split
from akunu_py.models.layers import PlanesLinear, Scaled
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.models.rank_split import PlannedGroup
from akunu_py.models.requirements import requirements
from akunu_py.models.sources import gguf as gguf_source
from akunu_py.models.sources.source import DESCRIPTION
from akunu_py.system.errors import ConfigError, ModelFormatError


def parts_of(build, count):
    """The parts of all ranks of a model; none of them can run."""
    parts = []
    for rank in range(count):
        model = build()
        rank_split.prepare(model, PlannedGroup(rank, count), "the model").apply(model)
        parts.append(model)
    return parts


def shape_of(model, path):
    return dict(tree_flatten(model.parameters()))[path].shape


def test_each_rank_has_its_heads_and_its_widths():
    for part in parts_of(tiny, 2):
        attention = part.layers[0].self_attn
        assert (attention.n_heads, attention.n_kv_heads) == (2, 1)
        assert shape_of(part, "model.layers.0.self_attn.q_proj.weight") == (32, 64)
        assert shape_of(part, "model.layers.0.self_attn.o_proj.inner.weight") == (64, 32)
        assert shape_of(part, "model.layers.1.mlp.down_proj.inner.weight") == (64, 48)
        assert shape_of(part, "model.embed_tokens.weight") == (97, 64)


def test_the_parts_make_the_whole():
    whole = dict(tree_flatten(tiny().parameters()))
    parts = [dict(tree_flatten(part.parameters())) for part in parts_of(tiny, 2)]
    rows = [part["model.layers.0.mlp.up_proj.weight"] for part in parts]
    assert mx.array_equal(mx.concatenate(rows), whole["model.layers.0.mlp.up_proj.weight"])
    cols = [part["model.layers.0.mlp.down_proj.inner.weight"] for part in parts]
    joined = mx.concatenate(cols, axis=-1)
    assert mx.array_equal(joined, whole["model.layers.0.mlp.down_proj.weight"])


def test_a_bias_is_added_once():
    model = tiny(attention_bias=True)
    bias = model.layers[0].self_attn.o_proj.bias
    rank_split.prepare(model, PlannedGroup(1, 2), "the model").apply(model)
    summed = model.layers[0].self_attn.o_proj
    assert mx.array_equal(summed.bias, bias)
    assert "bias" not in summed.inner
    assert model.layers[0].self_attn.q_proj.bias.shape == (32,)


@pytest.mark.parametrize(
    ("make", "ranks", "reason"),
    [
        (partial(tiny, num_key_value_heads=1), 2, "n_kv_heads = 1 does not divide by 2"),
        (partial(tiny, intermediate_size=97), 2, "does not divide by 2"),
        # Their widths divide by two, and mlx-lm would cut a head in half.
        (
            partial(tiny, num_attention_heads=6, num_key_value_heads=3, head_dim=16),
            2,
            r"n_kv_heads = 3 does not divide by 2.*no pipeline",
        ),
        (partial(build_family, "qwen3_next"), 5, "4 layers, too few for a pipeline of 5 ranks"),
        (partial(build_family, "gemma2"), 2, "mlx-lm cannot split the layers of the model"),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(make, ranks, reason):
    with pytest.raises(ConfigError, match=reason):
        rank_split.prepare(make(), PlannedGroup(0, ranks), "the model")


def test_a_pipeline_is_taken_where_sizes_do_not_divide():
    model = build_family("qwen3_moe")
    assert rank_split.prepare(model, PlannedGroup(0, 3), "the model").way == "pipeline"
    # As if nothing had been tried before.
    fresh = build_family("qwen3_moe")
    held = {path for path, _ in tree_flatten(model.parameters())}
    for path, array in tree_flatten(fresh.parameters()):
        if path in held:
            assert mx.array_equal(dict(tree_flatten(model.parameters()))[path], array), path
    last = model.model.layers[-1]
    assert last.mlp.sharding_group is None
    assert last.self_attn.n_heads == fresh.model.layers[-1].self_attn.n_heads


def test_a_pipeline_has_all_layers_once():
    held = [
        [layer is not None for layer in part.model.layers]
        for part in parts_of(lambda: build_family("qwen3_next"), 2)
    ]
    # Rank 0 has the last layers.
    assert held == [[False, False, True, True], [True, True]]


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "NVFP4"])
def test_quantized_parts_are_the_wholes(tmp_path, kind):
    """Of a GGUF file: the dense weights of the parts are those of the file."""
    path = write_model(tmp_path / "model.gguf", "Q6_K" if kind == "Q6_K" else "Q4_K",
                       others={"ffn_down": kind, "ffn_up": kind})  # fmt: skip
    options = LoadOptions(weights="quantized", compute_type="float32")
    whole = load_model(path, options).model
    parts = [load_model(path, options, group=PlannedGroup(rank, 2)).model for rank in range(2)]
    x = mx.random.normal((3, 256))
    up = mx.concatenate([part.layers[0].mlp.up_proj(x) for part in parts], axis=-1)
    np.testing.assert_allclose(up, whole.layers[0].mlp.up_proj(x), rtol=1e-5, atol=1e-6)
    x = mx.random.normal((3, 512))
    halves = mx.split(x, 2, axis=-1)
    down = sum(
        part.layers[0].mlp.down_proj.inner(half) for part, half in zip(parts, halves, strict=True)
    )
    expected = np.array(whole.layers[0].mlp.down_proj(x))
    # Sums are rounded by the size of their terms, so small ones are less exact.
    np.testing.assert_allclose(down, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    if kind == "Q6_K":
        assert isinstance(parts[0].layers[0].mlp.up_proj, PlanesLinear)
    if kind == "NVFP4":
        assert isinstance(parts[0].layers[0].mlp.up_proj, Scaled | nn.QuantizedLinear)


def test_half_groups_are_refused_before_anything_is_read(tmp_path, monkeypatch):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization="Q8_0")
    monkeypatch.setattr(GGUFFile, "tensor_bytes", None)
    with pytest.raises(
        ConfigError, match=r"'blk.0.ffn_down.weight' has 96 columns in groups of 32"
    ):
        load_model(path, LoadOptions(weights="quantized"), group=PlannedGroup(0, 2))


def test_a_pipeline_of_a_gguf_file_has_its_own_layers(tmp_path):
    path = build("qwen3next").write(tmp_path / "model.gguf")
    whole = dict(tree_flatten(load_model(path).model.parameters()))
    for rank in range(2):
        part = dict(tree_flatten(load_model(path, group=PlannedGroup(rank, 2)).model.parameters()))
        assert len(part) < len(whole)
        for name, array in part.items():
            assert mx.array_equal(array, whole[name]), name


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_a_converted_folder_is_split_like_its_file(tmp_path, kind):
    path = write_model(tmp_path / "model.gguf", kind)
    convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32"))
    for rank in range(2):
        parts = [
            load_model(place, LoadOptions(weights="quantized"), group=PlannedGroup(rank, 2)).model
            for place in (path, tmp_path / "folder")
        ]
        ours, theirs = (dict(tree_flatten(part.parameters())) for part in parts)
        assert ours.keys() == theirs.keys()
        assert all(mx.array_equal(ours[name], theirs[name]) for name in ours)


def test_what_a_rank_needs_is_its_share(tmp_path):
    path = write_model(tmp_path / "model.gguf", "Q4_K")
    options = LoadOptions(weights="quantized")
    whole, part = requirements(path, options), requirements(path, options, PlannedGroup(1, 2))
    loaded = load_model(path, options, group=PlannedGroup(1, 2)).model
    held = sum(array.nbytes for _, array in tree_flatten(loaded.parameters()))
    assert part.way == "tensor"
    assert part.weights_bytes == pytest.approx(held, rel=0.1)
    assert part.cache_bytes(100) * 2 == whole.cache_bytes(100)


OTHER_LAYERS = "splits other layers than this model has"


@pytest.mark.parametrize(
    ("architecture", "ranks", "reason"),
    [
        ("llama", 3, "the architecture llama cannot run on 3 ranks"),
        # It needs all weights.
        ("gpt-oss", 2, "akunu models convert FILE FOLDER"),
        # These classes inherit a `shard` that knows the layers of llama alone.
        ("arcee", 2, OTHER_LAYERS),
        ("llama-experts", 2, OTHER_LAYERS),
    ],
)
def test_files_that_cannot_be_split_are_refused(tmp_path, architecture, ranks, reason):
    path = build(architecture).write(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match=reason):
        load_model(path, group=PlannedGroup(0, ranks))


@pytest.mark.parametrize("weights", ["quantized", "dense"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3moe", "qwen2", "glm4moe"])
def test_a_part_read_alone_is_a_part_of_the_whole(tmp_path, architecture, weights):
    """Every parameter of a GGUF file's part, compared with the whole model that is then cut."""
    path = build(architecture).write(tmp_path / "model.gguf")
    options = LoadOptions(weights=weights, compute_type="float32")
    for rank in range(2):
        group = PlannedGroup(rank, 2)
        whole = load_model(path, options).model
        rank_split.prepare(whole, group, "the model").apply(whole)
        expected = dict(tree_flatten(whole.parameters()))
        found = dict(tree_flatten(load_model(path, options, group=group).model.parameters()))
        assert found.keys() == expected.keys()
        for name, array in found.items():
            assert mx.array_equal(array, expected[name]), name


@pytest.mark.parametrize("weights", ["quantized", "dense"])
@pytest.mark.parametrize(
    ("name", "rows", "cols"),
    [("ffn_up", slice(256, 512), slice(None)), ("ffn_down", slice(None), slice(256, 512))],
)
def test_nothing_else_of_a_tensor_is_read(tmp_path, monkeypatch, name, rows, cols, weights):
    """What belongs to rank 1 is damaged, which rank 0 does not notice."""
    path = write_model(tmp_path / "model.gguf", "Q4_K")
    read = GGUFFile.tensor_bytes

    def damaged(file, tensor):
        raw = read(file, tensor)
        if tensor != f"blk.1.{name}.weight":
            return raw
        blocks = raw.reshape(len(raw), -1, 144).copy()
        # The first scale of these blocks is infinite.
        edges = (None if edge is None else edge // 256 for edge in (cols.start, cols.stop))
        blocks[rows, slice(*edges), :2] = [0, 0x7C]
        return blocks.reshape(raw.shape)

    monkeypatch.setattr(GGUFFile, "tensor_bytes", damaged)
    options = LoadOptions(weights=weights)
    load_model(path, options, group=PlannedGroup(0, 2))
    with pytest.raises(ModelFormatError, match="not finite"):
        load_model(path, options, group=PlannedGroup(1, 2))


def test_a_part_of_a_block_is_cut_after_it_is_read(tmp_path):
    """768 columns are three blocks, of which two ranks have one and a half each."""
    path = write_model(tmp_path / "model.gguf", "Q4_K", feed_forward=768)
    options = LoadOptions(weights="quantized", compute_type="float32")
    whole = load_model(path, options).model.layers[0].mlp.down_proj
    x = mx.random.normal((3, 768))
    parts = [load_model(path, options, group=PlannedGroup(rank, 2)).model for rank in range(2)]
    down = sum(
        part.layers[0].mlp.down_proj.inner(half)
        for part, half in zip(parts, mx.split(x, 2, axis=-1), strict=True)
    )
    np.testing.assert_allclose(down, whole(x), rtol=1e-4, atol=1e-4)


def test_parts_of_one_layer_in_different_quantizations_are_refused(tmp_path, monkeypatch):
    """Before anything is read; a fused layer is made of two tensors of other types."""
    path = write_model(tmp_path / "model.gguf", "Q4_K", others={"ffn_up": "Q6_K"})
    monkeypatch.setattr(GGUFFile, "tensor_bytes", None)
    real = gguf_model.own_part

    def fused(plan, *others):
        up = next(item for item in plan.placements if "layers.0.mlp.up_proj" in item.path)
        mixed = dataclasses.replace(up, tensors=("blk.0.ffn_up.weight", "blk.0.ffn_gate.weight"))
        kept = [item for item in plan.placements if item is not up]
        return real(dataclasses.replace(plan, placements=(*kept, mixed)), *others)

    monkeypatch.setattr(gguf_model, "own_part", fused)
    with pytest.raises(ConfigError, match=r"up_proj is made of tensors of different quantizations"):
        load_model(path, LoadOptions(weights="quantized"), group=PlannedGroup(0, 2))


@pytest.mark.parametrize("overflows", [False, True])
def test_all_ranks_take_the_same_type(tmp_path, monkeypatch, overflows):
    """Numbers of one rank's part that float16 cannot hold are seen by that rank alone."""
    path = write_model(tmp_path / "model.gguf", "Q4_K")
    asked = []

    def on_any_rank(group, found):
        asked.append(found)
        return overflows

    monkeypatch.setattr(gguf_source, "on_cpu", lambda: False)
    monkeypatch.setattr(gguf_source, "on_any_rank", on_any_rank)
    monkeypatch.setattr(gguf_source, "overflows", lambda *_: False)
    model = load_model(path, LoadOptions(weights="quantized"), group=PlannedGroup(0, 2)).model
    assert model.model.norm.weight.dtype == (mx.bfloat16 if overflows else mx.float16)
    assert asked[0] is False


@pytest.mark.parametrize("kind", ["file", "converted folder", "folder of mlx-lm"])
def test_a_part_takes_its_share_while_it_is_loaded(tmp_path, kind):
    """And a little more: one tensor as it is in the file, and ends of small ones."""
    path = write_model(tmp_path / "model.gguf", "Q4_K", layers=6, feed_forward=2048)
    options = LoadOptions(weights="quantized")
    if kind != "file":
        convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32"))
        path = tmp_path / "folder"
    if kind == "folder of mlx-lm":
        (path / DESCRIPTION).unlink()
        path.joinpath("akunu.safetensors").unlink()
    # Caches and the like of earlier tests are none of this one's.
    gc.collect()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    loaded = load_model(path, options, group=PlannedGroup(1, 2)).model
    kept = sum(array.nbytes for _, array in tree_flatten(loaded.parameters()))
    assert mx.get_peak_memory() - before < 1.4 * kept
