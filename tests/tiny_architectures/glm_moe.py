"""GLM 4.5 to 4.7, mixtures of experts."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.deepseek import mixture
from tiny_architectures.mixtures import gated


def glm4_moe_blocks(model: TinyModel, *, layers, norms, bias, dense=1, router_bias=True):
    for layer in range(layers):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", 64)
        model.linear(block + "attn_q", 128, 64, bias=bias, std=2)
        model.linear(block + "attn_k", 64, 64, bias=bias, std=2)
        model.linear(block + "attn_v", 64, 64, bias=bias)
        model.linear(block + "attn_output", 64, 128)
        if norms:
            model.norm(block + "attn_q_norm", 32)
            model.norm(block + "attn_k_norm", 32, mean=1.5)
        model.norm(block + "post_attention_norm", 64)
        if layer < dense:
            gated(model, block, "", feed_forward=96, width=64)
        else:
            mixture(model, block, bias=router_bias)


def glm4_moe_sizes(model: TinyModel, *, layers, rotated=16) -> None:
    model.sizes(layers=layers, rope_base=1000000.0)
    model.keys(
        attention__key_length=32, attention__value_length=32, rope__dimension_count=rotated,
        leading_dense_block_count=1, expert_count=8, expert_used_count=3, expert_shared_count=1,
        expert_feed_forward_length=32, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5, expert_group_count=1, expert_group_used_count=1,
    )  # fmt: skip


@tiny("glm4moe")
def glm4_moe(model: TinyModel) -> None:
    """Norms of q and k, biases, half of each head rotated, a last block for drafting."""
    glm4_moe_sizes(model, layers=4)
    model.key("nextn_predict_layers", 1)
    model.frame(64)
    glm4_moe_blocks(model, layers=4, norms=True, bias=True)
    model.linear("blk.3.nextn.eh_proj", 64, 128)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        model.norm(f"blk.3.nextn.{name}", 64)


@tiny("glm4moe-plain", "glm4moe")
def glm4_moe_plain(model: TinyModel) -> None:
    """No norms and no biases, the whole head rotated by yarn, gating by default."""
    glm4_moe_sizes(model, layers=3, rotated=32)
    del model.metadata["glm4moe.expert_gating_func"]
    model.keys(
        rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32, expert_weights_norm=False,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    glm4_moe_blocks(model, layers=3, norms=False, bias=False)
