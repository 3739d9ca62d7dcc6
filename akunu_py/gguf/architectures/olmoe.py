"""OLMo 1, dense, and OLMoE, a mixture."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling


def read_olmo(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of OLMo 1 for `variants.olmo`, whose rows rotate as llama's do."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        *blocks.attention_rules(tensors, sizes),
        *blocks.feed_forward_rules(),
    ]
    if not sizes.tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.olmo",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.layer_norm_eps(keys),
            "clip_qkv": keys.number("attention.clamp_kqv", 0.0, low=-1e-30, high=1e6),
            "rope_traditional": True,
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
    )


def read_olmoe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.olmoe`.

    Norms of q and k are over all heads together; the chosen experts' weights keep their sum.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    mixture = experts.read_mixture(keys, "feed_forward_length")
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="olmoe",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
            module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
            *blocks.mixture_rules(mixture, tensors),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "norm_topk_prob": False,
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
    )


READERS = {"olmo": read_olmo, "olmoe": read_olmoe}
