"""GPT-2 and GPT-NeoX, the latter also Pythia."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.architectures.decoder import Dimensions
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rotary_layers

_LAYER = "model.h.{}"


def read_gpt2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a GPT-2 model for `variants.gpt2`. Its positions are learned."""
    sizes = _read_sizes(keys, tensors)
    rules = [
        *([] if sizes.tied else [module(decoder.OUTPUT, "lm_head")]),
        module(decoder.EMBEDDING, "model.wte"),
        module("position_embd", "model.wpe"),
        module("output_norm", "model.ln_f"),
        module("blk.{}.attn_norm", f"{_LAYER}.ln_1"),
        module("blk.{}.attn_qkv", f"{_LAYER}.attn.c_attn"),
        module("blk.{}.attn_output", f"{_LAYER}.attn.c_proj"),
        module("blk.{}.ffn_norm", f"{_LAYER}.ln_2"),
        module("blk.{}.ffn_up", f"{_LAYER}.mlp.c_fc"),
        module("blk.{}.ffn_down", f"{_LAYER}.mlp.c_proj"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.gpt2",
        rules=rules,
        arguments={
            "n_ctx": sizes.context_length,
            "n_positions": sizes.context_length,
            "n_embd": sizes.hidden_size,
            "n_head": sizes.num_heads,
            "n_layer": sizes.num_layers,
            "layer_norm_epsilon": decoder.layer_norm_eps(keys),
        },
    )


def read_gptneox(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a GPT-NeoX model for `mlx_lm.models.gpt_neox`.

    Converters put all queries first, then all keys; the class has those of each head together.
    """
    sizes = _read_sizes(keys, tensors)
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    rules: list[Rule] = [
        module(decoder.EMBEDDING, "model.embed_in"),
        module(decoder.OUTPUT, "model.embed_out"),
        module("output_norm", "model.final_layer_norm"),
        module("blk.{}.attn_norm", f"{_LAYER}.input_layernorm"),
        module(
            "blk.{}.attn_qkv", f"{_LAYER}.attention.query_key_value", rows=_heads_together(sizes)
        ),
        module("blk.{}.attn_output", f"{_LAYER}.attention.dense"),
        module("blk.{}.ffn_norm", f"{_LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_up", f"{_LAYER}.mlp.dense_h_to_4h"),
        module("blk.{}.ffn_down", f"{_LAYER}.mlp.dense_4h_to_h"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="gpt_neox",
        rules=rules,
        arguments={
            "layer_norm_eps": decoder.layer_norm_eps(keys),
            "rotary_emb_base": rope_base(keys),
            # Half a dimension more, against what division loses.
            "rotary_pct": (rotated + 0.5) / sizes.head_dim,
            "use_parallel_residual": keys.flag("use_parallel_residual"),
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
    )


def _read_sizes(keys: Keys, tensors: Mapping[str, TensorInfo]) -> Dimensions:
    """Return the sizes, of which the classes take some from others."""
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes, rotated=sizes.head_dim)
    if sizes.num_kv_heads != sizes.num_heads:
        raise keys.unsupported(
            "attention.head_count_kv", sizes.num_kv_heads, f"as many as {sizes.num_heads} heads"
        )
    if sizes.feed_forward_size != 4 * sizes.hidden_size:
        raise keys.unsupported(
            "feed_forward_length", sizes.feed_forward_size, f"4 times {sizes.hidden_size}"
        )
    return sizes


def _heads_together(sizes: Dimensions) -> NDArray[np.intp]:
    """Return the rows of a fused projection with q, k and v of each head next to each other."""
    rows = np.arange(3 * sizes.hidden_size, dtype=np.intp)
    return rows.reshape(3, sizes.num_heads, sizes.head_dim).transpose(1, 0, 2).ravel()


READERS = {"gpt2": read_gpt2, "gptneox": read_gptneox}
