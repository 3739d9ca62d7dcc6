"""DFlash heads: random ones, and their layout in folders."""

import mlx.core as mx
from eagle_heads import write_eagle
from markov_heads import filled
from mlx_lm.models.qwen3 import ModelArgs
from prediction_heads import parameters_of

from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.families import decoder_of, shared_layers

LAYERS = (1, 3)
"""Of targets with four layers: behind the first, and before the last."""

BLOCK, MASK = 6, 96


def dflash_of(target, *, layers=LAYERS, block=BLOCK, mask=MASK, rope=None, bias=False):
    """A head without weights; its layers have other sizes than those of the target."""
    _, decoder = decoder_of(target)
    args = ModelArgs(
        model_type="qwen3", hidden_size=decoder.norm.weight.shape[0], num_hidden_layers=2,
        intermediate_size=80, num_attention_heads=6, num_key_value_heads=3, head_dim=16,
        rms_norm_eps=1e-5, vocab_size=1, tie_word_embeddings=True, max_position_embeddings=1000,
        rope_theta=5000.0, rope_scaling=rope,
    )  # fmt: skip
    shared = shared_layers(target, decoder)
    return DFlashHead(args, shared, layers, block=block, mask=mask, bias=bias)


def random_dflash(target, *, seed=2, **options):
    """A random head."""
    head = dflash_of(target, **options)
    mx.random.seed(seed)

    def drawn(path, values):
        if path.endswith("norm.weight"):
            return 1.0 + 0.1 * mx.random.normal(values.shape)
        return mx.random.normal(values.shape) * (1.2 / values.shape[-1] ** 0.5)

    return filled(head, drawn)


def dflash_config(head, **changes):
    """The config of a head, as the authors write it."""
    layer, args = head.layers[0].self_attn, head.layers[0].args
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu",
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "block_size": head.block,
        "dflash_config": {
            "mask_token_id": MASK, "target_layer_ids": [number - 1 for number in head.takes],
        },
        "attention_bias": "bias" in layer.q_proj, "hidden_size": args.hidden_size,
        "intermediate_size": args.intermediate_size, "num_hidden_layers": len(head.layers),
        "num_attention_heads": layer.n_heads, "num_key_value_heads": layer.n_kv_heads,
        "head_dim": args.head_dim, "rms_norm_eps": args.rms_norm_eps, "rope_theta": args.rope_theta,
        "rope_scaling": args.rope_scaling, "max_position_embeddings": 1000, "vocab_size": 97,
        "num_target_layers": 4, "layer_types": ["full_attention"] * len(head.layers),
        "sliding_window": None, "max_window_layers": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    return {**config, **changes}


def write_dflash(folder, head, **changes):
    """Write a folder with a head."""
    return write_eagle(folder, dict(parameters_of(head)), dflash_config(head, **changes))
