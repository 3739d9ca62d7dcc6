"""StableLM."""

from tiny_architectures.builder import TinyModel, blocks, tiny


def stablelm_blocks(model: TinyModel, *, layers=3, heads=4, kv_heads=2, bias=False, norms=False):
    width, head_dim = 64, 64 // heads
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, bias=True)
        model.linear(block + "attn_q", width, width, bias=bias, std=2)
        model.linear(block + "attn_k", kv_heads * head_dim, width, bias=bias, std=2)
        model.linear(block + "attn_v", kv_heads * head_dim, width, bias=bias)
        model.linear(block + "attn_output", width, width)
        if norms:
            for part, count in (("q", heads), ("k", kv_heads)):
                values = model.random.normal(1.5, 0.3, (count, head_dim))
                model.tensor(f"{block}attn_{part}_norm.weight", values)
        else:
            model.norm(block + "ffn_norm", width, bias=True)
        model.gated(block, feed_forward=96, width=width)


@tiny("stablelm")
def stablelm(model: TinyModel) -> None:
    """StableLM 2 1.6B: biases, a quarter of each head rotates; the key of the residual misleads."""
    model.sizes(kv_heads=4, rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=4, use_parallel_residual=True)
    model.frame(64, norm_bias=True)
    stablelm_blocks(model, kv_heads=4, bias=True)


@tiny("stablelm-12b", "stablelm")
def stablelm_12b(model: TinyModel) -> None:
    """Norms of q and k for each head, feed-forward part beside attention."""
    model.sizes(rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=4, use_parallel_residual=True)
    model.frame(64, norm_bias=True)
    stablelm_blocks(model, norms=True)
