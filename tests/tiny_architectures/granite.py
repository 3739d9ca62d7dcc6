"""Granite 3 and 4 without state-space layers."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.mixtures import mixture


def granite_sizes(model: TinyModel, **values) -> None:
    model.sizes(**values)
    model.keys(
        rope__dimension_count=16, attention__scale=0.4, embedding_scale=0.6, residual_scale=1.6,
        logit_scale=3.0,
    )  # fmt: skip


def granite_mixture(model: TinyModel, *, shared=False) -> None:
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        model.attention(block)
        model.norm(block + "ffn_norm", 64)
        mixture(model, block, shared=96 if shared else 0)


@tiny("granite")
def granite(model: TinyModel) -> None:
    """All four scales, tied embeddings."""
    granite_sizes(model)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)


@tiny("granite-plain", "granite")
def granite_plain(model: TinyModel) -> None:
    """No scale but the one that is always there; biases, rotary factors."""
    model.sizes()
    model.keys(rope__dimension_count=16, logit_scale=0.5, rope__scaling__finetuned=True)
    model.frame(64)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 8))
    llama_blocks(model, bias=True)


@tiny("granitemoe")
def granitemoe(model: TinyModel) -> None:
    granite_sizes(model, feed_forward=32)
    model.keys(expert_count=8, expert_used_count=3)
    model.frame(64, tied=True, std=0.3)
    granite_mixture(model)


@tiny("granitemoe-shared", "granitemoe")
def granitemoe_shared(model: TinyModel) -> None:
    """A part that all tokens go through."""
    granite_sizes(model, feed_forward=32)
    model.keys(expert_count=8, expert_used_count=3, expert_shared_feed_forward_length=96)
    model.frame(64)
    granite_mixture(model, shared=True)
