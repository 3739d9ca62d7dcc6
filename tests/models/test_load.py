"""Loading: GGUF against the gguf package's numbers, MLX folders, bad paths."""

import os

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf_files import write_tiny_llama
from mlx.utils import tree_flatten
from model_folders import write_folder

from akunu_py import ConfigError, Engine, ModelFormatError
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.known_models import default_model_path
from akunu_py.models.gguf_model import overflows
from akunu_py.models.load import LoadOptions, convert_model, load_model, open_model
from akunu_py.models.load_steps import finish
from akunu_py.models.requirements import requirements

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
@pytest.mark.parametrize("kind", TYPES)
def test_dense_and_quantized_weights_are_the_files(tmp_path, kind, vocabulary):
    """Both forms hold gguf's own dequantized numbers."""
    path = write_tiny_llama(
        tmp_path / "model.gguf", quantization=kind, vocabulary=vocabulary, tied=False
    )
    reader = gguf.GGUFReader(path)
    expected = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
    }
    dense = load_model(path, LoadOptions(weights="dense")).model
    quantized = load_model(path, LoadOptions(weights="quantized")).model
    places = {"token_embd": "model.embed_tokens", "blk.1.ffn_down": "model.layers.1.mlp.down_proj"}
    for name, place in places.items():
        parameters = dict(tree_flatten(dense.parameters()))
        np.testing.assert_array_equal(
            np.array(parameters[f"{place}.weight"]), expected[f"{name}.weight"]
        )
        parameters = dict(tree_flatten(quantized.parameters()))
        weight = parameters[f"{place}.weight"]
        if kind.startswith("Q"):
            assert weight.dtype == mx.uint32
            weight = mx.dequantize(
                weight, parameters[f"{place}.scales"], parameters[f"{place}.biases"],
                group_size=32, bits=8 if kind == "Q8_0" else 4,
            )  # fmt: skip
        np.testing.assert_allclose(np.array(weight), expected[f"{name}.weight"], atol=1e-7)


@pytest.mark.parametrize("kind", TYPES)
def test_quantized_models_decode_alike_with_and_without_drafts(tmp_path, kind):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization=kind, tied=False, seed=4)
    with Engine.load(path, weights="quantized") as engine:
        options = {"max_tokens": 30, "temperature": 0.7, "seed": 3}
        plain = engine.generate("hello world the model", drafter="none", **options)
        drafted = engine.generate("hello world the model", drafter="ngram", **options)
        assert drafted.token_ids == plain.token_ids


def test_auto_weights_stay_packed_where_kernels_multiply_them(tmp_path, monkeypatch):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization="Q8_0")
    monkeypatch.setattr("akunu_py.models.expansion.has_kernels", lambda: True)
    assert load_model(path).description.weights == "quantized"


def test_auto_weights_are_dense_where_they_fit_and_say_so(tmp_path, caplog, monkeypatch):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization="Q8_0")
    monkeypatch.setattr("mlx.core.default_device", lambda: mx.Device(mx.cpu))
    monkeypatch.setattr("akunu_py.models.expansion.has_kernels", lambda: False)
    with caplog.at_level("INFO", logger="akunu_py"):
        assert load_model(path).description.weights == "dense"
    assert "float32 dense weights need" in caplog.text
    monkeypatch.setattr("akunu_py.models.expansion.physical_memory", lambda: 1000)
    assert load_model(path).description.weights == "quantized"


def test_llama_3_frequencies_reach_the_rotary_layers(tmp_path):
    """The same as mlx-lm's own Llama 3 scaling with the parameters the factors were made from."""
    from mlx_lm.models.rope_utils import Llama3RoPE

    from akunu_py.models.layers import FrequencyRope

    scaling = {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_type": "llama3",
    }  # fmt: skip
    theirs = Llama3RoPE(16, 256, traditional=True, base=10000.0, scaling_config=scaling)
    ours = FrequencyRope(16, theirs._freqs, traditional=True)
    x = mx.random.normal((1, 2, 9, 16))
    np.testing.assert_allclose(np.array(ours(x, 5)), np.array(theirs(x, 5)), atol=1e-6)


@pytest.mark.parametrize("kind", ["file", "folder", "converted"])
@pytest.mark.parametrize("weights", ["quantized", "dense"])
def test_a_model_is_loaded_tensor_by_tensor(tiny_gguf, tmp_path, kind, weights):
    path = tiny_gguf
    if kind == "folder":
        path = write_folder(tmp_path / "model", tiny_gguf)
    elif kind == "converted":
        path = tmp_path / "model"
        convert_model(tiny_gguf, path)
    options = LoadOptions(weights=weights)
    whole = dict(tree_flatten(load_model(path, options).model.parameters()))
    before = mx.get_active_memory()
    steps = open_model(path, options)
    assert mx.get_active_memory() == before, "opening uses no MLX"
    held = [before]

    def watched():
        for _ in steps:
            held.append(mx.get_active_memory())
            yield

    finish(watched())
    grown = np.diff(held)
    largest = max(array.nbytes for array in whole.values())
    matrices = sum(array.ndim > 1 for name, array in whole.items() if name.endswith("weight"))
    assert (grown > 0).sum() >= matrices
    assert grown.max() <= 2 * largest


def test_a_load_that_is_dropped_closes_its_file(tiny_gguf, monkeypatch):
    closed = []
    sound = GGUFFile.close
    monkeypatch.setattr(GGUFFile, "close", lambda file: (closed.append(file), sound(file)))
    steps = open_model(tiny_gguf)
    next(steps)
    assert not closed
    steps.close()
    assert len(closed) == 1


def test_the_default_model_is_found():
    assert default_model_path().name == "akunu-tiny.gguf"


def test_paths_that_are_no_model(tmp_path):
    cases = {
        tmp_path / "missing.gguf": (ConfigError, "does not exist"),
        tmp_path: (ModelFormatError, "no config.json"),
    }
    text = tmp_path / "text.gguf"
    text.write_text("This is not a model.\n" * 50)
    cases[text] = (ModelFormatError, "GGUF")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    cases[empty] = (ModelFormatError, "")
    fifo = tmp_path / "fifo.gguf"
    os.mkfifo(fifo)
    cases[fifo] = (ConfigError, "neither a file nor a folder")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    cases[loop] = (ConfigError, "")
    for path, (kind, words) in cases.items():
        with pytest.raises(kind) as caught:
            Engine.load(path)
        assert words in str(caught.value)


@pytest.mark.parametrize("key", ["tokenizer.ggml.model", "llama.block_count"])
def test_messages_about_metadata_name_the_file(tiny_gguf, tmp_path, key):
    path = tmp_path / "odd.gguf"
    path.write_bytes(tiny_gguf.read_bytes().replace(key.encode(), key[:-1].encode() + b"_"))
    for call in (load_model, requirements):
        with pytest.raises(ModelFormatError) as caught:
            call(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).count(str(path)) == 1
        assert key in str(caught.value)


def test_a_truncated_file_is_refused_before_anything_is_loaded(tiny_gguf, tmp_path):
    whole = tiny_gguf.read_bytes()
    for share in (0.2, 0.5, 0.9, 0.999):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ModelFormatError, match="trunc"):
            Engine.load(path)


def test_the_begin_token_is_left_to_the_tokenizer(tmp_path):
    """Written out in a prompt it would be put there twice when the text is read again."""
    path = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm", tied=False, seed=1)
    tokenizer = load_model(path).tokenizer
    ids = tokenizer.encode("hello the world")
    (begin,) = set(ids) - set(tokenizer.encode("hello the world")[1:])
    assert tokenizer.decode(ids, with_control=True) == "hello the world"
    assert "<s>" in tokenizer.decode([*ids, begin], with_control=True)


def test_an_empty_path_is_not_the_current_folder(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    for options in ({"path": ""}, {"path": tiny_gguf, "draft_model": ""}):
        with pytest.raises(ConfigError, match="the name of the model is empty"):
            Engine.load(**options)
    with pytest.raises(ConfigError, match="the path of the memory is empty"):
        Engine.load(tiny_gguf, memory="")


def test_an_unknown_home_folder_is_explained():
    with pytest.raises(ConfigError, match="~nosuchuser"):
        Engine.load("~nosuchuser/model.gguf")


def test_experts_in_16_bits_on_the_cpu_are_refused_before_the_first_token(tmp_path):
    from tiny_architectures.builder import build

    path = build("qwen3moe").write(tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="only in float32"):
        load_model(path, LoadOptions(compute_type="float16"))


def test_rotary_factors_that_are_none(tmp_path):
    from tiny_architectures.builder import build

    for value in (np.inf, 0.0, -1.0, np.nan, 1e35):
        model = build("llama-3")
        model.tensors["rope_freqs.weight"][3] = value
        path = model.write(tmp_path / "m.gguf")
        with pytest.raises(ModelFormatError, match="rope_freqs"):
            load_model(path)


def test_the_text_that_shows_overflow_fits_into_the_context():
    """A table of learned positions is read beyond its end otherwise."""
    seen = []

    def model(ids):
        seen.append(ids.shape)
        return mx.zeros((*ids.shape, 97))

    assert not overflows(model, 97, 32)
    assert not overflows(model, 97, 2048)
    assert seen == [(1, 32), (1, 64)]
