"""Nemotron 4, dense."""

from tiny_architectures.builder import TinyModel, blocks, linear_scaling, tiny


def nemotron_blocks(
    model: TinyModel, *, layers=3, width=64, kv_width=32, feed_forward=96, bias=False
) -> None:
    """Norms are stored plus one."""
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, mean=1.4, bias=True)
        model.attention(block, bias=bias, std=1)
        model.norm(block + "ffn_norm", width, mean=1.4, bias=True)
        model.linear(block + "ffn_up", feed_forward, width, bias=bias)
        model.linear(block + "ffn_down", width, feed_forward, bias=bias, std=0.5)


@tiny("nemotron")
def nemotron(model: TinyModel) -> None:
    model.sizes(rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=8, rope__scaling__type="none")
    model.frame(64, norm_bias=True)
    nemotron_blocks(model)


@tiny("nemotron-bias", "nemotron")
def nemotron_bias(model: TinyModel) -> None:
    """Biases, and scaled positions."""
    model.sizes(rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=8, **linear_scaling(4.0))
    model.frame(64, norm_bias=True)
    nemotron_blocks(model, bias=True)
