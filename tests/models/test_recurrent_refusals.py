"""What the readers of recurrent models turn down, each naming the key or tensor."""

import re

import numpy as np
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

UNSUPPORTED = [
    ("lfm2", {"attention.head_count_kv": [0, 2, 0, 4]}, "attention.head_count_kv"),
    ("lfm2", {"attention.head_count_kv": [0, 0, 0, 0]}, "attention.head_count_kv"),
    ("lfm2", {"attention.key_length": 32}, "attention.key_length"),
    ("lfm2", {"attention.causal": False}, "attention.causal"),
    ("lfm2", {"attention.sliding_window": 8}, "attention.sliding_window"),
    ("lfm2moe", {"expert_gating_func": 1}, "expert_gating_func"),
    ("falcon-h1", {"attention.value_length": 8}, "attention.value_length"),
    ("granitehybrid", {"expert_shared_feed_forward_length": 0}, "expert_shared_feed_forward"),
    ("granitehybrid", {"rope.scaling.type": "yarn"}, "rope.scaling.type"),
    ("granitehybrid", {"attention.key_length": 8}, "attention.key_length"),
    ("qwen3next", {"attention.recurrent_layers": [True, False, False, True]}, "recurrent_layers"),
    ("qwen3next", {"attention.recurrent_layers": [True] * 4}, "full_attention_interval"),
    ("qwen35", {"full_attention_interval": 9}, "full_attention_interval"),
    ("qwen35", {"attention.value_length": 16}, "attention.value_length"),
    ("nemotron_h", {"feed_forward_length": [0, 96, 0, 0, 64, 0, 0]}, "feed_forward_length"),
    ("nemotron_h", {"feed_forward_length": [9] * 7}, "feed_forward_length"),
    ("nemotron_h", {"attention.value_length": 16}, "attention.value_length"),
    ("jamba", {"attention.head_count_kv": [2, 2, 2, 2]}, "attention.head_count_kv"),
    ("jamba", {"attention.key_length": 8}, "attention.key_length"),
    ("kimi-linear", {"expert_used_count": 1}, "expert_used_count"),
    ("kimi-linear", {"expert_gating_func": 4}, "expert_gating_func"),
    ("kimi-linear", {"attention.head_count_kv": [1, 1, 1, 1]}, "attention.head_count_kv"),
    (
        "kimi-linear",
        {"expert_group_count": 4, "expert_group_used_count": 2},
        "expert_group_count",
    ),
    ("nemotron_h_moe", {"expert_used_count": 1}, "expert_used_count"),
    (
        "nemotron_h_moe",
        {"expert_group_count": 4, "expert_group_used_count": 2},
        "expert_group_count",
    ),
]
DAMAGED = [
    ("nemotron_h_moe-puzzle", {"expert_used_count": [0, 2, 0, 3, 0]}, "expert_used_count"),
    ("nemotron_h_moe-puzzle", {"expert_used_count": [0, 2, 0, 3, 9]}, "expert_used_count"),
    ("mamba2", {"ssm.inner_size": 127}, "ssm.inner_size"),
    ("mamba2", {"ssm.group_count": 3}, "ssm.group_count"),
    ("mamba2", {"ssm.group_count": 0}, "ssm.group_count"),
    ("mamba2", {"ssm.conv_kernel": 1}, "ssm.conv_kernel"),
    ("mamba2", {"ssm.conv_kernel": 3}, "ssm_conv1d"),
    ("mamba2", {"ssm.state_size": 32}, "ssm_in|ssm_conv1d"),
    ("lfm2", {"attention.head_count_kv": [0, 3, 0, 3]}, "attention.head_count_kv"),
    ("lfm2", {"attention.head_count_kv": [0, 2]}, "attention.head_count_kv"),
    ("lfm2", {"shortconv.l_cache": 0}, "shortconv.l_cache"),
    ("mamba", {"ssm.time_step_rank": 4}, "has the shape"),
    ("jamba", {"ssm.inner_size": 100}, "ssm.inner_size"),
    ("qwen35", {"ssm.time_step_rank": 4}, "ssm"),
    ("qwen35", {"rope.dimension_count": 7}, "rope.dimension_count"),
    ("qwen3next", {"ssm.group_count": 1}, "has the shape"),
]


def refused(path, error, named):
    with pytest.raises(error, match=named) as caught:
        Engine.load(path)
    assert re.search("; | use ", str(caught.value)), "says nothing of what to do"


@pytest.mark.parametrize(("name", "changes", "named"), UNSUPPORTED)
def test_sound_models_of_other_forms(tmp_path, name, changes, named):
    model = build(name)
    for key, value in changes.items():
        model.key(key, value)
    refused(model.write(tmp_path / "model.gguf"), UnsupportedArchitectureError, named)


@pytest.mark.parametrize(("name", "changes", "named"), DAMAGED)
def test_metadata_that_contradicts_itself_or_the_tensors(tmp_path, name, changes, named):
    model = build(name)
    for key, value in changes.items():
        model.key(key, value)
    refused(model.write(tmp_path / "model.gguf"), ModelFormatError, named)


def test_rates_that_do_not_decay(tmp_path):
    model = build("mamba2")
    model.tensor("blk.1.ssm_a", -model.tensors["blk.1.ssm_a"])
    refused(model.write(tmp_path / "model.gguf"), ModelFormatError, "ssm_a")


def test_a_rate_of_zero_is_kept(tmp_path):
    """exp(A_log) may be too small for float32; its state then never fades."""
    model = build("mamba2")
    model.tensor("blk.1.ssm_a", 0 * model.tensors["blk.1.ssm_a"])
    with Engine.load(model.write(tmp_path / "model.gguf"), compute_type="float32") as engine:
        assert np.isfinite(engine.logits([1, 2, 3, 4])).all()
