"""MiniMax M2."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_minimax_m2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.minimax`.

    Norms of q and k go over all heads together; a part of each head rotates.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    head_dim = sizes.head_dim
    if (width := keys.integer("attention.value_length", head_dim)) != head_dim:
        raise keys.unsupported(
            "attention.value_length", width, f"values as wide as keys, {head_dim}"
        )
    rotated = decoder.read_rotated(keys, head_dim)
    mixture = experts.read_mixture(keys, "feed_forward_length")
    if (gating := experts.read_gating(keys, Gating.SIGMOID)) is not Gating.SIGMOID:
        raise keys.unsupported("expert_gating_func", int(gating), "a sigmoid, 2")
    target = f"{blocks.LAYER}.block_sparse_moe"
    rules = [
        *blocks.decoder_rules(tensors, sizes),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
        parameter("blk.{}.ffn_gate_inp.weight", f"{target}.gate.weight", float32=True),
        parameter("blk.{}.exp_probs_b.bias", f"{target}.{experts.ROUTER_BIAS}", float32=True),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="minimax",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "num_local_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "shared_intermediate_size": 0,
            "rotary_dim": rotated,
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
    )


READERS = {"minimax-m2": read_minimax_m2}
