"""What the readers of architectures turn down, each naming the key or tensor."""

import re

import numpy as np
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

GROUPS = {"expert_group_count": 4, "expert_group_used_count": 2}
MANY = 1 << 16

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
    ("kimi-linear", GROUPS, "expert_group_count"),
    ("nemotron_h_moe", {"expert_used_count": 1}, "expert_used_count"),
    ("nemotron_h_moe", GROUPS, "expert_group_count"),
    # Makers of embeddings.
    ("llama", {"attention.causal": False}, r"llama\.attention\.causal"),
    ("qwen2", {"attention.causal": False}, r"qwen2\.attention\.causal"),
    ("gemma3-pattern", {"attention.sliding_window_pattern": [True, False, False, True]},
     "does not repeat"),
    ("gemma3-pattern", {"attention.sliding_window_pattern": [True] * 4}, "does not repeat"),
    ("gemma3", {"rope.scaling.type": "yarn"}, r"rope\.scaling\.type is 'yarn'"),
    ("gemma4", {"attention.head_count_kv": [2, 1, 1, 2, 1]}, "one number for layers of a kind"),
    ("gemma4", {"rope.dimension_count_swa": 16}, "dimension_count_swa"),
    ("gemma4-embeddings", {"feed_forward_length": [96, 96, 192, 192, 192]}, "feed_forward_length"),
    ("gemma4-embeddings", {"attention.head_count_kv": [1, 1, 2, 1, 2]}, "head_count_kv"),
    ("phi3-long", {"rope.scaling.factor": 4.0}, r"rope\.scaling\.type"),
    ("deepseek2", {"expert_gating_func": 4}, "deepseek2.*use another"),
    ("deepseek2", {"rope.scaling.attn_factor": 1.5}, "deepseek2.*use another"),
    ("deepseek2", {"attention.temperature_scale": 0.1}, "deepseek2.*use another"),
    ("deepseek2-dense", {"rope.scaling.factor": 4.0}, "deepseek2.*use another"),
    ("glm4moe", {"expert_gating_func": 1}, "glm4moe.*use another"),
    ("glm4moe", {"expert_group_count": 2, "expert_group_used_count": 1, "expert_used_count": 1},
     "glm4moe.*use another"),
    ("gpt-oss", {"rope.freq_base_swa": 5000.0}, "gpt-oss.*use another"),
    ("granite", {"rope.scaling.finetuned": False}, "granite.*use another"),
    ("granitemoe-shared", {"rope.scaling.factor": 4.0}, "granitemoe.*use another"),
    ("llama4", {"expert_used_count": 2}, "llama4.*use another"),
    ("llama4", {"attention.sliding_window": 0}, "llama4.*use another"),
    ("minimax-m2", {"expert_gating_func": 1}, "minimax-m2.*use another"),
    ("hunyuan-moe", {"expert_shared_count": 2}, "hunyuan-moe.*use another"),
    ("afmoe", {"attention.sliding_window_pattern": 5}, "afmoe.*use another"),
    ("exaone-moe", GROUPS, "expert_group_count"),
    ("exaone-moe", {"attention.sliding_window_pattern": 0}, "makes all layers equal"),
    ("exaone-moe", {"rope.freq_base_swa": 5000.0}, "freq_base_swa"),
    ("mistral4", {"attention.temperature_length": 32}, "temperature_length"),
    ("mistral4", {"expert_gating_func": 2}, "expert_gating_func"),
    ("bailingmoe3", {"attention.head_count_kv": [0, 0, 0, 1, 1, 0, 1, 1]}, "head_count_kv"),
    ("bailingmoe3", {"attention.head_count_kv": [0] * 8}, "head_count_kv"),
    ("bailingmoe3", {"kda.safe_gate": False}, "safe_gate"),
    ("bailingmoe3", {"swiglu_clamp_exp": [0.0, 7.0] * 4}, "swiglu_clamp_exp"),
    ("bailingmoe3", {"expert_weights_norm": False}, "expert_weights_norm"),
    ("bailingmoe3", {"rope.dimension_sections": [2, 1, 1, 0]}, "dimension_sections"),
    ("minimax-m3", {"attention.indexer.head_count": 4}, "indexer.head_count"),
    ("minimax-m3", {"expert_weights_norm": False}, "expert_weights_norm"),
    ("minimax-m3", GROUPS, "expert_group_count"),
    ("kimi-k3", GROUPS, "expert_group_count"),
    ("kimi-k3", {"expert_used_count": 1}, "expert_used_count"),
    ("kimi-k3", {"attention.head_count_kv": [1] * 5}, "head_count_kv"),
    ("laguna", {"expert_weights_norm": False}, "expert_weights_norm"),
    ("laguna", {"router_logit_softcapping": 5.0}, "router_logit_softcapping"),
    ("step35", {"rope.dimension_count": 16}, "rope.dimension_count"),
    ("step35", {"expert_gating_func": 1}, "expert_gating_func"),
    ("glm-dsa", {"attention.indexer.types": [True, False, True]}, "indexer.types.*layer 1"),
]  # fmt: skip
"""Sound models of forms that no class computes."""

DAMAGED = [
    ("nemotron_h_moe-puzzle", {"expert_used_count": [0, 2, 0, 3, 0]}, "expert_used_count"),
    ("nemotron_h_moe-puzzle", {"expert_used_count": [0, 2, 0, 3, 9]}, "expert_used_count"),
    ("step35", {"swiglu_clamp_exp": [0.5]}, "swiglu_clamp_exp"),
    ("step35", {"swiglu_clamp_shexp": [-1.0] * 6}, "swiglu_clamp_shexp"),
    ("step35", {"attention.head_count_kv": [1, 3, 3, 3, 1, 3]}, "divisor"),
    ("mamba2", {"ssm.inner_size": 127}, "ssm.inner_size"),
    ("mamba2", {"ssm.group_count": 3}, "ssm.group_count"),
    ("mamba2", {"ssm.group_count": 0}, "ssm.group_count"),
    ("mamba2", {"ssm.conv_kernel": 1}, "ssm.conv_kernel"),
    ("lfm2", {"attention.head_count_kv": [0, 3, 0, 3]}, "attention.head_count_kv"),
    ("lfm2", {"attention.head_count_kv": [0, 2]}, "attention.head_count_kv"),
    ("lfm2", {"shortconv.l_cache": 0}, "shortconv.l_cache"),
    ("jamba", {"ssm.inner_size": 100}, "ssm.inner_size"),
    ("qwen35", {"rope.dimension_count": 7}, "rope.dimension_count"),
    ("gemma4", {"attention.head_count_kv": [3, 3, 1, 3, 1]}, "divisor"),
    ("gemma4", {"attention.shared_kv_layers": 4}, "each kind has keys"),
    ("gemma3n", {"activation_sparsity_scale": [1.6] * 3}, "activation_sparsity_scale"),
    ("gemma3n", {"activation_sparsity_scale": [float("nan")] * 22}, "activation_sparsity_scale"),
    ("gemma3n", {"activation_sparsity_scale": [1] * 22}, "activation_sparsity_scale"),
    ("deepseek2", {"rope.dimension_count": 48}, "download|conver"),
    ("deepseek2", {"expert_used_count": 9}, "download|conver"),
    ("deepseek2", {"expert_group_count": 3}, "download|conver"),
    ("deepseek2", {"expert_group_used_count": 1}, "download|conver"),
    ("deepseek2", {"leading_dense_block_count": 5}, "download|conver"),
    ("deepseek2", {"expert_weights_scale": -1.0}, "download|conver"),
    ("deepseek2", {"rope.scaling.yarn_log_multiplier": 2e9}, "download|conver"),
    # Nothing of the size that the metadata announces is made.
    *(("deepseek2", {"attention.head_count": MANY, f"attention.{key}": MANY},
       r"attention\.(key|value)_length.*download")
      for key in ("key_length", "key_length_mla", "value_length_mla")),
    ("deepseek2-v2", {"expert_feed_forward_length": 1 << 24},
     r"ffn_gate_up_exps.*\(8, 64, 64\).*download"),
]  # fmt: skip
"""Metadata that contradicts itself or the tensors."""

SHAPES = [
    ("mamba2", {"ssm.conv_kernel": 3}, "ssm_conv1d"),
    ("mamba2", {"ssm.state_size": 32}, "ssm_in|ssm_conv1d"),
    ("mamba", {"ssm.time_step_rank": 4}, "has the shape"),
    ("qwen3next", {"ssm.group_count": 1}, "has the shape"),
    ("qwen35", {"ssm.time_step_rank": 4}, "ssm"),
]
"""Metadata that other tensors would go with, which is found as they are read."""


def without(name):
    return lambda tensors: tensors.pop(name)


def negated(name):
    return lambda tensors: tensors.update({name: -tensors[name]})


def separate_experts(tensors):
    """Store each expert's matrices as tensors of their own, as Mixtral's first files had them."""
    for name in [name for name in tensors if name.endswith("_exps.weight")]:
        for expert, matrix in enumerate(tensors.pop(name)):
            tensors[name.replace("_exps.weight", f".{expert}.weight")] = matrix


def without_an_expert(tensors):
    separate_experts(tensors)
    del tensors["blk.2.ffn_up.1.weight"]


TENSORS = [
    ("gemma4", without("rope_freqs.weight"), r"rope_freqs\.weight"),
    ("phi3-long", without("rope_factors_short.weight"), "without its counterpart"),
    ("llama-experts", without_an_expert, r"blk\.2\.ffn_up\.1\.weight"),
    # Rates that do not decay.
    ("mamba2", negated("blk.1.ssm_a"), "ssm_a"),
]


def read(path):
    with GGUFFile.open(path) as file:
        return read_plan(file.metadata, file.tensors)


def built(name, keys):
    model = build(name)
    for key, value in keys.items():
        model.key(key, value)
    return model


def refused(model, folder, error, words, call=read):
    path = model.write(folder / "model.gguf")
    with pytest.raises(error, match=words) as caught:
        call(path)
    assert re.search("; | use ", str(caught.value)), "says nothing of what to do"


@pytest.mark.parametrize(("name", "keys", "words"), UNSUPPORTED)
def test_sound_models_of_other_forms(tmp_path, name, keys, words):
    refused(built(name, keys), tmp_path, UnsupportedArchitectureError, words)


@pytest.mark.parametrize(("name", "keys", "words"), DAMAGED)
def test_metadata_that_contradicts_itself(tmp_path, name, keys, words):
    refused(built(name, keys), tmp_path, ModelFormatError, words)


@pytest.mark.parametrize(("name", "keys", "words"), SHAPES)
def test_metadata_that_contradicts_the_tensors(tmp_path, name, keys, words):
    refused(built(name, keys), tmp_path, ModelFormatError, words, Engine.load)


@pytest.mark.parametrize(("name", "change", "words"), TENSORS)
def test_tensors_that_are_missing_or_wrong(tmp_path, name, change, words):
    model = build(name)
    change(model.tensors)
    refused(model, tmp_path, ModelFormatError, words, Engine.load)


def test_a_rate_of_zero_is_kept(tmp_path):
    """exp(A_log) may be too small for float32; its state then never fades."""
    model = build("mamba2")
    model.tensor("blk.1.ssm_a", 0 * model.tensors["blk.1.ssm_a"])
    with Engine.load(model.write(tmp_path / "model.gguf"), compute_type="float32") as engine:
        assert np.isfinite(engine.logits([1, 2, 3, 4])).all()


def test_what_says_nothing_new_is_taken(tmp_path):
    assert read(built("llama", {"attention.causal": True}).write(tmp_path / "llama.gguf"))
    # A block that predicts further tokens, in a family that was published without.
    further = built("llama", {"nextn_predict_layers": 1})
    count = further.metadata["llama.block_count"]
    further.linear(f"blk.{count}.nextn.eh_proj", 64, 128)
    assert read(further.write(tmp_path / "further.gguf")).num_layers == count
    without = {"attention.sliding_window": 0, "attention.sliding_window_pattern": [True] * 6}
    laguna = built("laguna", without).write(tmp_path / "laguna.gguf")
    assert set(read(laguna).arguments["layer_types"]) == {"full_attention"}
    groups = built("deepseek2", {"expert_group_used_count": 4}).write(tmp_path / "model.gguf")
    # Groups of which all are chosen are none.
    assert read(groups).arguments["n_group"] == 1
