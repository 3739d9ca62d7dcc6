"""gpt-oss."""

import gguf

from tiny_architectures.builder import TinyModel, blocks, tiny, yarn
from tiny_architectures.mixtures import expert_stacks


def gpt_oss_blocks(model: TinyModel, *, layers, width=64, heads=4, kv_heads=2, head_dim=32):
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        model.attention(block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, bias=True)
        model.vector(block + "attn_sinks.weight", heads, std=2)
        model.norm(block + "post_attention_norm", width)
        model.linear(block + "ffn_gate_inp", 8, width, bias=True, std=2)
        # So wide that the limit of the activation is often reached.
        expert_stacks(model, block, feed_forward=64, bias=True, std=4)


def gpt_oss_sizes(model: TinyModel, layers=4) -> None:
    model.sizes(layers=layers, rope_base=150000.0, head_dim=32)
    model.keys(
        attention__sliding_window=8, expert_count=8, expert_used_count=4,
        expert_feed_forward_length=64, **yarn(32.0, 16),
    )  # fmt: skip


@tiny("gpt-oss")
def gpt_oss(model: TinyModel) -> None:
    """Layers of a window and of all in turn, sinks, biases; experts of numbers that MXFP4 holds.

    They are recorded in float32: llama.cpp rounds activations to eight bits beside MXFP4.
    """
    gpt_oss_sizes(model)
    model.frame(64)
    gpt_oss_blocks(model, layers=4)
    kind = gguf.GGMLQuantizationType.MXFP4
    for name, values in model.tensors.items():
        if name.endswith("_exps.weight"):
            model.tensor(name, gguf.dequantize(gguf.quantize(values, kind), kind))


@tiny("gpt-oss-pattern", "gpt-oss")
def gpt_oss_pattern(model: TinyModel) -> None:
    """The layers' kinds from the file, an odd number of them."""
    gpt_oss_sizes(model, layers=3)
    model.key("attention.sliding_window_pattern", [False, True, True])
    model.frame(64)
    gpt_oss_blocks(model, layers=3)
