"""Names: the tensors of llama's layers, and the modules that most classes have for them.

llama.cpp and mlx-lm each have one set of names for nearly all decoders. What is particular about a
model is a map {tensor of a layer: module} of its own.
"""

from akunu_py.gguf.names import LAYER, Rule, module, modules
from akunu_py.gguf.parts import attention
from akunu_py.gguf.parts.decoder import EMBEDDING, OUTPUT, Decoder

HEAD_NORMS = {"attn_q_norm": "q_norm", "attn_k_norm": "k_norm"}
GATED = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
UNGATED = {"ffn_up": "up_proj", "ffn_down": "down_proj"}


def llama(model: Decoder, *, reorder: bool = False) -> list[Rule]:
    """Return the rules of a decoder with llama's names, feed-forward part left out.

    `reorder`: see `attention.rules`.
    """
    return [
        *frame(model),
        *modules(LAYER, {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
        *attention.rules(model, reorder=reorder),
    ]


def frame(
    model: Decoder,
    embedding: str = "model.embed_tokens",
    norm: str = "model.norm",
    head: str = "lm_head",
    *,
    tied: bool | None = None,
    copied: bool = False,
) -> list[Rule]:
    """Return the rules for embedding, last norm and, unless the model is tied, the head.

    `tied`: for a class that is always so, or never. `copied`: for a class that has a head always;
    where the model is tied, it is a copy of the embedding.
    """
    tied = model.tied if tied is None else tied
    rules = [module(EMBEDDING, embedding), module("output_norm", norm)]
    if not tied or copied:
        rules.append(module(EMBEDDING if tied else OUTPUT, head))
    return rules
