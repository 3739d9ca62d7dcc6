"""Qwen 1.5, 2 and 3."""

import numpy as np

from tiny_architectures.builder import EXPERTS, TinyModel, linear_scaling, tiny, yarn
from tiny_architectures.llama import llama_model, qkv_biases
from tiny_architectures.mixtures import experts


def head_norms(model: TinyModel, *, layers=3, head_dim=16):
    for layer in range(layers):
        model.norm(f"blk.{layer}.attn_q_norm", head_dim, mean=1.5)
        model.norm(f"blk.{layer}.attn_k_norm", head_dim, mean=1.5)


def fuse_attention(model: TinyModel, *, layers=3):
    """Store q, k and v as one tensor, as converters can."""
    for layer in range(layers):
        for suffix in ("weight", "bias"):
            names = [f"blk.{layer}.attn_{part}.{suffix}" for part in "qkv"]
            if names[0] in model.tensors:
                parts = [model.tensors.pop(name) for name in names]
                model.tensor(f"blk.{layer}.attn_qkv.{suffix}", np.concatenate(parts))


@tiny("qwen2")
def qwen2(model: TinyModel) -> None:
    llama_model(model, rope_base=1000000.0)
    qkv_biases(model)


@tiny("qwen2-yarn", "qwen2")
def qwen2_yarn(model: TinyModel) -> None:
    """Tied embeddings, extended context, fused q, k and v."""
    llama_model(model, tied=True, **yarn(4.0, 64))
    qkv_biases(model)
    fuse_attention(model)


@tiny("qwen2-unbiased", "qwen2")
def qwen2_unbiased(model: TinyModel) -> None:
    llama_model(model)


@tiny("qwen3")
def qwen3(model: TinyModel) -> None:
    """Heads that are together wider than the model."""
    llama_model(model, tied=True, head_dim=32, rope_base=1000000.0)
    head_norms(model, head_dim=32)


@tiny("qwen3-fused", "qwen3")
def qwen3_fused(model: TinyModel) -> None:
    llama_model(model)
    head_norms(model)
    fuse_attention(model)


@tiny("qwen3moe")
def qwen3moe(model: TinyModel) -> None:
    llama_model(model, head_dim=32, rope_base=1000000.0, **EXPERTS)
    head_norms(model, head_dim=32)
    experts(model)


@tiny("qwen3moe-yarn", "qwen3moe")
def qwen3moe_yarn(model: TinyModel) -> None:
    """Extended context; the width of an expert follows from the whole."""
    llama_model(model, expert_count=8, expert_used_count=3, **yarn(4.0, 64))
    head_norms(model)
    experts(model)


@tiny("qwen2moe")
def qwen2moe(model: TinyModel) -> None:
    llama_model(model, rope_base=1000000.0, **EXPERTS, expert_shared_feed_forward_length=48)
    qkv_biases(model)
    experts(model, shared=48)
    for layer in range(3):
        model.vector(f"blk.{layer}.ffn_gate_inp_shexp.weight", 64)


@tiny("qwen2moe-linear", "qwen2moe")
def qwen2moe_linear(model: TinyModel) -> None:
    """Linear positions; widths of experts follow from the whole."""
    llama_model(model, expert_count=8, expert_used_count=3, **linear_scaling(4.0))
    qkv_biases(model)
    experts(model, shared=96)
    for layer in range(3):
        # A matrix of one row, as the released models have it.
        model.matrix(f"blk.{layer}.ffn_gate_inp_shexp.weight", 1, 64)


@tiny("qwen2vl")
def qwen2vl(model: TinyModel) -> None:
    """Parts of a head rotate by coordinates of a patch, which are equal in a text."""
    llama_model(model, rope_base=1000000.0, rope__dimension_sections=[2, 3, 3, 0])
    qkv_biases(model)


VISION = {
    "rope_base": 5000000.0, "rope__dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 2,
}  # fmt: skip


@tiny("qwen3vl")
def qwen3vl(model: TinyModel) -> None:
    llama_model(model, tied=True, **VISION)
    head_norms(model)


@tiny("qwen3vlmoe")
def qwen3vlmoe(model: TinyModel) -> None:
    llama_model(model, **VISION, **EXPERTS)
    head_norms(model)
    experts(model)
