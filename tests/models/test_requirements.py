"""What a model will need, told before loading, against what MLX holds afterwards."""

import gc
import json

import mlx.core as mx
import pytest
from family_models import build_family
from gguf_files import write_tiny_llama
from mlx.utils import tree_flatten

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models import device
from akunu_py.models import requirements as module
from akunu_py.models.cache import make_caches
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.models.requirements import requirements
from akunu_py.models.sources.source import EmptyModel, ModelFigures
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.recommended import Recommended


def bytes_of(model):
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


def held(caches):
    """The bytes of arrays in caches, with the rows they keep free for the next tokens."""
    state = [entry for cache in caches for _, entry in tree_flatten(cache.state)]
    return sum(entry.nbytes for entry in state if isinstance(entry, mx.array))


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("weights", ["quantized", "dense"])
def test_weights_of_a_gguf_file(tmp_path, kind, weights):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization=kind, tied=False)
    options = LoadOptions(weights=weights)
    needs = requirements(path, options)
    loaded = load_model(path, options)
    assert needs.weights_bytes == bytes_of(loaded.model)
    assert needs.parameters == loaded.description.parameters
    assert needs.dense == (loaded.description.weights == "dense")
    assert (needs.context, needs.architecture) == (256, "llama")
    assert needs.file_bytes == path.stat().st_size


@pytest.mark.parametrize("name", ["variants.nothing", "nothing"])
def test_a_converted_folder_of_an_unknown_class_is_refused(tmp_path, name):
    convert_model(write_tiny_llama(tmp_path / "m.gguf"), tmp_path / "folder")
    path = tmp_path / "folder" / "akunu.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": name}))
    with pytest.raises(ModelFormatError, match="cannot be built"):
        requirements(tmp_path / "folder")


def test_weights_of_folders(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0")
    convert_model(path, tmp_path / "folder")
    converted = requirements(tmp_path / "folder", LoadOptions(weights="dense"))
    loaded = load_model(tmp_path / "folder", LoadOptions(weights="dense"))
    assert converted.weights_bytes == bytes_of(loaded.model)
    assert converted.parameters == loaded.description.parameters
    assert converted.rollback == ("by length",)
    (tmp_path / "folder" / "akunu.json").unlink()
    plain = requirements(tmp_path / "folder", LoadOptions(weights="dense"))
    assert plain.weights_bytes == converted.weights_bytes
    quantized = requirements(tmp_path / "folder", LoadOptions(weights="quantized"))
    loaded = load_model(tmp_path / "folder", LoadOptions(weights="quantized"))
    assert quantized.weights_bytes == bytes_of(loaded.model)
    assert not quantized.dense


@pytest.mark.parametrize(
    ("family", "recorded"),
    [
        ("llama", 0),
        ("gemma3", 0),
        # Two layers: queries and keys of 2 heads, values of 4, two gates of each, a window's row.
        ("qwen3_next", 2 * (2 * 2 * 16 + 4 * 16 + 2 * 4 + 128)),
        # Four: inputs and steps of 8 heads, B and C of 2 groups, a window's row.
        ("mamba2", 4 * (8 * 16 + 8 + 2 * 2 * 16 + 192)),
        ("deepseek_v3", 0),
    ],
)
def test_caches_of_families(family, recorded):
    """After 40 tokens, beyond the windows of 16: rows of caches, and states, as foretold.

    And the float32 numbers that a row holds until its pass is undone.
    """
    model = build_family(family)
    mx.eval(model.parameters())
    figures = ModelFigures(
        architecture=family, parameters=1, dense=True, context=100, file_bytes=1,
        weights_bytes=1, number_bytes=4, recommended=Recommended(),
    )  # fmt: skip
    described = module._count(EmptyModel(build_family(family), figures), None, None)
    caches = make_caches(model)
    for token in range(40):
        model(mx.array([[token]]), cache=caches)
    mx.eval([cache.state for cache in caches])
    assert described.cache_bytes(40) == held(caches)
    assert described.shape.record_bytes == 4 * recorded


def test_quantized_caches(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", width=256)
    needs = requirements(path)
    assert needs.quantizable
    for bits in (4, 8):
        model = load_model(path).model
        caches = make_caches(model, bits)
        model(mx.zeros((1, 256), mx.int32), cache=caches)
        assert needs.cache_bytes(256, kv_bits=bits) == held(caches)
    assert not requirements(write_tiny_llama(tmp_path / "n.gguf")).quantizable


def test_nothing_is_read_or_computed(tiny_gguf, monkeypatch):
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    monkeypatch.setattr(GGUFFile, "tensor_bytes", None)
    assert requirements(tiny_gguf).weights_bytes > 100_000
    assert mx.get_peak_memory() - before < 10_000


@pytest.mark.parametrize(("text", "least"), [("max\n", False), ("1000\n", True), ("", False)])
def test_a_containers_limit(tmp_path, monkeypatch, text, least):
    monkeypatch.setattr(device, "_CGROUP_LIMIT", tmp_path / "memory.max")
    without = device.memory_limit()
    (tmp_path / "memory.max").write_text(text)
    assert device.memory_limit() == (1000 if least else without)
    assert without > 10**8
