"""GLM 4, dense, and GLM 4.5 to 4.7, mixtures of experts."""

from tiny_architectures.builder import EXPERTS, TinyModel, blocks, tiny, yarn
from tiny_architectures.mixtures import drafting_block, feed_forward, head_norms


def glm4_blocks(model: TinyModel, *, layers=3, bias=False):
    """Four norms a block; gate and up are one tensor, of the name of up."""
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64)
        model.attention(block, head_dim=32, bias=bias, out_bias=False, std=1.5)
        model.norm(block + "post_attention_norm", 64)
        model.norm(block + "ffn_norm", 64)
        model.linear(block + "ffn_up", 2 * 96, 64)
        model.linear(block + "ffn_down", 64, 96)
        model.norm(block + "post_ffw_norm", 64)


def glm4_sizes(model: TinyModel, layers=3) -> None:
    model.sizes(layers=layers, head_dim=32, rope__dimension_count=16)


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


def glm4_moe_blocks(model: TinyModel, *, layers, norms, bias):
    for layer, block in enumerate(blocks(layers)):
        model.norm(block + "attn_norm", 64)
        model.attention(block, head_dim=32, bias=bias, out_bias=False)
        if norms:
            head_norms(model, block, 32)
        model.norm(block + "post_attention_norm", 64)
        feed_forward(model, block, layer == 0, shared=32, bias=-0.8)


def glm4_moe_sizes(model: TinyModel, *, layers, rotated=16) -> None:
    model.sizes(
        layers=layers, rope_base=1000000.0, head_dim=32, rope__dimension_count=rotated,
        leading_dense_block_count=1, **EXPERTS, expert_shared_count=1, expert_gating_func=2,
        expert_weights_norm=True, expert_weights_scale=2.5, expert_group_count=1,
        expert_group_used_count=1,
    )  # fmt: skip


@tiny("glm4moe")
def glm4_moe(model: TinyModel) -> None:
    """Norms of q and k, biases, half of each head rotated, a last block for drafting."""
    glm4_moe_sizes(model, layers=4)
    model.key("nextn_predict_layers", 1)
    model.frame(64)
    glm4_moe_blocks(model, layers=4, norms=True, bias=True)
    drafting_block(model, 3)


@tiny("glm4moe-plain", "glm4moe")
def glm4_moe_plain(model: TinyModel) -> None:
    """No norms and no biases, the whole head rotated by yarn, gating by default."""
    glm4_moe_sizes(model, layers=3, rotated=32)
    del model.metadata["glm4moe.expert_gating_func"]
    model.keys(**yarn(4.0, 32), expert_weights_norm=False)
    model.frame(64, tied=True, std=0.3)
    glm4_moe_blocks(model, layers=3, norms=False, bias=False)
