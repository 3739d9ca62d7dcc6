"""Qwen 3 Next and Qwen 3.5."""

from tiny_architectures.builder import EXPERTS, TinyModel, blocks, tiny
from tiny_architectures.mamba import decay, kernel_of, mamba2_keys
from tiny_architectures.mixtures import mixture

WIDTH, HEAD_DIM, HEADS, KV_HEADS = 64, 32, 4, 2
KEY_HEADS, VALUE_HEADS, STATE = 2, 6, 16


def sizes(model: TinyModel, *, layers=4, interval=2, extra=0, value_heads=VALUE_HEADS) -> None:
    # Heads are normed to unit length with this epsilon, whatever the file has.
    model.sizes(layers=layers + extra, rms_eps=1e-6, rope_base=1e6, head_dim=HEAD_DIM)
    model.keys(rope__dimension_count=8, full_attention_interval=interval)
    mamba2_keys(model, inner=value_heads * STATE, state=STATE, heads=value_heads, groups=KEY_HEADS)
    if extra:
        model.key("nextn_predict_layers", extra)


def experts_keys(model: TinyModel) -> None:
    model.keys(**EXPERTS, expert_shared_feed_forward_length=64)


def attention(model: TinyModel, block) -> None:
    model.linear(block + "attn_q", 2 * HEADS * HEAD_DIM, WIDTH)
    model.linear(block + "attn_k", KV_HEADS * HEAD_DIM, WIDTH)
    model.linear(block + "attn_v", KV_HEADS * HEAD_DIM, WIDTH)
    model.linear(block + "attn_output", WIDTH, HEADS * HEAD_DIM)
    # The norms set how sharply a head attends.
    model.norm(block + "attn_q_norm", HEAD_DIM, mean=2.0)
    model.norm(block + "attn_k_norm", HEAD_DIM)


def delta_net(model: TinyModel, block, *, split, fused, value_heads=VALUE_HEADS) -> None:
    """Add a delta net: in_proj in two parts or `fused`, beta and alpha in two if `split`."""
    keys, values = KEY_HEADS * STATE, value_heads * STATE
    if fused:
        model.linear(block + "ssm_in", 2 * keys + 2 * values, WIDTH)
    else:
        model.linear(block + "attn_qkv", 2 * keys + values, WIDTH)
        model.linear(block + "attn_gate", values, WIDTH)
    if split:
        model.linear(block + "ssm_beta", value_heads, WIDTH, std=2)
        model.linear(block + "ssm_alpha", value_heads, WIDTH, std=2)
    else:
        model.linear(block + "ssm_ba", 2 * value_heads, WIDTH, std=2)
    kernel_of(model, block, 2 * keys + values)
    decay(model, block, value_heads, column=False)
    model.norm(block + "ssm_norm", STATE)
    model.linear(block + "ssm_out", WIDTH, values)


def shared_mixture(model: TinyModel, block) -> None:
    mixture(model, block, shared=64, std=2)
    model.vector(block + "ffn_gate_inp_shexp.weight", WIDTH, std=0.3)


def add_blocks(model: TinyModel, *, layers=4, interval=2, experts, **net) -> None:
    model.frame(WIDTH)
    for layer, block in enumerate(blocks(layers)):
        model.norm(block + "attn_norm", WIDTH)
        model.norm(block + "post_attention_norm", WIDTH)
        if (layer + 1) % interval == 0:
            attention(model, block)
        else:
            delta_net(model, block, **net)
        if experts:
            shared_mixture(model, block)
        else:
            model.gated(block)


def predictor(model: TinyModel, layer) -> None:
    """Add a block that predicts a further token; nothing runs it."""
    block = f"blk.{layer}."
    for name in ("attn_norm", "post_attention_norm", "nextn.enorm", "nextn.hnorm"):
        model.norm(block + name, WIDTH)
    attention(model, block)
    model.gated(block)
    model.linear(block + "nextn.eh_proj", WIDTH, 2 * WIDTH)
    model.norm(block + "nextn.shared_head_norm", WIDTH)


@tiny("qwen3next")
def qwen3_next(model: TinyModel) -> None:
    """Layers named one by one, and qkv and z in matrices of their own."""
    sizes(model, interval=4)
    experts_keys(model)
    model.key("attention.recurrent_layers", [True, False, True, False])
    add_blocks(model, experts=True, split=False, fused=False)


@tiny("qwen3next-fused", "qwen3next")
def qwen3_next_fused(model: TinyModel) -> None:
    """The first converter's form, with in_proj_qkvz as the checkpoint has it."""
    sizes(model)
    experts_keys(model)
    add_blocks(model, experts=True, split=False, fused=True)


@tiny("qwen35")
def qwen35(model: TinyModel) -> None:
    """Three value heads for each key head, dealt out; a block for a further token."""
    sizes(model, interval=4, extra=1)
    model.key("rope.dimension_sections", [2, 1, 1, 0])
    add_blocks(model, interval=4, experts=False, split=True, fused=False)
    predictor(model, 4)


@tiny("qwen35-equal", "qwen35")
def qwen35_equal(model: TinyModel) -> None:
    """As many value heads as key heads: nothing to reorder."""
    sizes(model, value_heads=KEY_HEADS)
    model.key("rope.dimension_sections", [2, 1, 1, 0])
    add_blocks(model, experts=False, split=True, fused=False, value_heads=KEY_HEADS)


@tiny("qwen35moe")
def qwen35_moe(model: TinyModel) -> None:
    sizes(model)
    experts_keys(model)
    model.key("rope.dimension_sections", [2, 1, 1, 0])
    add_blocks(model, experts=True, split=True, fused=False)
