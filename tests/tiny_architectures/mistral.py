"""Mistral 3."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.qwen import fuse_attention


@tiny("mistral3")
def mistral3(model: TinyModel) -> None:
    """The prompt is longer than the original context: queries grow three times within it."""
    model.sizes(rope_base=1000000.0)
    model.keys(
        attention__key_length=32, attention__value_length=32, rope__dimension_count=32,
        attention__temperature_scale=0.4, rope__scaling__type="yarn", rope__scaling__factor=16.0,
        rope__scaling__original_context_length=8, rope__scaling__yarn_beta_fast=4.0,
        rope__scaling__yarn_beta_slow=0.5, rope__scaling__yarn_log_multiplier=1.0,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, head_dim=32)


@tiny("mistral3-scaled", "mistral3")
def mistral3_scaled(model: TinyModel) -> None:
    """The rotation scales the heads: no log multiplier."""
    model.sizes()
    model.keys(
        attention__temperature_scale=0.1, rope__scaling__type="yarn", rope__scaling__factor=16.0,
        rope__scaling__original_context_length=16, rope__scaling__attn_factor=1.2,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)


@tiny("mistral3-plain", "mistral3")
def mistral3_plain(model: TinyModel) -> None:
    """Mistral Small 3: neither temperature nor scaled positions."""
    model.sizes(rope_base=1000000.0)
    model.keys(attention__key_length=32, attention__value_length=32, rope__dimension_count=32)
    model.frame(64)
    llama_blocks(model, head_dim=32)


@tiny("mistral3-unscaled", "mistral3")
def mistral3_unscaled(model: TinyModel) -> None:
    """A temperature over plain positions; fused q, k and v."""
    model.sizes()
    model.keys(
        attention__temperature_scale=0.5, rope__scaling__type="none",
        rope__scaling__original_context_length=16,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    fuse_attention(model)


@tiny("mistral3-untempered", "mistral3")
def mistral3_untempered(model: TinyModel) -> None:
    """Extended context without a temperature."""
    model.sizes()
    model.keys(
        attention__temperature_scale=0.0, rope__scaling__type="yarn", rope__scaling__factor=16.0,
        rope__scaling__original_context_length=16, rope__scaling__yarn_log_multiplier=0.7,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
