"""Mistral 3."""

from tiny_architectures.builder import TinyModel, tiny, yarn
from tiny_architectures.llama import llama_model
from tiny_architectures.qwen import fuse_attention


@tiny("mistral3")
def mistral3(model: TinyModel) -> None:
    """The prompt is longer than the original context: queries grow three times within it."""
    llama_model(
        model, tied=True, head_dim=32, rope_base=1000000.0, rope__dimension_count=32,
        attention__temperature_scale=0.4, **yarn(16.0, 8), rope__scaling__yarn_beta_fast=4.0,
        rope__scaling__yarn_beta_slow=0.5, rope__scaling__yarn_log_multiplier=1.0,
    )  # fmt: skip


@tiny("mistral3-scaled", "mistral3")
def mistral3_scaled(model: TinyModel) -> None:
    """The rotation scales the heads: no log multiplier."""
    llama_model(
        model, attention__temperature_scale=0.1, **yarn(16.0, 16), rope__scaling__attn_factor=1.2
    )


@tiny("mistral3-plain", "mistral3")
def mistral3_plain(model: TinyModel) -> None:
    """Mistral Small 3: neither temperature nor scaled positions."""
    llama_model(model, head_dim=32, rope_base=1000000.0, rope__dimension_count=32)


@tiny("mistral3-unscaled", "mistral3")
def mistral3_unscaled(model: TinyModel) -> None:
    """A temperature over plain positions; fused q, k and v."""
    llama_model(
        model, attention__temperature_scale=0.5, rope__scaling__type="none",
        rope__scaling__original_context_length=16,
    )  # fmt: skip
    fuse_attention(model)


@tiny("mistral3-untempered", "mistral3")
def mistral3_untempered(model: TinyModel) -> None:
    """Extended context without a temperature."""
    llama_model(
        model, attention__temperature_scale=0.0, **yarn(16.0, 16),
        rope__scaling__yarn_log_multiplier=0.7,
    )  # fmt: skip
