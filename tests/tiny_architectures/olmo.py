"""OLMo 2 and 3."""

from tiny_architectures.builder import TinyModel, blocks, tiny, yarn


def olmo2_blocks(model: TinyModel, *, layers, width=64, kv_width=32, feed_forward=96) -> None:
    for block in blocks(layers):
        model.attention(block, std=1)
        # Over all heads together.
        model.norm(block + "attn_q_norm", width, mean=1.5)
        model.norm(block + "attn_k_norm", kv_width, mean=1.5)
        model.norm(block + "post_attention_norm", width)
        model.gated(block, feed_forward=feed_forward, width=width)
        model.norm(block + "post_ffw_norm", width)


@tiny("olmo2")
def olmo2(model: TinyModel) -> None:
    model.sizes(rms_eps=1e-6, rope_base=500000.0)
    model.key("rope.dimension_count", 16)
    model.frame(64)
    olmo2_blocks(model, layers=3)


@tiny("olmo3", "olmo2")
def olmo3(model: TinyModel) -> None:
    """Windowed layers and others, of which the others alone have YaRN."""
    pattern = [True, False, True]
    model.sizes(rope_base=500000.0)
    model.keys(
        rope__dimension_count=16, attention__sliding_window=8,
        attention__sliding_window_pattern=pattern, **yarn(8.0, 32),
        rope__scaling__yarn_attn_factor=1.2, rope__scaling__yarn_beta_fast=32.0,
        rope__scaling__yarn_beta_slow=1.0,
    )  # fmt: skip
    model.frame(64)
    olmo2_blocks(model, layers=3)


@tiny("olmo3-default", "olmo2")
def olmo3_default(model: TinyModel) -> None:
    """Every fourth layer without a window, where the file does not say which."""
    model.sizes(layers=5)
    model.keys(rope__dimension_count=16, attention__sliding_window=8)
    model.frame(64)
    olmo2_blocks(model, layers=5)
