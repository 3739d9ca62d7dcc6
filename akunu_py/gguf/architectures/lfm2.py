"""LFM 2: short convolutions and attention in turn, dense or with experts."""

from collections.abc import Mapping
from typing import Any

from akunu_py.gguf.architectures import decoder, experts
from akunu_py.gguf.architectures.recurrent import (
    MAX_KERNEL,
    Hybrid,
    Projections,
    depthwise,
    read_hybrid,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base

_FEED_FORWARD = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}


def read_lfm2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense LFM 2 model for `mlx_lm.models.lfm2`."""
    sizes = read_hybrid(keys, tensors)
    width = keys.integer("feed_forward_length")
    arguments = {
        "model_type": "lfm2",
        # The file's width is the final one, which the class would derive from another.
        "block_dim": sizes.hidden_size,
        "block_ff_dim": width,
        "block_auto_adjust_ff_dim": False,
        "block_multiple_of": 1,
        "block_ffn_dim_multiplier": 1.0,
    }
    rules = [
        module(f"blk.{{}}.{source}", f"model.layers.{{}}.feed_forward.{target}")
        for source, target in _FEED_FORWARD.items()
    ]
    return _plan(keys, tensors, sizes, arguments, rules)


def read_lfm2_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of an LFM 2 model with experts for `mlx_lm.models.lfm2_moe`."""
    sizes = read_hybrid(keys, tensors)
    mixture = experts.read_mixture(keys)
    gating = experts.read_gating(keys, experts.Gating.SIGMOID)
    if gating is not experts.Gating.SIGMOID:
        raise keys.unsupported("expert_gating_func", int(gating), "experts weighted by a sigmoid")
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=sizes.num_layers)

    def is_dense(layer: int) -> bool:
        return layer < dense

    def is_mixture(layer: int) -> bool:
        return layer >= dense

    target = "model.layers.{}.feed_forward"
    names = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
    rules = [
        *(module(f"blk.{{}}.{a}", f"{target}.{b}", layers=is_dense) for a, b in names.items()),
        # In float32, as llama.cpp has both: a choice turns on small differences.
        parameter(
            "blk.{}.ffn_gate_inp.weight", f"{target}.gate.weight", layers=is_mixture, float32=True
        ),
        parameter(
            "blk.{}.exp_probs_b.bias", f"{target}.expert_bias", layers=is_mixture, float32=True
        ),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=is_mixture),
    ]
    arguments = {
        "model_type": "lfm2_moe",
        "intermediate_size": keys.integer("feed_forward_length"),
        "moe_intermediate_size": mixture.feed_forward_size,
        "num_experts": mixture.count,
        "num_experts_per_tok": mixture.used,
        "num_dense_layers": dense,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0, low=0, high=1e6),
    }
    return _plan(keys, tensors, sizes, arguments, rules)


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    sizes: Hybrid,
    arguments: dict[str, Any],
    feed_forward: list[Rule],
) -> ModelPlan:
    if sizes.head_dim * sizes.num_heads != sizes.hidden_size:
        wanted = f"heads of {sizes.hidden_size // sizes.num_heads}"
        raise keys.unsupported("attention.key_length", sizes.head_dim, wanted)
    decoder.require_whole_heads(keys, sizes.head_dim)
    attending, convolving = sizes.attending, sizes.recurrent
    layer = "model.layers.{}."
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        # The last norm, under a name that is another norm's elsewhere.
        module("token_embd_norm", "model.embedding_norm"),
        module("blk.{}.attn_norm", layer + "operator_norm"),
        *Projections.of(sizes).rules(layer + "self_attn", tensors, sizes.attention_layers),
        module("blk.{}.attn_output", layer + "self_attn.out_proj", layers=attending),
        module("blk.{}.attn_q_norm", layer + "self_attn.q_layernorm", layers=attending),
        module("blk.{}.attn_k_norm", layer + "self_attn.k_layernorm", layers=attending),
        module("blk.{}.shortconv.in_proj", layer + "conv.in_proj", layers=convolving),
        module("blk.{}.shortconv.out_proj", layer + "conv.out_proj", layers=convolving),
        parameter(
            "blk.{}.shortconv.conv.weight",
            layer + "conv.conv.weight",
            convert=depthwise,
            layers=convolving,
        ),
        module("blk.{}.ffn_norm", layer + "ffn_norm"),
        *feed_forward,
    ]
    return ModelPlan(
        architecture=keys.architecture,
        model=arguments["model_type"],
        arguments={
            **arguments,
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": sizes.num_layers,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "norm_eps": decoder.rms_eps(keys),
            "vocab_size": sizes.vocabulary_size,
            "max_position_embeddings": sizes.context_length,
            "conv_bias": False,
            "conv_L_cache": keys.integer("shortconv.l_cache", low=2, high=MAX_KERNEL),
            "rope_theta": rope_base(keys),
            "full_attn_idxs": list(sizes.attention_layers),
        },
        placements=place(rules, tensors, sizes.num_layers),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


READERS = {"lfm2": read_lfm2, "lfm2moe": read_lfm2_moe}
