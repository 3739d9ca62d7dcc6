"""LFM 2: short convolutions and attention in turn, dense or with experts."""

from collections.abc import Mapping
from typing import Any

from akunu_py.gguf.names import LAYER, Rule, module, modules, parameter
from akunu_py.gguf.parts import attention, experts, recurrent
from akunu_py.gguf.parts.decoder import EMBEDDING, Decoder
from akunu_py.gguf.parts.recurrent import Hybrid
from akunu_py.gguf.plan import ModelPlan

_FEED_FORWARD = f"{LAYER}.feed_forward"


def lfm2(model: Decoder) -> ModelPlan:
    """LFM 2, dense, for `mlx_lm.models.lfm2`."""
    arguments = {
        # The file states the final width, which the class would derive from another one.
        "intermediate_size": None,
        "block_dim": model.hidden_size,
        "block_ff_dim": model.feed_forward_size,
        "block_auto_adjust_ff_dim": False,
        "block_multiple_of": 1,
        "block_ffn_dim_multiplier": 1.0,
    }
    names = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}
    return _plan(model, "lfm2", modules(_FEED_FORWARD, names), arguments)


def lfm2moe(model: Decoder) -> ModelPlan:
    """LFM 2 with experts for `mlx_lm.models.lfm2_moe`."""
    mixture = experts.read_behind_dense(model)
    experts.require_sigmoid(model)
    rules = [
        *experts.rules(model, mixture, _FEED_FORWARD),
        *experts.router(mixture, "expert_bias", at=_FEED_FORWARD, required=True),
    ]
    arguments = {
        **mixture.arguments,
        "num_dense_layers": mixture.leading,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "routed_scaling_factor": model.keys.number("expert_weights_scale", 1.0, low=0, high=1e6),
    }
    return _plan(model, "lfm2_moe", rules, arguments)


def _plan(
    model: Decoder, name: str, feed_forward: list[Rule], arguments: Mapping[str, Any]
) -> ModelPlan:
    hybrid = Hybrid.of(model)
    attention.require_plain_heads(hybrid)
    convolution = f"{LAYER}.conv"
    return hybrid.plan(
        name,
        [
            module(EMBEDDING, "model.embed_tokens"),
            # The last norm, under an unusual name.
            module("token_embd_norm", "model.embedding_norm"),
            *modules(LAYER, {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm"}),
            *attention.rules(hybrid, output="out_proj"),
            *modules(
                f"{LAYER}.self_attn",
                {"attn_q_norm": "q_layernorm", "attn_k_norm": "k_layernorm"},
                layers=hybrid.attends,
            ),
            *modules(
                convolution,
                {"shortconv.in_proj": "in_proj", "shortconv.out_proj": "out_proj"},
                layers=hybrid.recurs,
            ),
            parameter(
                "blk.{}.shortconv.conv.weight",
                f"{convolution}.conv.weight",
                convert=recurrent.depthwise,
                layers=hybrid.recurs,
            ),
            *feed_forward,
        ],
        {
            **arguments,
            "norm_eps": hybrid.rms_eps,
            "conv_bias": False,
            "conv_L_cache": recurrent.read_kernel(hybrid.keys, "shortconv.l_cache"),
            "full_attn_idxs": list(hybrid.attention_layers),
        },
    )
