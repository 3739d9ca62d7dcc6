"""GLM 4, dense, also Z1; the mixtures are in `glm_moe`."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers

_SECTIONS = "rope.dimension_sections"


def read_glm4(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense GLM 4 for `mlx_lm.models.glm4`.

    Half of a head rotates, as neighbours; converters reorder the rows of models that also see
    images, so that halves do. The positions of text are the same in all their sections.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    if (width := keys.integer("attention.value_length", sizes.head_dim)) != sizes.head_dim:
        raise keys.unsupported(
            "attention.value_length", width, f"values as wide as keys, {sizes.head_dim}"
        )
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    neighbours = not _has_sections(keys)
    rules = [
        *decoder.frame_rules(sizes.tied, copied=True),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_self_attn_layernorm"),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.gate_up_proj"),
        module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.down_proj"),
        module("blk.{}.post_ffw_norm", f"{blocks.LAYER}.post_mlp_layernorm"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="glm4",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": blocks.has_attention_biases(tensors, sizes),
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / sizes.head_dim,
            "rope_traditional": neighbours,
        },
        rotary=rotary_layers(
            keys,
            tensors,
            dims=rotated,
            context_length=sizes.context_length,
            traditional=neighbours,
        ),
        ignored=decoder.extra_blocks(sizes.num_layers, keys.integer("block_count")),
    )


def _has_sections(keys: Keys) -> bool:
    if _SECTIONS not in keys:
        return False
    sections = keys.integers(_SECTIONS)
    if any(sections[3:]):
        raise keys.unsupported(_SECTIONS, sections, "three sections of positions")
    # As llama.cpp has it: one section alone is plain text.
    return len(sections) > 1 and sections[0] > 0 and sections[1] > 0


READERS = {"glm4": read_glm4}
