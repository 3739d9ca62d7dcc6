"""OLMo 2 and 3, of one name in GGUF."""

from collections.abc import Mapping
from typing import Any

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures import blocks, decoder, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling


def read_olmo2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of OLMo 2 for `mlx_lm.models.olmo2`, of OLMo 3 for `mlx_lm.models.olmo3`.

    The latter has windowed layers, whose positions are never scaled. Norms of q and k are over all
    heads together, and those of a block stand behind its parts.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    rules = [
        *decoder.frame_rules(sizes.tied),
        *blocks.attention_rules(tensors, sizes),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(),
        module("blk.{}.post_ffw_norm", f"{blocks.LAYER}.post_feedforward_layernorm"),
    ]
    window = windows.read_window(keys, 0)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="olmo3" if window else "olmo2",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
            **(_windows(keys, sizes.num_layers, window) if window else {}),
        },
    )


def _windows(keys: Keys, layers: int, window: int) -> dict[str, Any]:
    windowed = windows.windowed_layers(keys, layers, 4)
    if len(set(windowed)) < 2:
        raise UnsupportedArchitectureError(
            f"{keys.architecture}.{windows.PATTERN} makes all layers equal; akunu runs models that "
            "have layers with a window and layers without: use another model"
        )
    base = rope_base(keys)
    if (swa_base := keys.number("rope.freq_base_swa", base, low=1, high=1e12)) != base:
        raise keys.unsupported("rope.freq_base_swa", swa_base, f"the base of all layers, {base}")
    return {
        "sliding_window": window,
        "layer_types": ["sliding_attention" if flag else "full_attention" for flag in windowed],
    }


READERS = {"olmo2": read_olmo2}
