"""ERNIE 4.5, dense and mixtures. Neighbours rotate together, in file and class alike."""

from dataclasses import replace

from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.recurrent import flat
from akunu_py.gguf.plan import ModelPlan

_STEP = "interleave_moe_layer_step"


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
    mixture = experts.read_behind_dense(model, rest=1)
    if (step := keys.integer(_STEP, 1)) != 1:
        raise keys.unsupported(_STEP, step, "a mixture in every layer after the dense ones")
    # The width determines their number.
    keys.ignore("expert_shared_count")
    shared = keys.integer("expert_shared_feed_forward_length", 0, low=0)
    weight, bias = experts.router(mixture, "e_score_correction_bias")
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
            "moe_layer_start_index": mixture.leading,
            "shared_intermediate_size": shared,
        },
        rotary=rope.layers(model, traditional=True),
    )
