"""GPT-2 and GPT-NeoX."""

from tiny_architectures.builder import TinyModel, blocks, tiny


def gpt_blocks(model: TinyModel, *, layers=3, width=64, feed_forward=256) -> None:
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, bias=True)
        model.linear(block + "attn_qkv", 3 * width, width, bias=True, std=1.5)
        model.linear(block + "attn_output", width, width, bias=True)
        model.norm(block + "ffn_norm", width, bias=True)
        model.linear(block + "ffn_up", feed_forward, width, bias=True)
        # Little, since llama.cpp's GELU has half precision.
        model.linear(block + "ffn_down", width, feed_forward, bias=True, std=0.5)


def gpt2_model(model: TinyModel, *, tied) -> None:
    model.sizes(kv_heads=4, feed_forward=256, rms_eps=None, norm_eps=1e-5, rope_base=None)
    model.frame(64, norm_bias=True, tied=tied, std=0.1 if tied else 1.0)
    model.matrix("position_embd.weight", 256, 64, std=4)
    gpt_blocks(model)


@tiny("gpt2")
def gpt2(model: TinyModel) -> None:
    gpt2_model(model, tied=True)


@tiny("gpt2-head", "gpt2")
def gpt2_head(model: TinyModel) -> None:
    """Output weights of its own."""
    gpt2_model(model, tied=False)


def gptneox_model(model: TinyModel, *, parallel) -> None:
    model.sizes(kv_heads=4, feed_forward=256, rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=4, use_parallel_residual=parallel)
    model.frame(64, norm_bias=True)
    gpt_blocks(model)


@tiny("gptneox")
def gptneox(model: TinyModel) -> None:
    """A quarter of a head rotates; attention and feed-forward part side by side."""
    gptneox_model(model, parallel=True)


@tiny("gptneox-sequential", "gptneox")
def gptneox_sequential(model: TinyModel) -> None:
    gptneox_model(model, parallel=False)
