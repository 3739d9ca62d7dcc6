"""Names of the tensors of llama's layers, and of their modules in most classes.

llama.cpp and mlx-lm each have one set of names for nearly all decoders. A reader adds a map
{tensor of a layer: module} for what differs in its model.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, Rule, module, modules, parameter
from akunu_py.gguf.parts import attention, latent_attention
from akunu_py.gguf.parts.decoder import EMBEDDING, OUTPUT, Decoder

NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
ONE_NORM = {"attn_norm": "input_layernorm"}
"""For both attention and feed-forward part, where they run in parallel."""
NORMS_BETWEEN = {
    "attn_norm": "input_layernorm",
    # Named after the part it follows; it precedes the feed-forward part.
    "post_attention_norm": "post_attention_layernorm",
}
FOUR_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
NORMS_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
HEAD_NORMS = {"attn_q_norm": "q_norm", "attn_k_norm": "k_norm"}
GATED = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
GATE_IN_UP = {"ffn_up": "gate_up_proj", "ffn_down": "down_proj"}
"""The rows of the gate are before those of up, in one tensor of that name."""
UNGATED = {"ffn_up": "up_proj", "ffn_down": "down_proj"}


def minus_one(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a norm's weight without the 1 that converters add, for classes that add it as well."""
    return weight - np.float32(1)


def norms_minus_one(at: str, names: Mapping[str, str]) -> list[Rule]:
    """Return the rules for norms of a layer, for classes that add 1 to them as converters do."""
    return [
        parameter(f"blk.{{}}.{source}.weight", f"{at}.{target}.weight", convert=minus_one)
        for source, target in names.items()
    ]


def llama(
    model: Decoder,
    *,
    norms: Mapping[str, str] = NORMS,
    heads: Mapping[str, str] = MappingProxyType({}),
    feed_forward: Mapping[str, str] = GATED,
    tied: bool | None = None,
    copied: bool = False,
    reorder: bool = False,
    latent: latent_attention.Heads | None = None,
) -> list[Rule]:
    """Return the rules of a decoder with llama's names, but for the modules that differ.

    `norms` are those of a layer, `heads` those of q and k. For a mixture `feed_forward` has only
    what is beside the experts. `tied` and `copied`: see `frame`. `reorder`: see `attention.rules`.
    `latent` has the sizes of latent attention.
    """
    return [
        *frame(model, tied=tied, copied=copied),
        *modules(LAYER, norms),
        *(
            latent_attention.rules(model, latent)
            if latent
            else attention.rules(model, reorder=reorder)
        ),
        *modules(ATTENTION, heads),
        *modules(FEED_FORWARD, feed_forward),
    ]


def frame(
    model: Decoder,
    embedding: str = "model.embed_tokens",
    norm: str | None = "model.norm",
    head: str = "lm_head",
    *,
    tied: bool | None = None,
    copied: bool = False,
) -> list[Rule]:
    """Return the rules for embedding, last norm and, unless the model is tied, the head.

    `norm` is None for a norm without weights. `tied` is for a class that is always tied, or never.
    `copied` is for a class that always has a head; in a tied model the embedding is copied to it.
    """
    tied = model.tied if tied is None else tied
    rules = [module(EMBEDDING, embedding)]
    if norm is not None:
        rules.append(module("output_norm", norm))
    if not tied or copied:
        rules.append(module(EMBEDDING if tied else OUTPUT, head))
    return rules
