"""Hunyuan A13B."""

from collections.abc import Mapping

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling


def read_hunyuan_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `variants.hunyuan_moe`.

    Converters fold the scaling of positions into the base. Norms of q and k follow the rotation.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    if not sizes.tied:
        raise UnsupportedArchitectureError(
            "the model has 'output.weight'; akunu runs hunyuan-moe models whose embedding also "
            "makes the logits only: use another model"
        )
    if (scaling := rope_scaling(keys, sizes.context_length)) is not None:
        raise keys.unsupported("rope.scaling.type", scaling["type"], "unscaled positions")
    if (shared := keys.integer("expert_shared_count", 1)) != 1:
        raise keys.unsupported("expert_shared_count", shared, "one")
    mixture = experts.read_mixture(keys, "feed_forward_length")
    target = blocks.FEED_FORWARD
    rules = [
        *blocks.decoder_rules(tensors, sizes),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.query_layernorm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.key_layernorm"),
        module("blk.{}.ffn_gate_inp", f"{target}.gate.wg"),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors),
        *blocks.feed_forward_rules(f"{target}.shared_mlp", sources=blocks.SHARED_EXPERT),
    ]
    shared_size = keys.integer("expert_shared_feed_forward_length", sizes.feed_forward_size)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.hunyuan_moe",
        rules=rules,
        arguments={
            "model_type": "hunyuan",
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": False,
            "intermediate_size": shared_size,
            "num_shared_expert": 1,
            "use_mixed_mlp_moe": True,
            "num_experts": mixture.count,
            "moe_topk": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "use_qk_norm": True,
            "use_cla": False,
            "cla_share_factor": 1,
            "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1.0},
        },
    )


READERS = {"hunyuan-moe": read_hunyuan_moe}
