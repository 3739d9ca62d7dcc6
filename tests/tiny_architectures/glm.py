"""GLM 4, dense."""

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.mixtures import drafting_block


def glm4_blocks(
    model: TinyModel, *, layers=3, width=64, heads=4, kv_heads=2, head_dim=32, feed_forward=96,
    bias=False,
):  # fmt: skip
    """Four norms a block; gate and up are one tensor, of the name of up."""
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        model.attention(
            block,
            width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            bias=bias,
            out_bias=False,
            std=1.5,
        )
        model.norm(block + "post_attention_norm", width)
        model.norm(block + "ffn_norm", width)
        model.linear(block + "ffn_up", 2 * feed_forward, width)
        model.linear(block + "ffn_down", width, feed_forward)
        model.norm(block + "post_ffw_norm", width)


def glm4_sizes(model: TinyModel, layers=3) -> None:
    model.sizes(layers=layers, head_dim=32)
    model.keys(rope__dimension_count=16)


@tiny("glm4")
def glm4(model: TinyModel) -> None:
    """Biases of q, k and v, as the size of 9B; half of a head rotates."""
    glm4_sizes(model)
    model.frame(64)
    glm4_blocks(model, bias=True)


@tiny("glm4-sections", "glm4")
def glm4_sections(model: TinyModel) -> None:
    """A model that also sees images, its output weights tied, with a layer for one more token."""
    glm4_sizes(model, layers=4)
    model.keys(nextn_predict_layers=1, rope__dimension_sections=[2, 3, 3, 0])
    model.frame(64, tied=True, std=0.3)
    glm4_blocks(model, layers=4)
    drafting_block(model, 3)
