"""GGUF models kept as MLX folders: the same model again, for mlx-lm too where it can be."""

import json
import os
import resource
import shutil
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest
from gguf_files import write_tiny_llama
from mlx_lm import load as mlx_load
from mlx_lm.models.cache import make_prompt_cache
from pairwise import each_value
from quantized_references import write_quantized
from random_block_models import write_model
from tiny_architectures.builder import BUILDERS, build
from whole_numbers import LEEWAY

from akunu_py import ConfigError, Engine, ModelFormatError
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.models.requirements import requirements

IDS = [5, 9, 40, 41, 42, 5, 9, 40, 33, 34]
FLOAT32 = LoadOptions(compute_type="float32")


def logits(path, **options):
    with Engine.load(path, **options) as engine:
        return engine.logits(IDS)


@pytest.mark.parametrize(
    ("kind", "vocabulary"), each_value(("F16", "Q8_0", "Q4_0", "Q5_1"), ("bpe", "spm"))
)
def test_stock_forms_open_in_akunu_and_in_mlx_lm(tmp_path, kind, vocabulary):
    path = write_tiny_llama(
        tmp_path / "m.gguf", quantization=kind, vocabulary=vocabulary, tied=False
    )
    folder = tmp_path / "folder"
    assert convert_model(path, folder, FLOAT32)
    expected = logits(path, weights="quantized")
    np.testing.assert_array_equal(logits(folder, weights="quantized"), expected)
    np.testing.assert_allclose(logits(folder, weights="dense"), expected, atol=1e-4 * LEEWAY)
    model, tokenizer = mlx_load(str(folder))
    found = model(mx.array([IDS]))[0].astype(mx.float32)
    np.testing.assert_allclose(np.array(found), expected, atol=1e-4 * LEEWAY)
    own = load_model(path).tokenizer
    for text in ("hello world", "  the draft\n\tmodel", "Ä ½ 漢字 🙂"):
        assert tokenizer.encode(text) == own.encode(text)
        assert tokenizer.decode(own.encode(text), skip_special_tokens=True) == own.decode(
            own.encode(text)
        )
    assert set(tokenizer.eos_token_ids) == own.end_ids


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("llama-3", {"blk.0.attn_q.weight": "Q8_0", "token_embd.weight": "Q4_0"}),
        ("llama-yarn", {"blk.1.ffn_up.weight": "Q5_0"}),
    ],
)
def test_rotary_layers_come_back(tmp_path, name, types):
    model = build(name)
    for tensor, kind in types.items():
        model.quantize(tensor, kind)
    path = model.write(tmp_path / "m.gguf")
    assert convert_model(path, tmp_path / "folder", FLOAT32) == (name != "llama-3")
    np.testing.assert_array_equal(
        logits(tmp_path / "folder", weights="quantized"), logits(path, weights="quantized")
    )


def test_bit_planes_and_mixed_types_come_back(tmp_path):
    path = write_quantized(tmp_path / "m.gguf", "Q4_K_M")
    assert not convert_model(path, tmp_path / "folder", FLOAT32)
    expected = logits(path, weights="quantized")
    np.testing.assert_array_equal(logits(tmp_path / "folder", weights="quantized"), expected)
    np.testing.assert_allclose(logits(tmp_path / "folder", weights="dense"), expected, atol=1e-3)
    with pytest.raises(ValueError, match="akunu_llama not supported"):
        mlx_load(str(tmp_path / "folder"))
    eight = LoadOptions(compute_type="float32", q6k="8bit")
    assert convert_model(path, tmp_path / "eight", eight)
    mlx_load(str(tmp_path / "eight"))


def test_scales_are_those_of_a_gpu(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0", tied=False)
    convert_model(path, tmp_path / "folder")
    arrays = mx.load(str(tmp_path / "folder" / "model.safetensors"))
    assert arrays["lm_head.scales"].dtype == mx.float16
    assert arrays["model.norm.weight"].dtype == mx.float16


def test_the_chat_goes_on_as_before(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0", tied=False)
    convert_model(path, tmp_path / "folder", FLOAT32)
    with Engine.load(path) as one, Engine.load(tmp_path / "folder") as other:
        messages = [{"role": "user", "content": "hello world"}]
        assert other.tokenizer.encode_chat(messages) == one.tokenizer.encode_chat(messages)
        assert other.description.parameters == one.description.parameters
        assert other.description.architecture == "llama"
        assert other.context == one.context


def test_an_existing_folder_is_left_alone(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="exists"):
        convert_model(path, tmp_path / "folder")


def test_nothing_is_left_of_a_failed_conversion(tmp_path, monkeypatch):
    path = write_tiny_llama(tmp_path / "m.gguf")
    fail = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("akunu_py.models.whole_mlx_lm.save_model", fail)
    with pytest.raises(ConfigError, match="No space"):
        convert_model(path, tmp_path / "folder")
    assert sorted(place.name for place in tmp_path.iterdir()) == ["m.gguf"]


def test_a_disk_that_is_full_is_told(tmp_path, monkeypatch):
    """MLX cannot write beyond a limit of the process, as it cannot on a full disk."""
    path = write_tiny_llama(tmp_path / "m.gguf")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(ConfigError, match=r"folder: (the disk is full|File too large)"):
            convert_model(path, tmp_path / "folder")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    usage = shutil.disk_usage(tmp_path)._replace(free=path.stat().st_size - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ConfigError, match="0 MB left; make room"):
        convert_model(path, tmp_path / "deep" / "folder")
    assert sorted(place.name for place in tmp_path.iterdir()) == ["m.gguf"]


def _change(key, value):
    def change(folder):
        path = folder / "akunu.json"
        description = json.loads(path.read_text())
        description[key] = value(description[key]) if callable(value) else value
        path.write_text(json.dumps(description))

    return change


def _drop_array(folder):
    arrays = mx.load(str(folder / "model.safetensors"))
    del arrays["lm_head.scales"]
    mx.save_safetensors(str(folder / "model.safetensors"), dict(arrays))


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _shrink_array(folder):
    arrays = dict(mx.load(str(folder / "model.safetensors")))
    arrays["lm_head.weight"] = arrays["lm_head.weight"][:10]
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)


BROKEN = {
    "another version": _change("format", 1),
    "a module elsewhere": _change("model", "os"),
    "a path for a module": _change("model", "..cache"),
    "no such variant": _change("model", "variants.nothing"),
    "arguments missing": _change("arguments", {}),
    "arguments of another kind": _change("arguments", lambda old: {**old, "head_dim": "wide"}),
    "millions of layers": _change(
        "arguments", lambda old: {**old, "num_hidden_layers": 10_000_000}
    ),
    "another vocabulary": _change("vocabulary_size", 5),
    "other sizes": _change("arguments", lambda old: {**old, "hidden_size": 128}),
    "layers of another model": _change("layers", {"model.layers.9.mlp": {"form": "planes"}}),
    "unknown bits": _change(
        "layers", lambda old: {path: {**form, "bits": 3} for path, form in old.items()}
    ),
    "groups of nothing": _change(
        "layers", lambda old: {path: {**form, "group_size": 0} for path, form in old.items()}
    ),
    "a form of nothing": _change("layers", {"model.norm": {"form": "quantized"}}),
    "scaled positions in words": _change(
        "arguments", lambda old: {**old, "rope_scaling": "linear"}
    ),
    "no base of positions": _change("arguments", lambda old: {**old, "rope_theta": None}),
    "an endless context": _change("factors_change_at", float("inf")),
    "no json": lambda folder: (folder / "akunu.json").write_text("{"),
    "deep json": lambda folder: (folder / "akunu.json").write_text("[" * 100_000),
    "an array missing": _drop_array,
    "an array too short": _shrink_array,
    "no metadata": lambda folder: (folder / "metadata.gguf").unlink(),
    "no arrays": lambda folder: (folder / "model.safetensors").unlink(),
    "no extra arrays": lambda folder: (folder / "akunu.safetensors").unlink(),
    "cut arrays": lambda folder: (folder / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()[:5000]
    ),
    **{
        f"{name}, a pipe": lambda folder, name=name: _pipe(folder / name)
        for name in ("model.safetensors", "akunu.safetensors", "metadata.gguf")
    },
}
FOUND_BEFORE = (
    "another version", "no json", "no metadata", "no arrays", "no extra arrays", "cut arrays",
    "scaled positions in words", "akunu.safetensors, a pipe", "metadata.gguf, a pipe",
)  # fmt: skip
"""What is found before the weights are read."""


@pytest.fixture(scope="module")
def sound_folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sound")
    path = write_tiny_llama(place / "m.gguf", quantization="Q8_0", tied=False)
    convert_model(path, place / "folder")
    return place / "folder"


@pytest.mark.parametrize("kind", BROKEN)
def test_folders_that_do_not_hold_together(sound_folder, tmp_path, kind):
    shutil.copytree(sound_folder, tmp_path / "folder")
    BROKEN[kind](tmp_path / "folder")
    with pytest.raises((ModelFormatError, ConfigError)) as info:
        load_model(tmp_path / "folder", LoadOptions(weights="quantized"))
    assert "convert" in str(info.value) or str(tmp_path / "folder") in str(info.value)
    if kind in FOUND_BEFORE:
        with pytest.raises((ModelFormatError, ConfigError)):
            requirements(tmp_path / "folder")


@pytest.mark.parametrize("multipliers", [[], [1.0], [1.0, 0.5], [1.0] * 3, [2.0, 0, 0, 0], "1"])
def test_planes_that_do_not_hold_together(tmp_path, multipliers):
    path = write_model(tmp_path / "m.gguf", "IQ2_XXS")
    convert_model(path, tmp_path / "folder", FLOAT32)
    _change(
        "layers",
        lambda old: {path: {**form, "multipliers": multipliers} for path, form in old.items()},
    )(tmp_path / "folder")
    with pytest.raises(ModelFormatError, match="does not hold together"):
        load_model(tmp_path / "folder", LoadOptions(weights="quantized"))


@pytest.mark.parametrize(
    "options", [{"pre_tokenizer": "qwen2"}, {"compute_type": "bfloat16"}, {"q6k": "8bit"}]
)
def test_options_of_gguf_files_are_refused_for_folders(tmp_path, options):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0")
    convert_model(path, tmp_path / "folder")
    with pytest.raises(ConfigError, match="GGUF files"):
        load_model(tmp_path / "folder", LoadOptions(**options))


def test_a_pre_tokenizer_is_kept(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0")
    convert_model(path, tmp_path / "folder", LoadOptions(pre_tokenizer="qwen2"))
    found = load_model(tmp_path / "folder").tokenizer.encode("12345")
    assert found == load_model(path, LoadOptions(pre_tokenizer="qwen2")).tokenizer.encode("12345")
    with pytest.raises(ConfigError, match="nothing"):
        convert_model(path, tmp_path / "other", LoadOptions(pre_tokenizer="nothing"))
    assert not (tmp_path / "other").exists()


def test_what_lies_beside_a_new_folder_is_left_alone(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf")
    (tmp_path / "folder.partial").mkdir()
    (tmp_path / "folder.partial" / "mine").write_text("data")
    convert_model(path, tmp_path / "folder")
    names = {place.name for place in tmp_path.iterdir()}
    assert names == {"m.gguf", "folder", "folder.partial"}
    assert (tmp_path / "folder.partial" / "mine").read_text() == "data"


def test_a_context_that_wants_other_factors_is_refused(tmp_path):
    path = build("phi3-long").write(tmp_path / "m.gguf")
    convert_model(path, tmp_path / "folder", FLOAT32)
    np.testing.assert_array_equal(logits(tmp_path / "folder"), logits(path))
    with pytest.raises(ConfigError, match="converted for longer"):
        load_model(tmp_path / "folder", context=16)


def test_activations_beyond_float16_are_noticed_when_a_small_model_is_converted(tmp_path):
    model = build("llama")
    for layer in range(3):
        model.tensors[f"blk.{layer}.ffn_up.weight"] *= 3e3
        model.tensors[f"blk.{layer}.ffn_gate.weight"] *= 3e3
    for name in model.tensors:
        if name.endswith(("ffn_up.weight", "attn_q.weight")):
            model.quantize(name, "Q8_0")
    convert_model(model.write(tmp_path / "m.gguf"), tmp_path / "folder")
    assert (
        json.loads((tmp_path / "folder" / "akunu.json").read_text())["compute_type"] == "bfloat16"
    )


@pytest.mark.parametrize("name", ["qwen3moe-yarn", "glm4moe-plain", "nemotron-bias", "llama"])
def test_what_mlx_lm_is_said_to_read_it_reads_rightly(tmp_path, name):
    check_with_mlx_lm(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_of_every_architecture_what_mlx_lm_is_said_to_read(tmp_path, name):
    check_with_mlx_lm(tmp_path, name)


def check_with_mlx_lm(folder, name):
    path = build(name).write(folder / "m.gguf")
    if not convert_model(path, folder / "folder", FLOAT32):
        return
    model, _ = mlx_load(str(folder / "folder"))
    found = model(mx.array([IDS]), cache=make_prompt_cache(model))[0].astype(mx.float32)
    expected = logits(path, weights="dense")
    assert np.abs(np.array(found) - expected).max() / expected.std() < 1e-3
