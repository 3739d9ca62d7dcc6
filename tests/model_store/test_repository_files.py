"""Which files of a repository are a model: by names that quantizers give."""

import pytest

from akunu_py.model_store.repository_files import (
    folder_model,
    gguf_models,
    models_of,
    part_names,
    quantization_of,
    with_quantization,
)

MLX = {
    "config.json": 1, "tokenizer.json": 2, "model-00001-of-00002.safetensors": 10,
    "model-00002-of-00002.safetensors": 20, "model.safetensors.index.json": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q8_0.gguf", "q8_0"),
        ("llama.IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("gpt-oss-20b-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("m-UD-Q2_K_XL.gguf", "UD-Q2_K_XL"),
        ("BF16/m-BF16-00001-of-00003.gguf", "BF16"),
        ("Q6_K/m-00001-of-00003.gguf", "Q6_K"),
        ("Falcon-BitNet-TQ2_0.gguf", "TQ2_0"),
        ("bonsai-Q1_0.gguf", "Q1_0"),
        ("m-fp16.gguf", "fp16"),
        ("SEQ4-model.gguf", ""),
        ("model.gguf", ""),
    ],
)
def test_the_quantization_in_a_name(name, quantization):
    assert quantization_of(name) == quantization


def test_of_an_mlx_model_only_what_is_needed():
    other = {
        "pytorch_model.bin": 9, "model.pt": 9, "modeling_x.py": 9, "consolidated.safetensors": 9,
        "onnx/model.onnx": 9, "original/model.safetensors": 9, "README.md": 9, "x.pkl": 9,
        "metadata.gguf.bak": 9,
    }  # fmt: skip
    (model,) = models_of(MLX | other)
    assert set(model.files) == set(MLX)
    assert (model.main, model.num_bytes, model.missing) == (None, 34, ())
    assert folder_model({"config.json": 1}) is None
    assert folder_model({"model.safetensors": 1}) is None
    found = folder_model({name: size for name, size in MLX.items() if "00001" not in name})
    assert found is not None
    assert found.missing == ("model-00001-of-00002.safetensors",)


def test_metadata_of_a_converted_model_is_no_model_of_its_own():
    converted = MLX | {"akunu.json": 1, "akunu.safetensors": 1, "metadata.gguf": 1}
    (model,) = models_of(converted)
    assert model.main is None
    assert set(model.files) == set(converted)
    stray = folder_model(MLX | {"akunu.safetensors": 1})
    assert stray is not None
    assert "akunu.safetensors" not in stray.files


def test_quantizations_match_in_any_case_and_exact_ones_first():
    models = gguf_models({"a-Q4_K_M.gguf": 1, "a-UD-Q4_K_M.gguf": 2, "a-UD-Q2_K.gguf": 3})
    assert [model.main for model in with_quantization(models, "q4_k_m")] == ["a-Q4_K_M.gguf"]
    assert [model.main for model in with_quantization(models, "q2_k")] == ["a-UD-Q2_K.gguf"]
    assert with_quantization(models, "Q4_K") == []


def test_part_names_of_nonsense_are_the_name():
    for name in ("m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-99999-of-99999.gguf", "m"):
        assert part_names(name) == (name,)
