"""Mamba, also Falcon Mamba, and Mamba 2."""

from collections.abc import Mapping
from typing import Any

from akunu_py.gguf.names import Rule, modules
from akunu_py.gguf.parts import layers, recurrent
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_LAYER = "backbone.layers.{}"
_MIXER = f"{_LAYER}.mixer"


def mamba(model: Decoder) -> ModelPlan:
    """Mamba for `variants.mamba`."""
    mixer = recurrent.read_channels(model.keys)
    arguments = {
        "intermediate_size": mixer.inner_size,
        "state_size": mixer.state_size,
        "conv_kernel": mixer.kernel,
        "time_step_rank": mixer.rank,
        # Falcon Mamba norms time steps, B and C, without weights.
        "use_bcdt_rms": model.keys.flag("ssm.dt_b_c_rms", False),
        "mixer_rms_eps": model.rms_eps,
    }
    return _plan(model, "variants.mamba", recurrent.mamba_rules(_MIXER), arguments)


def mamba2(model: Decoder) -> ModelPlan:
    """Mamba 2 for `variants.mamba2`."""
    mixer = recurrent.read_state_space(model.keys)
    arguments = {
        "intermediate_size": mixer.inner_size,
        "num_heads": mixer.heads,
        "head_dim": mixer.head_dim,
        "state_size": mixer.state_size,
        "conv_kernel": mixer.kernel,
        "n_groups": mixer.groups,
        "time_step_limit": recurrent.NO_LIMIT,
        "time_step_rank": mixer.heads,
        "layer_norm_epsilon": model.rms_eps,
    }
    return _plan(model, "variants.mamba2", recurrent.mamba2_rules(_MIXER), arguments)


def _plan(model: Decoder, name: str, mixer: list[Rule], arguments: Mapping[str, Any]) -> ModelPlan:
    return model.plan(
        name,
        [
            *layers.frame(model, "backbone.embeddings", "backbone.norm_f"),
            *modules(_LAYER, {"attn_norm": "norm"}),
            *mixer,
        ],
        {
            **arguments,
            "hidden_size": model.hidden_size,
            "num_hidden_layers": model.num_layers,
            "use_bias": False,
            "use_conv_bias": True,
            "vocab_size": model.vocabulary_size,
            "max_position_embeddings": model.context_length,
            "tie_word_embeddings": model.tied,
        },
        # Mamba has no heads.
        shared_arguments=False,
    )
