"""EXAONE 3, 3.5 and 4."""

from collections.abc import Mapping

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures import blocks, decoder, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling

_WINDOWED_LAYERS = 64
"""The 32B model's: old files of it have no keys for its windows."""
_WINDOW = 4096
_PERIOD = 4


def read_exaone(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of EXAONE 3 or 3.5 for `mlx_lm.models.exaone`."""
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    scaling = rope_scaling(keys, sizes.context_length)
    layer = "transformer.h.{}"
    rules = [
        module(decoder.EMBEDDING, "transformer.wte"),
        module("output_norm", "transformer.ln_f"),
        module("blk.{}.attn_norm", f"{layer}.ln_1"),
        *blocks.attention_rules(
            tensors, sizes, target=f"{layer}.attn.attention", output="out_proj"
        ),
        module("blk.{}.ffn_norm", f"{layer}.ln_2"),
        module("blk.{}.ffn_gate", f"{layer}.mlp.c_fc_0"),
        module("blk.{}.ffn_up", f"{layer}.mlp.c_fc_1"),
        module("blk.{}.ffn_down", f"{layer}.mlp.c_proj"),
    ]
    if not sizes.tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="exaone",
        rules=rules,
        arguments={
            "num_layers": sizes.num_layers,
            "layer_norm_epsilon": decoder.rms_eps(keys),
            "rope_scaling": scaling,
        },
        rotary=frequency_factors(keys, tensors, dims=sizes.head_dim, scaling=scaling),
    )


def read_exaone4(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of EXAONE 4 for `mlx_lm.models.exaone4`.

    Norms follow attention and feed-forward part. Where some layers are windowed, as in the 32B
    model, only those rotate.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    scaling = rope_scaling(keys, sizes.context_length)
    rules: list[Rule] = [
        *decoder.frame_rules(sizes.tied),
        *blocks.attention_rules(tensors, sizes),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(),
        module("blk.{}.post_ffw_norm", f"{blocks.LAYER}.post_feedforward_layernorm"),
    ]
    default = _WINDOW if sizes.num_layers == _WINDOWED_LAYERS else 0
    window = windows.read_window(keys, default)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="exaone4",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_scaling": scaling,
            "sliding_window": window or None,
            "sliding_window_pattern": _pattern(keys, sizes.num_layers) if window else None,
        },
        rotary=frequency_factors(keys, tensors, dims=sizes.head_dim, scaling=scaling),
        ignored=decoder.extra_blocks(sizes.num_layers, keys.integer("block_count")),
    )


def _pattern(keys: Keys, layers: int) -> str:
    """Return a letter a layer, as the class has it: L for windowed, G for the others."""
    windowed = windows.windowed_layers(keys, layers, _PERIOD)
    if all(windowed) or not any(windowed):
        raise UnsupportedArchitectureError(
            f"{keys.architecture}.{windows.PATTERN} gives every layer the same window; akunu runs "
            f"{keys.architecture} models of both kinds of layers: use another model"
        )
    return "".join("L" if flag else "G" for flag in windowed)


READERS = {"exaone": read_exaone, "exaone4": read_exaone4}
