"""Latent attention: keys and values of all heads come from one vector."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.keys import MAX_SIZE
from akunu_py.gguf.names import ATTENTION, Rule, module, modules, parameter, rows_of_each
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, Decoder, read_head_dim
from akunu_py.gguf.plan import Conversion

INPUTS = {"attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm"}
LATENT_QUERIES = {"attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm", "attn_q_b": "q_b_proj"}


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of latent attention."""

    count: int
    plain: int  # Dimensions of a key that do not rotate and come from the latent vector.
    rotated: int  # Dimensions of a key that rotate, the same for all heads.
    value: int  # Dimensions of a value.
    latent: int
    query_latent: int | None  # None if queries come from the input.
    split: bool  # Whether the file has separate matrices from the latent vector, as new files do.

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of mlx-lm's classes."""
        return {
            "num_attention_heads": self.count,
            "num_key_value_heads": self.count,
            "head_dim": self.value,
            "qk_nope_head_dim": self.plain,
            "qk_rope_head_dim": self.rotated,
            "v_head_dim": self.value,
            "kv_lora_rank": self.latent,
            "q_lora_rank": self.query_latent,
        }


def read_heads(model: Decoder) -> Heads:
    """Return the sizes of latent attention.

    New files state the widths of keys and values over the latent vector, and the widths of a head
    under separate keys.
    """
    keys, count = model.keys, model.num_heads
    # Checks the width; in new files it is the one over the latent vector, which is not used.
    read_head_dim(keys, model.hidden_size, count)
    split = "attention.key_length_mla" in keys
    suffix = "_mla" if split else ""
    key = keys.integer(f"attention.key_length{suffix}", low=2, high=MAX_HEAD_DIM)
    rotated = keys.integer("rope.dimension_count", low=2, high=MAX_HEAD_DIM)
    if rotated >= key or rotated % 2:
        raise keys.error("rope.dimension_count", rotated, f"even and below {key}")
    # llama.cpp decides by the number of layers instead; V2-Lite's files also have the key.
    direct = f"blk.{model.attention_layers[0]}.attn_q_a.weight" not in model.tensors
    value = keys.integer(f"attention.value_length{suffix}", high=MAX_HEAD_DIM)
    if count * (key + value) > MAX_SIZE:
        raise keys.error(f"attention.value_length{suffix}", value, "of a possible size")
    keys.ignore("attention.q_lora_rank")
    return Heads(
        count=count,
        plain=key - rotated,
        rotated=rotated,
        value=value,
        latent=keys.integer("attention.kv_lora_rank"),
        query_latent=None if direct else keys.integer("attention.q_lora_rank"),
        split=split,
    )


def rules(
    model: Decoder, heads: Heads, at: str = ATTENTION, *, output: str = "o_proj"
) -> list[Rule]:
    """Return the rules for layers with attention, in classes with `embed_q` and `unembed_out`."""
    queries = {"attn_q": "q_proj"} if heads.query_latent is None else LATENT_QUERIES
    names = {**INPUTS, "attn_output": output, **queries}
    if heads.split:
        names |= {"attn_k_b": "embed_q", "attn_v_b": "unembed_out"}
        return modules(at, names, layers=model.attends)
    size = heads.plain + heads.value
    return [
        *modules(at, names, layers=model.attends),
        parameter(
            "blk.{}.attn_kv_b.weight",
            f"{at}.embed_q.weight",
            convert=_keys_of(heads),
            layers=model.attends,
        ),
        module(
            "blk.{}.attn_kv_b",
            f"{at}.unembed_out",
            rows=rows_of_each(range(heads.count), size, range(heads.plain, size)),
            layers=model.attends,
        ),
    ]


def _keys_of(heads: Heads) -> Conversion:
    def convert(values: NDArray[np.float32]) -> NDArray[np.float32]:
        size = heads.plain + heads.value
        if values.shape != (heads.count * size, heads.latent):
            # The shape differs from the parameter's, and so is refused later.
            return values
        of_head = values.reshape(heads.count, size, heads.latent)
        return of_head[:, : heads.plain].swapaxes(1, 2)

    return convert
