"""Hunyuan: the dense models, and A13B, a mixture.

Norms of q and k follow the rotation. The base in the file already includes the model's scaling.
"""

from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.system.errors import UnsupportedArchitectureError

_HEAD_NORMS = {"attn_q_norm": "query_layernorm", "attn_k_norm": "key_layernorm"}


def hunyuan_dense(model: Decoder) -> ModelPlan:
    """Hunyuan, dense, for `mlx_lm.models.hunyuan_v1_dense`."""
    attention.require_whole_heads(model)
    # The configurations of the released dense models state one expert.
    if (count := model.keys.integer("expert_count", 0, low=0)) > 1:
        raise model.keys.unsupported("expert_count", count, "no experts")
    return model.plan(
        "hunyuan_v1_dense",
        layers.llama(model, heads=_HEAD_NORMS),
        {},
        rotary=rope.layers(model),
    )


def hunyuan_moe(model: Decoder) -> ModelPlan:
    """Hunyuan A13B for `variants.hunyuan_moe`."""
    attention.require_plain_heads(model)
    if not model.tied:
        raise UnsupportedArchitectureError(
            "the model has 'output.weight'; akunu runs only hunyuan-moe models whose embedding "
            "also makes the logits: use another model"
        )
    rope.require_unscaled(model)
    if (shared := model.keys.integer("expert_shared_count", 1)) != 1:
        raise model.keys.unsupported("expert_shared_count", shared, "one")
    mixture = experts.read(model, "feed_forward_length")
    return model.plan(
        "variants.hunyuan_moe",
        [
            *layers.llama(model, heads=_HEAD_NORMS, feed_forward={"ffn_gate_inp": "gate.wg"}),
            *experts.rules(model, mixture, shared="shared_mlp"),
        ],
        {
            "model_type": "hunyuan",
            "attention_bias": False,
            "intermediate_size": model.keys.integer(
                "expert_shared_feed_forward_length", model.feed_forward_size
            ),
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
