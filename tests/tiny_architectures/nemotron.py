"""Nemotron 4, dense."""

from tiny_architectures.builder import TinyModel, tiny


def nemotron_blocks(
    model: TinyModel, *, layers=3, width=64, kv_width=32, feed_forward=96, bias=False
) -> None:
    """Norms are stored plus one."""
    for layer in range(layers):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", width, mean=1.4, bias=True)
        model.linear(block + "attn_q", width, width, bias=bias)
        model.linear(block + "attn_k", kv_width, width, bias=bias)
        model.linear(block + "attn_v", kv_width, width, bias=bias)
        model.linear(block + "attn_output", width, width, bias=bias)
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
    model.keys(
        rope__dimension_count=8, rope__scaling__type="linear", rope__scaling__factor=4.0
    )  # fmt: skip
    model.frame(64, norm_bias=True)
    nemotron_blocks(model, bias=True)
