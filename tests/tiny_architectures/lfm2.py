"""LFM 2: short convolutions, attention where head_count_kv is not 0."""

from tiny_architectures.builder import EXPERTS, VOCABULARY_SIZE, TinyModel, tiny
from tiny_architectures.mixtures import mixture


def lfm2_frame(model: TinyModel, width=64):
    model.matrix("token_embd.weight", VOCABULARY_SIZE, width, std=3.0)
    model.norm("token_embd_norm", width)


def lfm2_operator(model: TinyModel, block, kv_heads, *, width=64, heads=4, taps=3):
    head_dim = width // heads
    model.norm(block + "attn_norm", width)
    if kv_heads:
        model.attention(block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, std=1)
        # The norms set how sharply a head attends.
        model.norm(block + "attn_q_norm", head_dim, mean=2.0)
        model.norm(block + "attn_k_norm", head_dim)
    else:
        model.linear(block + "shortconv.in_proj", 3 * width, width)
        model.tensor(block + "shortconv.conv.weight", model.random.normal(0, 0.6, (width, taps)))
        model.linear(block + "shortconv.out_proj", width, width)
    model.norm(block + "ffn_norm", width)


def lfm2_sizes(model: TinyModel, kv_heads) -> None:
    model.sizes(layers=len(kv_heads), rope_base=1000000.0)
    model.key("attention.head_count_kv", kv_heads)
    model.key("shortconv.l_cache", 3)


@tiny("lfm2")
def lfm2(model: TinyModel) -> None:
    kv_heads = [0, 2, 0, 2]
    lfm2_sizes(model, kv_heads)
    lfm2_frame(model)
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        lfm2_operator(model, block, count)
        model.gated(block)


@tiny("lfm2moe")
def lfm2_moe(model: TinyModel) -> None:
    """One dense layer, then experts, chosen with a bias that changes the choice only."""
    kv_heads = [0, 2, 0]
    lfm2_sizes(model, kv_heads)
    model.keys(**EXPERTS, expert_gating_func=2, leading_dense_block_count=1)
    lfm2_frame(model)
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        lfm2_operator(model, block, count)
        if layer == 0:
            model.gated(block)
            continue
        mixture(model, block, bias=0.0, std=2)
