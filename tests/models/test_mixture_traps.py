"""What the recorded comparisons of mixtures of experts do not show."""

import mlx.core as mx
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.system.errors import AkunuError, ModelFormatError, UnsupportedArchitectureError


def plan_of(tiny, tmp_path):
    with GGUFFile.open(tiny.write(tmp_path / "model.gguf")) as file:
        return read_plan(file.metadata, file.tensors)


def test_a_fused_stack_of_another_size_is_refused(tmp_path):
    tiny = build("deepseek2-v2")
    # Nothing of the size that the metadata announces is made.
    tiny.key("expert_feed_forward_length", 1 << 24)
    with pytest.raises(ModelFormatError, match=r"ffn_gate_up_exps.*\(8, 64, 64\).*download"):
        plan_of(tiny, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.dimension_count", 48),
        ("expert_used_count", 9),
        ("expert_group_count", 3),
        ("expert_group_used_count", 1),
        ("leading_dense_block_count", 5),
        ("expert_weights_scale", -1.0),
        ("rope.scaling.yarn_log_multiplier", 2e9),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path, key, value):
    tiny = build("deepseek2")
    tiny.key(key, value)
    with pytest.raises(AkunuError, match=r"download|conver"):
        plan_of(tiny, tmp_path)


@pytest.mark.parametrize("key", ["key_length", "key_length_mla", "value_length_mla"])
def test_sizes_are_refused_before_anything_is_made_of_them(tmp_path, key):
    tiny = build("deepseek2")
    tiny.key("attention.head_count", 1 << 16)
    tiny.key(f"attention.{key}", 1 << 16)
    with pytest.raises(ModelFormatError, match=r"attention\.(key|value)_length.*download"):
        plan_of(tiny, tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("deepseek2", "expert_gating_func", 4),
        ("deepseek2", "rope.scaling.attn_factor", 1.5),
        ("deepseek2", "attention.temperature_scale", 0.1),
        ("deepseek2-dense", "rope.scaling.factor", 4.0),
        ("glm4moe", "expert_gating_func", 1),
        ("glm4moe", "expert_group_count", 2),
        ("gpt-oss", "rope.freq_base_swa", 5000.0),
        ("granite", "rope.scaling.finetuned", False),
        ("granitemoe-shared", "rope.scaling.factor", 4.0),
        ("llama4", "expert_used_count", 2),
        ("llama4", "attention.sliding_window", 0),
        ("minimax-m2", "expert_gating_func", 1),
        ("hunyuan-moe", "expert_shared_count", 2),
        ("afmoe", "attention.sliding_window_pattern", 5),
    ],
)
def test_what_no_class_computes_is_named(tmp_path, name, key, value):
    tiny = build(name)
    tiny.key(key, value)
    if key == "expert_group_count":
        tiny.key("expert_group_used_count", 1)
        tiny.key("expert_used_count", 1)
    with pytest.raises(UnsupportedArchitectureError, match=rf"{name.split('-')[0]}.*use another"):
        plan_of(tiny, tmp_path)


def test_groups_of_which_all_are_chosen_are_none(tmp_path):
    tiny = build("deepseek2")
    tiny.key("expert_group_used_count", 4)
    assert plan_of(tiny, tmp_path).arguments["n_group"] == 1


def test_one_expert_a_token(tmp_path):
    """Found by scripts/fuzz_gguf.py: mlx-lm's compiled sum over one expert ended the process."""
    tiny = build("bailingmoe")
    tiny.key("expert_used_count", 1)
    path = tiny.write(tmp_path / "model.gguf")
    with Engine.load(path, weights="dense", compute_type="float32") as engine:
        # With one expert its weight is 1, so each row's mixture is that expert alone.
        mixture = engine._loaded.model.model.layers[-1].mlp
        for size in (1, 3, 8):
            x = mx.random.normal((1, size, 64))
            chosen, weights = mixture.gate(x)
            assert mx.allclose(weights, mx.ones_like(weights))
            expected = mixture.switch_mlp(x, chosen)[..., 0, :] + mixture.shared_experts(x)
            assert mx.allclose(mixture(x), expected, atol=1e-5)
        assert engine.logits([1, 2, 3, 4]).shape[0] == 4
