"""MiniCPM 1, 2 and 4, which are llama with scales; 3, with latent attention."""

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, modules
from akunu_py.gguf.parts import attention, latent_attention, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

# Scales of the first and third models, whose files have no keys for them.
_BASE_WIDTH = 256
_EMBEDDING_SCALE = 12.0
_DEPTH_SCALE = 1.4


def minicpm(model: Decoder) -> ModelPlan:
    """MiniCPM 1, 2 and 4 for `mlx_lm.models.granite`, which has the same kinds of scales.

    mlx-lm's own `minicpm` leaves the logits of tied embeddings unscaled. The rows of q and k are
    ordered for neighbours; the class rotates halves.
    """
    keys = model.keys
    attention.require_plain_heads(model)
    long = rope.long(model)
    depth = _DEPTH_SCALE / model.num_layers**0.5
    logits = model.hidden_size / _BASE_WIDTH
    return model.plan(
        "granite",
        layers.llama(model, reorder=True),
        {
            "attention_bias": False,
            "mlp_bias": False,
            "attention_multiplier": model.head_dim**-0.5,
            "embedding_multiplier": keys.number(
                "embedding_scale", _EMBEDDING_SCALE, low=0, high=1e6
            ),
            "residual_multiplier": keys.number("residual_scale", depth, low=0, high=1e6),
            # A divisor. llama.cpp's default is its inverse, contrary to the first models' program
            # and earlier versions of llama.cpp; the order of tokens is the same.
            "logits_scaling": keys.number("logit_scale", logits, low=0, high=1e6),
            "rope_scaling": None if long else rope.scaling(model),
        },
        rotary=long or rope.factors(model),
        ignored=rope.LONG_TENSORS,
    )


def minicpm3(model: Decoder) -> ModelPlan:
    """MiniCPM 3 for `variants.minicpm3`.

    llama.cpp has the scales of embedding, depth and head of the one released model as constants.
    """
    keys = model.keys
    value = keys.integer("attention.value_length", model.hidden_size // model.num_heads)
    if value * model.num_heads != model.hidden_size:
        wanted = "values of all heads as wide as the model"
        raise keys.unsupported("attention.value_length", value, wanted)
    attention.require_own_keys(model)
    rotated = rope.rotated_dims(model)
    if rotated == model.head_dim:
        raise keys.error("rope.dimension_count", rotated, f"less than {model.head_dim}")
    long = rope.long(model, dims=rotated)
    if long is None:
        rope.require_unscaled(model)
    projections = {
        **latent_attention.LATENT_QUERIES,
        **latent_attention.INPUTS,
        "attn_kv_b": "kv_b_proj",
        "attn_output": "o_proj",
    }
    return model.plan(
        "variants.minicpm3",
        [
            *layers.frame(model),
            *modules(LAYER, layers.NORMS),
            *modules(ATTENTION, projections),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {
            "q_lora_rank": keys.integer("attention.q_lora_rank"),
            "kv_lora_rank": keys.integer("attention.kv_lora_rank"),
            "qk_rope_head_dim": rotated,
            "qk_nope_head_dim": model.head_dim - rotated,
            "dim_model_base": _BASE_WIDTH,
            "scale_emb": _EMBEDDING_SCALE,
            "scale_depth": _DEPTH_SCALE,
            # Plain positions, unless the file's factors replace them.
            "rope_scaling": {"original_max_position_embeddings": model.context_length},
        },
        rotary=long,
        ignored=rope.LONG_TENSORS,
    )
