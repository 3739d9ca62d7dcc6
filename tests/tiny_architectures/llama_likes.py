"""Families that are llama with few changes: InternLM 2, MiniCPM, Arcee, OLMo 1, Hunyuan, Apertus."""

import numpy as np

from tiny_architectures.builder import TinyModel, tiny, yarn
from tiny_architectures.llama import llama_blocks, llama_model
from tiny_architectures.qwen import fuse_attention, head_norms


@tiny("internlm2")
def internlm2(model: TinyModel) -> None:
    llama_model(model, rope_base=1000000.0, rope__dimension_count=16)


@tiny("minicpm")
def minicpm(model: TinyModel) -> None:
    llama_model(
        model, tied=True, std=0.03, embedding_scale=12.0, residual_scale=0.7, logit_scale=1.5
    )


@tiny("minicpm-long", "minicpm")
def minicpm_long(model: TinyModel) -> None:
    """MiniCPM 4: factors of the rotary frequencies for short and for long contexts."""
    llama_model(
        model, context_length=128, embedding_scale=4.0, residual_scale=0.5, logit_scale=2.0,
        rope__scaling__type="longrope", rope__scaling__original_context_length=256,
    )  # fmt: skip
    model.tensor("rope_factors_short.weight", np.linspace(1, 3, 8))
    model.tensor("rope_factors_long.weight", np.linspace(2, 9, 8))


def without_gates(model: TinyModel, *, layers=3):
    for layer in range(layers):
        del model.tensors[f"blk.{layer}.ffn_gate.weight"]


@tiny("arcee")
def arcee(model: TinyModel) -> None:
    llama_model(model, head_dim=32, **yarn(4.0, 64))
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
    llama_model(
        model, tied=True, head_dim=32, rope_base=11158840.0, rope__scaling__type="none",
        rope__scaling__factor=1.0, rope__scaling__original_context_length=256,
    )  # fmt: skip
    head_norms(model, head_dim=32)
    fuse_attention(model)


@tiny("apertus")
def apertus(model: TinyModel) -> None:
    """Rotary factors; the numbers of the activation differ from layer to layer."""
    llama_model(model, rotary_factors=True)
    # Without the architecture's name before them.
    model.metadata["xielu.alpha_n"] = [0.3, -0.5, 1.2]
    model.metadata["xielu.alpha_p"] = [0.8, 0.1, -0.4]
    model.metadata["xielu.beta"] = [0.5, 0.4, 0.6]
    model.metadata["xielu.eps"] = [-1e-6, -1e-6, -1e-6]
    head_norms(model)
    without_gates(model)
