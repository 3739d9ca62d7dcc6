"""Mamba and Mamba 2, and Jamba, which has Mamba's mixers and attention in turn."""

from collections.abc import Callable, Mapping
from typing import Any

from akunu_py.gguf.architectures import decoder, experts
from akunu_py.gguf.architectures.recurrent import (
    MAX_KERNEL,
    NO_LIMIT,
    Projections,
    depthwise,
    log_of_decay,
    mamba2_rules,
    read_hybrid,
    read_state_space,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo


def read_mamba(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Mamba or Falcon Mamba model."""
    kernel, inner, state, rank = _read_mixer(keys)
    arguments = {
        "model_type": "mamba",
        "intermediate_size": inner,
        "state_size": state,
        "conv_kernel": kernel,
        "time_step_rank": rank,
        # Falcon Mamba norms time steps, B and C, without weights.
        "use_bcdt_rms": keys.flag("ssm.dt_b_c_rms", False),
        "mixer_rms_eps": decoder.rms_eps(keys),
    }
    rules = _mamba_rules("backbone.layers.{}.mixer")
    return _plan(keys, tensors, "variants.mamba", arguments, rules)


def read_mamba2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Mamba 2 model."""
    mixer = read_state_space(keys)
    arguments = {
        "model_type": "mamba2",
        "intermediate_size": mixer.inner_size,
        "num_heads": mixer.heads,
        "head_dim": mixer.head_dim,
        "state_size": mixer.state_size,
        "conv_kernel": mixer.kernel,
        "n_groups": mixer.groups,
        "time_step_limit": NO_LIMIT,
        "time_step_rank": mixer.heads,
        "layer_norm_epsilon": decoder.rms_eps(keys),
    }
    rules = mamba2_rules("backbone.layers.{}.mixer")
    return _plan(keys, tensors, "variants.mamba2", arguments, rules)


def read_jamba(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Jamba model, dense or with experts in some of its layers.

    Positions are not rotated.
    """
    sizes = read_hybrid(keys, tensors)
    if sizes.head_dim * sizes.num_heads != sizes.hidden_size:
        wanted = f"heads of {sizes.hidden_size // sizes.num_heads}"
        raise keys.unsupported("attention.key_length", sizes.head_dim, wanted)
    if all(sizes.attends):
        raise keys.unsupported("attention.head_count_kv", sizes.num_kv_heads, "Mamba's layers")
    kernel, inner, state, rank = _read_mixer(keys)
    if inner % sizes.hidden_size:
        raise keys.error("ssm.inner_size", inner, f"a multiple of the width {sizes.hidden_size}")
    mixture = experts.read_mixture(keys, "feed_forward_length")
    routed = frozenset(
        layer for layer in range(sizes.num_layers) if f"blk.{layer}.ffn_gate_inp.weight" in tensors
    )
    layer = "model.layers.{}."
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        module("output_norm", "model.final_layernorm"),
        module("blk.{}.attn_norm", layer + "input_layernorm"),
        module("blk.{}.ffn_norm", layer + "pre_ff_layernorm"),
        *Projections.of(sizes).rules(layer + "self_attn", tensors, sizes.attention_layers),
        module("blk.{}.attn_output", layer + "self_attn.o_proj", layers=sizes.attending),
        *_mamba_rules(layer + "mamba", layers=sizes.recurrent),
        *(
            module(f"blk.{{}}.ssm_{a}_norm", f"{layer}mamba.{a}_layernorm", layers=sizes.recurrent)
            for a in ("dt", "b", "c")
        ),
        *_jamba_feed_forward(layer + "feed_forward", mixture, tensors, routed),
    ]
    if not sizes.tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return ModelPlan(
        architecture=keys.architecture,
        model="variants.jamba",
        arguments={
            "model_type": "jamba",
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": sizes.num_layers,
            "intermediate_size": mixture.feed_forward_size,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "layers_block_type": ["attention" if attends else "mamba" for attends in sizes.attends],
            # Both are asked for, and neither is used beside the lists of layers.
            "attn_layer_offset": 0,
            "attn_layer_period": 1,
            "expert_layer_offset": 0,
            "expert_layer_period": 1,
            "expert_layers": tuple(sorted(routed)),
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "mamba_d_conv": kernel,
            "mamba_d_state": state,
            "mamba_expand": inner // sizes.hidden_size,
            "mamba_dt_rank": rank,
            "rms_norm_eps": decoder.rms_eps(keys),
            "vocab_size": sizes.vocabulary_size,
            "max_position_embeddings": sizes.context_length,
            "tie_word_embeddings": sizes.tied,
        },
        placements=place(rules, tensors, sizes.num_layers),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


def _jamba_feed_forward(
    target: str,
    mixture: experts.Mixture,
    tensors: Mapping[str, TensorInfo],
    routed: frozenset[int],
) -> list[Rule]:
    def is_dense(layer: int) -> bool:
        return layer not in routed

    names = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
    is_routed = routed.__contains__
    return [
        *(module(f"blk.{{}}.{a}", f"{target}.{b}", layers=is_dense) for a, b in names.items()),
        module("blk.{}.ffn_gate_inp", f"{target}.router", layers=is_routed),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=is_routed),
    ]


def _read_mixer(keys: Keys) -> tuple[int, int, int, int]:
    """Return the taps, channels, state size and time step rank of Mamba's mixers."""
    return (
        keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
        keys.integer("ssm.inner_size"),
        keys.integer("ssm.state_size", high=1 << 16),
        keys.integer("ssm.time_step_rank", high=1 << 16),
    )


def _mamba_rules(target: str, *, layers: Callable[[int], bool] | None = None) -> list[Rule]:
    """Return the rules for Mamba's first mixer, whose decay differs from channel to channel."""
    names = {"ssm_in": "in_proj", "ssm_x": "x_proj", "ssm_dt": "dt_proj", "ssm_out": "out_proj"}
    kernel = "blk.{}.ssm_conv1d.weight"
    return [
        *(module(f"blk.{{}}.{a}", f"{target}.{b}", layers=layers) for a, b in names.items()),
        parameter(kernel, f"{target}.conv1d.weight", convert=depthwise, layers=layers),
        parameter("blk.{}.ssm_conv1d.bias", f"{target}.conv1d.bias", layers=layers),
        parameter("blk.{}.ssm_d", f"{target}.D", layers=layers),
        parameter(
            "blk.{}.ssm_a",
            f"{target}.A_log",
            convert=lambda rates: log_of_decay(rates).reshape(rates.shape),
            layers=layers,
            float32=True,
        ),
    ]


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    model: str,
    arguments: dict[str, Any],
    mixer_rules: list[Rule],
) -> ModelPlan:
    width = keys.integer("embedding_length")
    layers = decoder.read_num_layers(keys, tensors)
    context = keys.integer("context_length", high=decoder.MAX_CONTEXT)
    vocabulary = decoder.read_vocabulary_size(keys, tensors, width)
    tied = f"{decoder.OUTPUT}.weight" not in tensors
    rules = [
        module(decoder.EMBEDDING, "backbone.embeddings"),
        module("output_norm", "backbone.norm_f"),
        module("blk.{}.attn_norm", "backbone.layers.{}.norm"),
        *mixer_rules,
    ]
    if not tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return ModelPlan(
        architecture=keys.architecture,
        model=model,
        arguments={
            **arguments,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "use_bias": False,
            "use_conv_bias": True,
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "tie_word_embeddings": tied,
        },
        placements=place(rules, tensors, layers),
        num_layers=layers,
        context_length=context,
        vocabulary_size=vocabulary,
    )


READERS = {"jamba": read_jamba, "mamba": read_mamba, "mamba2": read_mamba2}
