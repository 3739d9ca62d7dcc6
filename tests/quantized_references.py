"""Small llamas with random weights in each quantized type, blocks by ggml, and llama.cpp's results for them.

Recorded by scripts/record_references.py; scripts/references/quantizations.py says what the files hold. Matrices
with rows of WIDTH have the type that the model is named after. The narrower ones, whose rows are too short for a
block, are in F16 and the same in all models, as are the norms.
"""

import functools
from pathlib import Path

import gguf
import numpy as np
from gguf_files import finish, raw_type

GOLDEN = Path(__file__).resolve().parent / "golden" / "quantizations"
WIDTH, HEAD, HEADS, FEED_FORWARD, LAYERS, CONTEXT = 256, 8, 2, 16, 1, 128
TOKENS = [*(chr(code) for code in range(0x4A, 0x76)), "Ġ", "Ċ", "th", "</s>"]

_LAYER = {
    "attn_q": HEADS * HEAD,
    "attn_k": HEAD,
    "attn_v": HEAD,
    "ffn_gate": FEED_FORWARD,
    "ffn_up": FEED_FORWARD,
}
WIDE = {"token_embd": len(TOKENS)} | {
    f"blk.{layer}.{name}": rows for layer in range(LAYERS) for name, rows in _LAYER.items()
}
"""Matrices with rows of WIDTH -> how many rows."""
NARROW = {
    f"blk.{layer}.{name}": cols
    for layer in range(LAYERS)
    for name, cols in (("attn_output", HEADS * HEAD), ("ffn_down", FEED_FORWARD))
}
"""Matrices with WIDTH rows -> how long these are."""
MIXED = ("ffn_up", "attn_v")
"""Matrices in Q6_K in the model "Q4_K_M"."""
CAST = ("F16", "BF16")
"""Types without blocks: their models have the weights of "Q8_0", cast."""


@functools.cache
def recorded(name):
    """The arrays of one file."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def recorded_models():
    return sorted(path.stem for path in GOLDEN.glob("*.npz") if path.stem != "common")


def wide_parts(blocks):
    """Name -> rows of the wide matrices, of blocks or weights of all of them one after another."""
    ends = np.cumsum(list(WIDE.values()))
    return dict(zip(WIDE, np.split(blocks, ends[:-1]), strict=True))


def matrices(name):
    """Tensor -> (type, array) of the model: blocks uint8 [rows, row_bytes], or numbers in F16 or BF16."""
    if name in CAST:
        kind = gguf.GGMLQuantizationType[name]
        values = gguf.quants.dequantize(recorded("Q8_0")["blocks"], gguf.GGMLQuantizationType.Q8_0)
        return {key: (name, part) for key, part in wide_parts(gguf.quantize(values, kind)).items()}
    if name == "Q4_K_M":
        mixed = matrices("Q4_K")
        better = matrices("Q6_K")
        return {key: better[key] if key.endswith(MIXED) else mixed[key] for key in mixed}
    return {key: (name, part) for key, part in wide_parts(recorded(name)["blocks"]).items()}


def narrow_matrices():
    return {key: ("F16", recorded("common")[key]) for key in NARROW}


def norm(place):
    """Weights of a norm, float32 [WIDTH]: around 1, and the same on every machine."""
    return (1 + ((np.arange(WIDTH) * 37 + place * 5) % 17 - 8) / 64).astype(np.float32)


def write_llama(path, tensors):
    """Write a GGUF file of tensors as `matrices` and `narrow_matrices` return them; return its path."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 1) + [3])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("output_norm.weight", norm(0))
    for layer in range(LAYERS):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", norm(2 * layer + 1))
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", norm(2 * layer + 2))
    for name, (kind, array) in tensors.items():
        writer.add_tensor(f"{name}.weight", array, raw_dtype=raw_type(kind))
    finish(writer)
    return path


def write_quantized(path, name):
    """Write a recorded model; return its path."""
    return write_llama(path, matrices(name) | narrow_matrices())
