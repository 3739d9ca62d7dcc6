"""Command R and Command R7B."""

from tiny_architectures.builder import TinyModel, blocks, tiny


def cohere_blocks(
    model: TinyModel, *, layers, width=64, heads=4, kv_heads=2, feed_forward=96, norms=False,
    std=1.5, out=1.0,
):  # fmt: skip
    """One norm a block, without a bias."""
    head_dim = width // heads
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        if norms:
            for part, count in (("q", heads), ("k", kv_heads)):
                weight = model.random.normal(1, 0.5, (count, head_dim))
                model.tensor(f"{block}attn_{part}_norm.weight", weight)
        model.attention(
            block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, std=std, out_std=out
        )
        model.gated(block, feed_forward=feed_forward, width=width, out_std=out)


@tiny("command-r")
def command_r(model: TinyModel) -> None:
    model.sizes(rms_eps=None, norm_eps=1e-5, rope_base=8000000.0)
    model.keys(logit_scale=0.25, rope__scaling__type="none")
    model.frame(64, tied=True, std=0.1)
    cohere_blocks(model, layers=3)


@tiny("command-r-plus", "command-r")
def command_r_plus(model: TinyModel) -> None:
    """Norms of q and k, which llama.cpp expects in models of 64 layers or more."""
    model.sizes(layers=64, width=32, feed_forward=32, rms_eps=None, norm_eps=1e-5)
    model.keys(logit_scale=0.25, rope__scaling__type="none")
    model.frame(32, tied=True, std=0.1)
    cohere_blocks(model, layers=64, width=32, feed_forward=32, norms=True, out=0.2)


@tiny("cohere2")
def cohere2(model: TinyModel) -> None:
    """Every fourth layer sees everything, without positions."""
    model.sizes(layers=5, rms_eps=None, norm_eps=1e-5)
    model.keys(
        logit_scale=0.25, attention__sliding_window=8, rope__dimension_count=16,
        rope__scaling__type="none",
    )  # fmt: skip
    model.frame(64, tied=True, std=0.1)
    cohere_blocks(model, layers=5)
