"""Heads that guess blocks, DFlash and others: random ones, and their layout in folders."""

import mlx.core as mx
import numpy as np
from eagle_heads import eagle_tensors, write_eagle
from markov_heads import filled
from mlx import nn
from mlx_lm.models.qwen3 import ModelArgs
from prediction_heads import parameters_of, write

from akunu_py.models.heads.dflash import BlockForm, DFlashHead
from akunu_py.models.heads.dflash2 import DFlash2Head
from akunu_py.models.heads.dspark import DSparkHead
from akunu_py.models.heads.families import decoder_of, set_draft_vocabulary, shared_layers
from akunu_py.models.heads.parallel import BlockwisePlace, MedusaPlace, ParallelHead

LAYERS = (1, 3)
"""Of targets with four layers: behind the first, and before the last."""

BLOCK, MASK = 6, 96


SIZES = {"taps": 3, "group": 16, "rank": 12, "candidates": 10}
"""Of DFlash 2 heads, whose convolutions reach three rows of a block."""


def dflash_of(target, *, layers=LAYERS, block=BLOCK, mask=MASK, rope=None, kind=DFlashHead,
              sizes=None, **form):  # fmt: skip
    """A head without weights; its layers have other sizes than those of the target."""
    _, decoder = decoder_of(target)
    args = ModelArgs(
        model_type="qwen3", hidden_size=decoder.norm.weight.shape[0], num_hidden_layers=2,
        intermediate_size=80, num_attention_heads=6, num_key_value_heads=3, head_dim=16,
        rms_norm_eps=1e-5, vocab_size=1, tie_word_embeddings=True, max_position_embeddings=1000,
        rope_theta=5000.0, rope_scaling=rope,
    )  # fmt: skip
    form = BlockForm(**{
        "size": block, "mask": mask, "windows": (None, None), "causal": (False, False),
        "last_guesses": kind is DSparkHead, **form,
    })  # fmt: skip
    return kind(args, shared_layers(target, decoder), layers, form, **(sizes or {}))


def random_dflash(target, *, seed=2, **options):
    head = dflash_of(target, **options)
    mx.random.seed(seed)

    def drawn(path, values):
        if path.endswith("norm.weight"):
            return 1.0 + 0.1 * mx.random.normal(values.shape)
        if path.endswith("base_kernel"):
            return mx.random.normal(values.shape) * 0.5
        return mx.random.normal(values.shape) * (1.2 / values.shape[-1] ** 0.5)

    return filled(head, drawn)


def random_dflash2(target, **options):
    """A random DFlash 2 head, with a window in its first layer, which looks back only."""
    size = decoder_of(target)[1].embed_tokens.weight.shape[0]
    form = {"windows": (4, None), "causal": (True, False), "multiplier": 0.7, "cap": 5.0,
            "embedding_scale": 2.0}  # fmt: skip
    sizes = {**SIZES, "vocabulary": size}
    return random_dflash(target, kind=DFlash2Head, sizes=sizes, **{**form, **options})


def random_dspark(target, *, markov="rnn", vocabulary=None, confidence=True, rank=12, **options):
    """A random DSpark head; it guesses `vocabulary` of the target's tokens."""
    _, decoder = decoder_of(target)
    size, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    sizes = {
        "rank": rank, "markov": markov, "confidence": (width + rank) * confidence,
        "vocabulary": size, "guessed": vocabulary or size,
    }  # fmt: skip
    head = random_dflash(target, kind=DSparkHead, sizes=sizes, **options)
    if vocabulary is not None:
        ids = np.sort(np.random.default_rng(3).permutation(size)[:vocabulary])
        set_draft_vocabulary(head, target, mx.array(ids.astype(np.int32)))
        mx.eval(head.parameters())
    return head


def random_medusa(target, *, vocabulary=None, num_layers=2):
    """A random Medusa head of five places; it guesses `vocabulary` of the target's tokens."""
    _, decoder = decoder_of(target)
    size, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    places = [MedusaPlace(width, num_layers) for _ in range(BLOCK - 1)]
    outputs = [nn.Linear(width, vocabulary or size, bias=False) for _ in places]
    head = ParallelHead(shared_layers(target, decoder), width, places, outputs)
    return with_random_numbers(head, target, vocabulary)


def random_blockwise(target, *, vocabulary=None):
    _, decoder = decoder_of(target)
    width = decoder.norm.weight.shape[0]
    places = [BlockwisePlace(width, 80) for _ in range(BLOCK - 1)]
    head = ParallelHead(shared_layers(target, decoder), width, places)
    return with_random_numbers(head, target, vocabulary)


def with_random_numbers(head, target, vocabulary):
    mx.random.seed(2)
    filled(head, lambda _, values: mx.random.normal(values.shape) * 0.3)
    if vocabulary is not None:
        set_draft_vocabulary(head, target, mx.arange(vocabulary, dtype=mx.int32) + 3)
        mx.eval(head.parameters())
    return head


def parallel_tensors(head):
    """The tensors of a head whose places know nothing of each other, by their names in files."""
    found, output = {}, head.get("lm_head", {})
    if "ids" in output:
        found["d2t"] = output.ids.astype(mx.int64) - mx.arange(output.ids.size)
        output = output.rows
    for number, place in enumerate(head.places):
        for name, array in parameters_of(place).items():
            _, *rest = name.split(".")
            if name.startswith("layers."):
                found[f"{number}.{rest[0]}.linear.{rest[1]}"] = array
            else:
                found[f"blockwise.{number}.{name}"] = array
        if "places" in output:
            found[f"{number}.{len(place.layers)}.weight"] = output.places[number].weight
    return found


def write_parallel(folder, head):
    """Write a folder with such a head, as Medusa's are published."""
    write(folder / "medusa_lm_head.safetensors", parallel_tensors(head))
    return folder


def dflash_config(head, **changes):
    """The config of a head, as the authors write it."""
    layer, args, form = head.layers[0].self_attn, head.layers[0].args, head.form
    kinds = ["full_attention" if window is None else "sliding_attention" for window in form.windows]
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu",
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "block_size": form.size,
        "dflash_config": {
            "mask_token_id": form.mask, "target_layer_ids": [number - 1 for number in head.takes],
        },
        "attention_bias": "bias" in layer.q_proj, "hidden_size": args.hidden_size,
        "intermediate_size": args.intermediate_size, "num_hidden_layers": len(head.layers),
        "num_attention_heads": layer.n_heads, "num_key_value_heads": layer.n_kv_heads,
        "head_dim": args.head_dim, "rms_norm_eps": args.rms_norm_eps, "rope_theta": args.rope_theta,
        "rope_scaling": args.rope_scaling, "max_position_embeddings": 1000, "vocab_size": 97,
        "num_target_layers": 4, "layer_types": kinds,
        "sliding_window": max((w for w in form.windows if w), default=None),
        "max_window_layers": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    return {**config, **changes}


def dflash2_config(head, **changes):
    """The config of a DFlash 2 head, as the authors write it: nearly all in one object."""
    config = dflash_config(head)
    nested, selector = config["dflash_config"], head.candidate_selector
    convolution = head.layers[0].attention_conv
    width, made = head.layers[0].args.hidden_size, convolution.kernel_projection.weight.shape[0]
    taps = convolution.base_kernel.shape[1]
    nested |= {
        "block_size": config.pop("block_size"),
        "conv_kernel_size": taps,
        "conv_group_size": 2 * taps * width // made,
        "selector_rank": selector.hidden_projection.weight.shape[0],
        "selector_top_k": SIZES["candidates"],
        "output_multiplier": head.form.multiplier,
        "final_logit_softcapping": head.form.cap,
        "input_embedding_scale": head.form.embedding_scale,
    }
    return {**config, "architectures": ["DFlash2DraftModel"], "use_sliding_window": True, **changes}


def dspark_config(head, **changes):
    """The config of a DSpark head, as DeepSpec writes it: all at the top."""
    config = dflash_config(head)
    config |= config.pop("dflash_config")
    markov = head.markov_head
    form = "gated" if "gate_proj" in markov else "rnn" if "joint_proj" in markov else "vanilla"
    config |= {
        "architectures": ["Qwen3DSparkModel"],
        "num_anchors": 512,
        "markov_head_type": form,
        "markov_rank": markov.markov_w1.weight.shape[1],
        "tie_word_embeddings": False,
        "enable_confidence_head": "confidence_head" in head,
        "confidence_head_with_markov": True,
    }
    return {**config, **changes}


def tensors_of(head):
    """The tensors of a head by their published names."""
    arrays = eagle_tensors(head)
    return {name.removesuffix(".weight") if "_codebook" in name else name: array
            for name, array in arrays.items()}  # fmt: skip


def write_dflash(folder, head, config=dflash_config, **changes):
    return write_eagle(folder, tensors_of(head), config(head, **changes))
