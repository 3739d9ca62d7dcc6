"""What tensors of a model are for, by the names that GGUF files and MLX folders give them."""

import re

_CLASSES = (
    ("norms", r"norm|(^|\.)ln_"),
    ("embedding", r"^(token_embd|per_layer_token_embd)|embed_tokens|(^|\.)(wte|embeddings?)\."),
    ("output", r"^output\.|lm_head"),
    ("shared experts", r"shexp|shared_expert"),
    ("router", r"ffn_gate_inp|(mlp|moe)\.(gate|router)\.|\.router\."),
    ("experts", r"_exps|experts|switch_mlp"),
    ("state space", r"ssm_|mamba|mixer|shortconv|time_mix|linear_attn|(^|\.)conv"),
    ("attention", r"attn|attention"),
    ("feed-forward", r"ffn_|mlp|feed_forward"),
)


def tensor_class(name: str) -> str:
    """Return what a tensor is for, such as "attention", or "other"."""
    return next((kind for kind, pattern in _CLASSES if re.search(pattern, name)), "other")
