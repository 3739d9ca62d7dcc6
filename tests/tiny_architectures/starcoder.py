"""StarCoder 2."""

from tiny_architectures.builder import TinyModel, blocks, linear_scaling, tiny


def starcoder2_blocks(model: TinyModel, *, layers=3):
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64, bias=True)
        model.attention(block, bias=True)
        model.norm(block + "ffn_norm", 64, bias=True)
        model.linear(block + "ffn_up", 128, 64, bias=True, std=2)
        model.linear(block + "ffn_down", 64, 128, bias=True)


@tiny("starcoder2")
def starcoder2(model: TinyModel) -> None:
    model.sizes(feed_forward=128, rms_eps=None, norm_eps=1e-3, rope_base=100000.0)
    model.frame(64, tied=True, norm_bias=True, std=0.3)
    starcoder2_blocks(model)


@tiny("starcoder2-linear", "starcoder2")
def starcoder2_linear(model: TinyModel) -> None:
    model.sizes(feed_forward=128, rms_eps=None, norm_eps=1e-5)
    model.keys(**linear_scaling(2.0))
    model.frame(64, norm_bias=True)
    starcoder2_blocks(model)
