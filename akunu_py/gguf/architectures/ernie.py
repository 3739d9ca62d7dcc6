"""ERNIE 4.5, dense and mixtures. Neighbours rotate together, in file and class alike."""

from dataclasses import replace

from akunu_py.gguf.names import FEED_FORWARD
from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.recurrent import flat
from akunu_py.gguf.plan import ModelPlan

_STEP = "interleave_moe_layer_step"
_ROUTER_BIAS = f"{FEED_FORWARD}.e_score_correction_bias"


def ernie4_5(model: Decoder) -> ModelPlan:
    """ERNIE 4.5, dense, for `mlx_lm.models.ernie4_5`."""
    attention.require_whole_heads(model)
    return model.plan(
        "ernie4_5",
        layers.llama(model),
        {"use_bias": False},
        rotary=rope.layers(model, traditional=True),
    )


def ernie4_5_moe(model: Decoder) -> ModelPlan:
    """ERNIE 4.5, mixtures, for `variants.ernie4_5_moe`."""
    keys = model.keys
    attention.require_whole_heads(model)
    dense = experts.leading_dense(model, rest=1)
    mixture = experts.read(model, dense=dense)
    if (step := keys.integer(_STEP, 1)) != 1:
        raise keys.unsupported(_STEP, step, "a mixture in every layer after the dense ones")
    # The width determines their number.
    keys.ignore("expert_shared_count")
    shared = keys.integer("expert_shared_feed_forward_length", 0, low=0)
    weight, bias = experts.router(mixture.routed, bias=_ROUTER_BIAS)
    return model.plan(
        "variants.ernie4_5_moe",
        [
            *layers.llama(model, feed_forward={}),
            *experts.rules(model, mixture, shared="shared_experts" if shared else None),
            weight,
            # A matrix of one row, as in the released models.
            replace(bias, convert=flat),
        ],
        {
            "use_bias": False,
            "moe_num_experts": mixture.count,
            "moe_k": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "moe_layer_start_index": dense,
            "shared_intermediate_size": shared,
        },
        rotary=rope.layers(model, traditional=True),
        constants=experts.zero_biases(model, mixture, _ROUTER_BIAS),
    )
