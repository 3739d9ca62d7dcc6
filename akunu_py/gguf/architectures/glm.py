"""GLM 4, dense, also Z1; the mixtures 4.5 to 4.7."""

from akunu_py.gguf.names import ATTENTION, modules
from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_SECTIONS = "rope.dimension_sections"


def glm4(model: Decoder) -> ModelPlan:
    """GLM 4, dense, for `mlx_lm.models.glm4`.

    Half of a head rotates, as neighbours. For models that also see images converters reorder the
    rows so that halves rotate. The positions of text are equal in all their sections.
    """
    attention.require_equal_widths(model)
    rotated = rope.rotated_dims(model)
    neighbours = not _has_sections(model)
    norms = {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_self_attn_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    }
    return model.plan(
        "glm4",
        layers.llama(model, norms=norms, feed_forward=layers.GATE_IN_UP, copied=True),
        {
            "attention_bias": attention.has_biases(model),
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "rope_traditional": neighbours,
        },
        rotary=rope.layers(model, dims=rotated, traditional=neighbours),
    )


def _has_sections(model: Decoder) -> bool:
    if _SECTIONS not in model.keys:
        return False
    sections = model.keys.integers(_SECTIONS)
    if any(sections[3:]):
        raise model.keys.unsupported(_SECTIONS, sections, "three sections of positions")
    # As in llama.cpp, a single section is plain text.
    return len(sections) > 1 and sections[0] > 0 and sections[1] > 0


def glm4moe(model: Decoder) -> ModelPlan:
    """GLM 4.5 to 4.7 for `mlx_lm.models.glm4_moe`.

    Part of each head rotates, by halves in both programs. Only some sizes have norms of q and k and
    biases of q, k and v.
    """
    attention.require_equal_widths(model)
    rotated = rope.rotated_dims(model)
    mixture = experts.read_behind_dense(model)
    experts.require_sigmoid(model, mixture)
    experts.require_several(model, mixture.used, normed=experts.normalizes_weights(model))
    return model.plan(
        "glm4_moe",
        [
            *layers.llama(model, norms=layers.NORMS_BETWEEN, feed_forward={}, copied=True),
            *modules(ATTENTION, layers.HEAD_NORMS, required=False),
            *experts.rules(model, mixture, shared=experts.shared_name(model)),
            *experts.router(mixture),
        ],
        {
            "attention_bias": attention.has_biases(model),
            "use_qk_norm": "blk.0.attn_q_norm.weight" in model.tensors,
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "rope_scaling": None,
            **experts.arguments(model, mixture),
        },
        rotary=rope.layers(model, dims=rotated),
    )
