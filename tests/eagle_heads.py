"""EAGLE-3 heads: random ones, such as know a Markov target's text, and their layouts in folders."""

import json

import mlx.core as mx
import numpy as np
from markov_heads import SIZE, STEP, filled
from mlx_lm.models.llama import ModelArgs
from prediction_heads import parameters_of, write

from akunu_py.models.heads.eagle import EagleHead
from akunu_py.models.heads.families import decoder_of, set_draft_vocabulary, shared_layers

LAYERS = (0, 1, 3)
"""Of targets with four layers, which are too few for the three that a config need not name."""

LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip


def llama3(frequencies):
    """Llama 3.1's change of frequencies, for the numbers in `LLAMA3`."""
    turns = 32 * frequencies / (2 * np.pi)
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0, 1)
    return frequencies * (smooth + (1 - smooth) / 4.0)


def eagle_of(target, *, layers=LAYERS, rope=None, vocabulary=None, **options):
    """A head without weights; its layer has other sizes than those of the target."""
    _, decoder = decoder_of(target)
    size, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    args = ModelArgs(
        model_type="llama", hidden_size=width, num_hidden_layers=1, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, rms_norm_eps=1e-5,
        vocab_size=vocabulary or size, rope_theta=5000.0, rope_scaling=rope,
    )  # fmt: skip
    return EagleHead(args, shared_layers(target, decoder), layers, **options)


def random_eagle(target, *, vocabulary=None, seed=2, **options):
    """A random head; it guesses `vocabulary` of the target's tokens."""
    head = eagle_of(target, vocabulary=vocabulary, **options)
    mx.random.seed(seed)

    def drawn(_path, values):
        if values.ndim < 2:
            return 1.0 + 0.1 * mx.random.normal(values.shape)
        return mx.random.normal(values.shape) * (1.2 / values.shape[-1] ** 0.5)

    filled(head, drawn)
    if vocabulary is not None:
        size = decoder_of(target)[1].embed_tokens.weight.shape[0]
        ids = np.sort(np.random.default_rng(seed).permutation(size)[:vocabulary])
        set_draft_vocabulary(head, target, mx.array(ids.astype(np.int32)))
    return head


def matched_eagle(target):
    """A head that is right about a Markov target, by its states alone.

    The feature is the state in the last of the three layers, the unit vector of a token. The layer
    makes that of the successor, and the output head one more step.
    """
    head = eagle_of(target)
    none, one = mx.zeros((SIZE, SIZE)), mx.eye(SIZE)
    # The normed unit vector is 8 long, and so are gate and up.
    down = (STEP - one) / (64 / (1 + np.exp(-8)))
    for name, weight in {"gate_proj": one, "up_proj": one, "down_proj": down}.items():
        head.midlayer.mlp[name].weight = weight
    added = mx.zeros_like(head.midlayer.self_attn.o_proj.weight)
    head.midlayer.self_attn.o_proj.weight = added
    head.fc.weight = mx.concatenate([none, none, one], axis=1)
    head.lm_head.weight = STEP
    head.eval()
    return head


def eagle_config(head, **changes):
    """The config of a head, as the authors and SpecForge write it."""
    args = head.midlayer.args
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": head.width, "intermediate_size": args.intermediate_size,
        "num_attention_heads": args.num_attention_heads, "num_hidden_layers": 1,
        "num_key_value_heads": args.num_key_value_heads, "head_dim": args.head_dim,
        "rms_norm_eps": args.rms_norm_eps, "rope_theta": args.rope_theta,
        "rope_scaling": args.rope_scaling, "vocab_size": 97, "tie_word_embeddings": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(head.takes)},
    }  # fmt: skip
    return {**config, **changes}


def eagle_tensors(head, *, layer="midlayer."):
    """The tensors of a head by their published names, with those that are not used."""
    arrays = dict(parameters_of(head))
    if "lm_head.ids" in arrays:
        ids = arrays.pop("lm_head.ids")
        arrays["d2t"] = (ids - mx.arange(ids.size)).astype(mx.int64)
        arrays["t2d"] = mx.zeros((97,), dtype=mx.bool_)
    arrays = {name.replace("lm_head.rows.", "lm_head."): array for name, array in arrays.items()}
    return {name.replace("midlayer.", layer): array for name, array in arrays.items()}


def write_eagle(folder, arrays, config):
    write(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def nested_config(head, **changes):
    """The config of a head, as speculators writes it."""
    layer = eagle_config(head)
    ids = layer.pop("eagle_config")["eagle_aux_hidden_state_layer_ids"]
    rope = {"rope_type": "default", **(layer.pop("rope_scaling") or {})}
    layer["rope_parameters"] = {**rope, "rope_theta": layer.pop("rope_theta")}
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "eagle_aux_hidden_state_layer_ids": ids, "target_hidden_size": None,
        "norm_before_fc": False, "transformer_layer_config": layer, **changes,
    }  # fmt: skip
