"""What of the Gemma models no golden file shows."""

import mlx.core as mx
import numpy as np
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.models.variants.feed_forward import Gemma, GemmaArgs
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError


def test_the_activation_is_the_approximation_by_tanh():
    """Where it is furthest from the exact one, which llama.cpp's half precision hides."""
    arguments = GemmaArgs(
        model_type="gemma", hidden_size=1, num_hidden_layers=1, intermediate_size=1,
        num_attention_heads=1, head_dim=2, rms_norm_eps=1e-6, vocab_size=1, num_key_value_heads=1,
    )  # fmt: skip
    part = Gemma(arguments).layers[0].mlp
    part.gate_proj.weight = part.up_proj.weight = part.down_proj.weight = mx.ones((1, 1))
    x = np.linspace(-4, 4, 81)
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) * x
    found = np.array(part(mx.array(x[:, None], mx.float32)))[:, 0]
    assert np.abs(found - expected).max() < 1e-5


def write(tmp_path, name, **keys):
    model = build(name)
    model.keys(**keys)
    return model.write(tmp_path / "model.gguf")


def load(path):
    with Engine.load(path, weights="dense", compute_type="float32"):
        pass


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [([True, False, False, True], "does not repeat"), ([True] * 4, "does not repeat")],
)
def test_windowed_layers_out_of_turn_are_refused(tmp_path, pattern, wanted):
    path = write(tmp_path, "gemma3-pattern", attention__sliding_window_pattern=pattern)
    with pytest.raises(UnsupportedArchitectureError, match=wanted):
        load(path)


def test_yarn_beside_windowed_layers_is_refused(tmp_path):
    path = write(tmp_path, "gemma3", rope__scaling__type="yarn")
    with pytest.raises(UnsupportedArchitectureError, match=r"rope\.scaling\.type is 'yarn'"):
        load(path)


def test_layers_without_scales_have_ones(tmp_path):
    """Files of early conversions lack them."""
    logits = []
    for ones in (True, False):
        model = build("gemma4-moe")
        for name, values in list(model.tensors.items()):
            if name.endswith(("layer_output_scale.weight", "ffn_down_exps.scale")):
                if ones:
                    model.tensor(name, np.ones_like(values))
                else:
                    del model.tensors[name]
        path = model.write(tmp_path / f"{ones}.gguf")
        with Engine.load(path, weights="dense", compute_type="float32") as engine:
            logits.append(engine.logits(list(range(12))))
    assert np.array_equal(*logits)


def test_stacks_of_gate_and_up_apart_compute_the_same(tmp_path):
    logits = []
    for fused in (True, False):
        model = build("gemma4-moe")
        for name, values in list(model.tensors.items()):
            if not fused and name.endswith("ffn_gate_up_exps.weight"):
                del model.tensors[name]
                half = values.shape[1] // 2
                model.tensor(name.replace("gate_up", "gate"), values[:, :half])
                model.tensor(name.replace("gate_up", "up"), values[:, half:])
        path = model.write(tmp_path / f"{fused}.gguf")
        with Engine.load(path, weights="dense", compute_type="float32") as engine:
            logits.append(engine.logits(list(range(12))))
    assert np.array_equal(*logits)


@pytest.mark.parametrize(
    ("name", "keys", "error", "wanted"),
    [
        ("gemma4", {"attention__head_count_kv": [2, 1, 1, 2, 1]}, UnsupportedArchitectureError,
         "one number for layers of a kind"),
        ("gemma4", {"attention__head_count_kv": [3, 3, 1, 3, 1]}, ModelFormatError, "divisor"),
        ("gemma4", {"attention__shared_kv_layers": 4}, ModelFormatError, "each kind has keys"),
        ("gemma4", {"rope__dimension_count_swa": 16}, UnsupportedArchitectureError,
         "dimension_count_swa"),
        ("gemma4-embeddings", {"feed_forward_length": [96, 96, 192, 192, 192]},
         UnsupportedArchitectureError, "feed_forward_length"),
        ("gemma4-embeddings", {"attention__head_count_kv": [1, 1, 2, 1, 2]},
         UnsupportedArchitectureError, "head_count_kv"),
    ],
)  # fmt: skip
def test_layers_of_other_kinds_are_refused(tmp_path, name, keys, error, wanted):
    path = write(tmp_path, name, **keys)
    with pytest.raises(error, match=wanted):
        load(path)


def test_a_file_without_rotary_factors_is_refused(tmp_path):
    model = build("gemma4")
    del model.tensors["rope_freqs.weight"]
    with pytest.raises(ModelFormatError, match=r"rope_freqs\.weight"):
        load(model.write(tmp_path / "model.gguf"))


@pytest.mark.slow
def test_what_early_files_of_3n_do_not_say(tmp_path):
    """Which layers are sparse, use others' keys, see a window: as both released sizes have it."""
    logits = []
    for stated in (True, False):
        model = build("gemma3n")
        if not stated:
            for key in (
                "activation_sparsity_scale",
                "attention.shared_kv_layers",
                "attention.sliding_window_pattern",
            ):
                del model.metadata[f"gemma3n.{key}"]
        path = model.write(tmp_path / f"{stated}.gguf")
        with Engine.load(path, weights="dense", compute_type="float32") as engine:
            logits.append(engine.logits(list(range(12))))
    assert np.abs(logits[0] - logits[1]).max() < 1e-5


@pytest.mark.parametrize("scales", [[1.6] * 3, [float("nan")] * 22, [1] * 22])
def test_scales_of_sparsity_are_checked(tmp_path, scales):
    path = write(tmp_path, "gemma3n", activation_sparsity_scale=scales)
    with pytest.raises(ModelFormatError, match="activation_sparsity_scale"):
        load(path)
