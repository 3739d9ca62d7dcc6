"""Families that are llama with few changes: InternLM 2, MiniCPM, Arcee, OLMo 1, Hunyuan, Apertus."""

import numpy as np

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.qwen import fuse_attention, head_norms


@tiny("internlm2")
def internlm2(model: TinyModel) -> None:
    model.sizes(rope_base=1000000.0)
    model.key("rope.dimension_count", 16)
    model.frame(64)
    llama_blocks(model)


@tiny("minicpm")
def minicpm(model: TinyModel) -> None:
    model.sizes()
    model.keys(embedding_scale=12.0, residual_scale=0.7, logit_scale=1.5)
    model.frame(64, tied=True, std=0.03)
    llama_blocks(model)


@tiny("minicpm-long", "minicpm")
def minicpm_long(model: TinyModel) -> None:
    """MiniCPM 4: factors of the rotary frequencies for short and for long contexts."""
    model.sizes(context=128)
    model.keys(
        embedding_scale=4.0, residual_scale=0.5, logit_scale=2.0, rope__scaling__type="longrope",
        rope__scaling__original_context_length=256,
    )  # fmt: skip
    model.frame(64)
    model.tensor("rope_factors_short.weight", np.linspace(1, 3, 8))
    model.tensor("rope_factors_long.weight", np.linspace(2, 9, 8))
    llama_blocks(model)


def without_gates(model: TinyModel, *, layers=3):
    for layer in range(layers):
        del model.tensors[f"blk.{layer}.ffn_gate.weight"]


@tiny("arcee")
def arcee(model: TinyModel) -> None:
    model.sizes()
    model.keys(
        attention__key_length=32, attention__value_length=32, rope__scaling__type="yarn",
        rope__scaling__factor=4.0, rope__scaling__original_context_length=64,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model, head_dim=32)
    without_gates(model)


@tiny("olmo")
def olmo(model: TinyModel) -> None:
    """Norms without weights; q, k and v are clipped."""
    model.sizes(rms_eps=None, norm_eps=1e-5)
    model.key("attention.clamp_kqv", 1.5)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)
    for name in [name for name in model.tensors if name.endswith("_norm.weight")]:
        del model.tensors[name]


@tiny("hunyuan-dense")
def hunyuan_dense(model: TinyModel) -> None:
    model.sizes(rope_base=11158840.0)
    model.keys(
        attention__key_length=32, attention__value_length=32, rope__scaling__type="none",
        rope__scaling__factor=1.0, rope__scaling__original_context_length=256,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, head_dim=32)
    head_norms(model, head_dim=32)
    fuse_attention(model)


@tiny("apertus")
def apertus(model: TinyModel) -> None:
    """Rotary factors; the numbers of the activation differ from layer to layer."""
    model.sizes()
    # Without the architecture's name before them.
    model.metadata["xielu.alpha_n"] = [0.3, -0.5, 1.2]
    model.metadata["xielu.alpha_p"] = [0.8, 0.1, -0.4]
    model.metadata["xielu.beta"] = [0.5, 0.4, 0.6]
    model.metadata["xielu.eps"] = [-1e-6, -1e-6, -1e-6]
    model.frame(64)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 8))
    llama_blocks(model)
    head_norms(model)
    without_gates(model)
