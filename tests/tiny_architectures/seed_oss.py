"""Seed OSS."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_model, qkv_biases


@tiny("seed_oss")
def seed_oss(model: TinyModel) -> None:
    """Heads that are together wider than the model; biases of q, k and v."""
    llama_model(model, head_dim=32, rope_base=10000000.0)
    qkv_biases(model, head_dim=32)
    for layer in range(3):
        norm = model.tensors.pop(f"blk.{layer}.ffn_norm.weight")
        model.tensor(f"blk.{layer}.post_attention_norm.weight", norm)
