"""Tensors with a scale of their own, as NVFP4 files have them.

The weights are numbers that NVFP4 holds, in float32: beside NVFP4 llama.cpp rounds activations.
"""

import numpy as np

from tiny_architectures.builder import EXPERTS, TinyModel, tiny
from tiny_architectures.llama import llama_model
from tiny_architectures.mixtures import experts
from tiny_architectures.qwen import head_norms

ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def nvfp4(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round to four bits, 16 numbers sharing a scale; return them and GGUF's blocks."""
    parts = weight.reshape(-1, 16)
    exponent = np.round(np.log2(np.abs(parts).max(axis=1, keepdims=True) / 6))
    scaled = parts / np.exp2(exponent)
    level = np.abs(np.abs(scaled)[..., None] - LEVELS).argmin(-1)
    values = np.where(scaled < 0, -1, 1) * LEVELS[level] * np.exp2(exponent)
    codes = (level + 8 * (scaled < 0)).astype(np.uint8)
    # A block: four scales with four bits of exponent and three of fraction, then the codes.
    scales = ((exponent + 7) * 8).astype(np.uint8).reshape(-1, 4)
    packed = (codes[:, :8] | codes[:, 8:] << 4).reshape(-1, 32)
    blocks = np.concatenate([scales, packed], axis=1)
    return values.reshape(weight.shape), blocks.reshape(*weight.shape[:-1], -1)


def add_scales(model: TinyModel, parts) -> None:
    """Give each part of each layer a scale, or one for each expert, and one for its inputs."""
    for name in [f"blk.{layer}.{part}" for layer in range(3) for part in parts]:
        weight = model.tensors[f"{name}.weight"]
        count = len(weight) if weight.ndim > 2 else 1
        scale = model.random.uniform(0.002, 0.006, count)
        whole = weight / scale.reshape(-1, *(1,) * (weight.ndim - 1))
        values, model.blocks[f"{name}.weight"] = nvfp4(whole)
        model.tensor(f"{name}.weight", values)
        model.tensor(f"{name}.scale", scale)
        model.tensor(f"{name}.input_scale", np.full(count, 0.01))


@tiny("llama-scales", "llama")
def llama_scales(model: TinyModel) -> None:
    llama_model(model, feed_forward=128, rope__dimension_count=16)
    for layer in range(3):
        for part, size in zip(ATTENTION, (64, 32, 32, 64), strict=True):
            model.vector(f"blk.{layer}.{part}.bias", size)
    add_scales(model, (*ATTENTION, *FEED_FORWARD))


@tiny("qwen3moe-scales", "qwen3moe")
def qwen3moe_scales(model: TinyModel) -> None:
    keys = {**EXPERTS, "expert_feed_forward_length": 64}
    llama_model(model, head_dim=32, rope_base=1000000.0, **keys)
    head_norms(model, head_dim=32)
    experts(model, feed_forward=64)
    add_scales(model, (*ATTENTION, *(f"{part}_exps" for part in FEED_FORWARD)))
