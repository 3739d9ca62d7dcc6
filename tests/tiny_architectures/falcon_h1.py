"""Falcon H1."""

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.mamba import mamba2_keys, mamba2_mixer


def falcon_model(model: TinyModel, *, groups, tied, norm, layers=3) -> None:
    model.sizes(layers=layers, rms_eps=0.02, rope_base=1e11, head_dim=16)
    # Inner sizes need not be twice the width.
    mamba2_keys(model, inner=96, heads=6, groups=groups)
    model.frame(64, tied=tied, std=0.3)
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64)
        model.attention(block)
        mamba2_mixer(model, block, inner=96, heads=6, groups=groups, norm=norm)
        model.vector(block + "ffn_norm", 64, mean=1.0)
        model.gated(block)


@tiny("falcon-h1")
def falcon_h1(model: TinyModel) -> None:
    falcon_model(model, groups=1, tied=False, norm=False)


@tiny("falcon-h1-norm", "falcon-h1")
def falcon_h1_norm(model: TinyModel) -> None:
    """Two groups with norms of their own, tied embeddings."""
    falcon_model(model, groups=2, tied=True, norm=True)
