"""EXAONE 3 and 4."""

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.llama import llama_model
from tiny_architectures.qwen import head_norms


@tiny("exaone")
def exaone(model: TinyModel) -> None:
    """EXAONE 3.5: rotary factors."""
    llama_model(model, rotary_factors=True, rope_base=1000000.0, rope__dimension_count=16)


@tiny("exaone-tied", "exaone")
def exaone_tied(model: TinyModel) -> None:
    llama_model(model, tied=True, rope__dimension_count=16)


def post_norms(model: TinyModel, *, layers=3, width=64, mean=1.0):
    """Norms after attention and feed-forward part in the place of those before."""
    for block in blocks(layers):
        del model.tensors[block + "attn_norm.weight"], model.tensors[block + "ffn_norm.weight"]
        model.norm(block + "post_attention_norm", width, mean=mean)
        model.norm(block + "post_ffw_norm", width, mean=mean)


@tiny("exaone4")
def exaone4(model: TinyModel) -> None:
    """The 1.2B model: every layer sees and rotates everything."""
    llama_model(model, tied=True, rotary_factors=True, rope_base=1000000.0)
    head_norms(model)
    post_norms(model)


@tiny("exaone4-windowed", "exaone4")
def exaone4_windowed(model: TinyModel) -> None:
    """The 32B model, which llama.cpp knows by its 64 layers; here the windows are stated."""
    llama_model(
        model, rotary_factors=True, layers=64, width=32, heads=2, kv_heads=1, feed_forward=32,
        attention__sliding_window=6,
        attention__sliding_window_pattern=[layer % 4 < 3 for layer in range(64)],
    )  # fmt: skip
    head_norms(model, layers=64)
    post_norms(model, layers=64, width=32, mean=0.3)
