"""GGUF tensor names to the parameters of mlx-lm's modules, and which tensors a model must have."""

import re
from collections.abc import Mapping

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.config import LlamaConfig
from akunu_py.gguf.reader import TensorInfo

ROPE_FREQUENCIES = "rope_freqs.weight"
"""Divisors of the rotary frequencies, [head_dim / 2] (Llama 3): they go into the rotary layer."""

_LLAMA = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LLAMA_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {"llama": (_LLAMA, _LLAMA_BLOCK)}

# Old converters also stored the frequencies that follow from the rope base.
_IGNORED = re.compile(r"blk\.\d+\.attn_rot_embd(\.weight)?")
_BLOCK_NAME = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(\w+)\.(weight|bias)")
_PLAIN_NAME = re.compile(r"(\w+)\.(weight|bias)")


def parameter_path(architecture: str, name: str) -> tuple[str, str] | None:
    """Return where a tensor goes: (module path, parameter), or None for one to leave out.

    ("model.layers.0.self_attn.q_proj", "weight") for "blk.0.attn_q.weight". `ROPE_FREQUENCIES`
    gives None: it has no parameter of its own. Raises UnsupportedArchitectureError for an unknown
    architecture and ModelFormatError for a name it does not have.
    """
    if architecture not in _NAMES:
        raise UnsupportedArchitectureError(f"no tensor names are known for {architecture!r}")
    plain, block = _NAMES[architecture]
    if name == ROPE_FREQUENCIES or _IGNORED.fullmatch(name):
        return None
    if match := _BLOCK_NAME.fullmatch(name):
        layer, part, parameter = match.groups()
        if part in block:
            return f"model.layers.{layer}.{block[part]}", parameter
    elif (match := _PLAIN_NAME.fullmatch(name)) and match[1] in plain:
        return plain[match[1]], match[2]
    raise ModelFormatError(
        f"the {architecture} model has a tensor {name!r} that akunu does not know; leaving it out "
        "could change the model's output: use a conversion of the plain model"
    )


def expected_tensors(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return every tensor the model must have: GGUF name -> row-major shape [out, in]."""
    width, hidden = config.hidden_size, config.feed_forward_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    matrices = {
        "attn_q": (queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config.vocabulary_size, width),
        "output_norm.weight": (width,),
    }
    if not config.tied_embeddings:
        shapes["output.weight"] = (config.vocabulary_size, width)
    if config.has_rope_frequencies:
        shapes[ROPE_FREQUENCIES] = (config.head_dim // 2,)
    for layer in range(config.num_layers):
        for norm in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{layer}.{norm}.weight"] = (width,)
        for part, shape in matrices.items():
            shapes[f"blk.{layer}.{part}.weight"] = shape
            if config.attention_bias if part.startswith("attn") else config.mlp_bias:
                shapes[f"blk.{layer}.{part}.bias"] = shape[:1]
    return shapes


def check_tensors(config: LlamaConfig, tensors: Mapping[str, TensorInfo]) -> None:
    """Check that the file holds the model's tensors, in their shapes, and no unknown ones.

    Raises ModelFormatError naming the tensors at fault.
    """
    expected = expected_tensors(config)
    missing = [name for name in expected if name not in tensors]
    if missing:
        names = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise ModelFormatError(
            f"{len(missing)} tensors are missing: {names}; the file is incomplete, or one part "
            "of a split model"
        )
    for name, info in tensors.items():
        if parameter_path(config.architecture, name) is None and name not in expected:
            continue
        if name not in expected:
            raise ModelFormatError(
                f"tensor {name!r} does not belong to a model of {config.num_layers} layers with "
                "its metadata; download or convert the model again"
            )
        if info.shape != expected[name]:
            raise ModelFormatError(
                f"tensor {name!r} has the shape {info.shape} where the metadata asks for "
                f"{expected[name]}; download or convert the model again"
            )
        if len(expected[name]) == 1 and info.type.name not in ("F32", "F16", "BF16"):
            raise ModelFormatError(
                f"the vector {name!r} is quantized as {info.type.name}; convert the model again"
            )
