"""Gemma 4's targets and assistants, tiny: random ones, and such as know a Markov target's text.

Kinds of layers are mixed as in the published sizes: E2B and E4B share keys between their last
layers, have embeddings for each layer and an assistant that looks at clusters of tokens; 12B, 26B
and 31B share none and use keys as values where everything is seen.
"""

import functools
import json

import gguf
import mlx.core as mx
import numpy as np
from gguf_files import finish
from markov_heads import SIZE, STEP, filled, without_outputs
from mlx_lm.models import gemma4_text
from model_folders import write_tokenizer
from prediction_heads import parameters_of, write
from tiny_families import GEMMA_4, VOCABULARY

from akunu_py.models.heads import make_head_model
from akunu_py.models.heads.assistant import Clusters, make_assistant

SMALL = {**GEMMA_4, "num_global_key_value_heads": None}
LARGE = {
    **GEMMA_4, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "use_double_wide_mlp": False,
}  # fmt: skip
_MARKOV = {
    "head_dim": 32, "global_head_dim": 32, "tie_word_embeddings": False, "attention_k_eq_v": False,
    "final_logit_softcapping": None,
}  # fmt: skip
TARGETS = {"small": SMALL, "large": LARGE}
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
HIDDEN, CLUSTERS, ACTIVE = 32, 12, 3


def tiny_gemma(name="small", *, vocabulary=VOCABULARY - 1, seed=1):
    """A random target; the vocabulary can be divided into clusters."""
    sizes = {"vocab_size": vocabulary, "vocab_size_per_layer_input": vocabulary}
    args = gemma4_text.ModelArgs.from_dict(TARGETS[name] | sizes)
    return _drawn(gemma4_text.Model(args), seed)


def random_assistant(target, *, clusters=False, layers=LAYERS, seed=2, **options):
    arguments = {
        "hidden_size": HIDDEN, "num_hidden_layers": len(layers), "intermediate_size": 48,
        "num_attention_heads": 4, "head_dim": target.args.head_dim,
        "global_head_dim": target.args.global_head_dim, "layer_types": list(layers),
        "vocab_size": target.args.vocab_size, **options,
    }  # fmt: skip
    assistant = make_assistant(gemma4_text.ModelArgs(**arguments), target)
    size = target.args.vocab_size
    if clusters:
        assistant.masked_embedding = Clusters(arguments["hidden_size"], CLUSTERS, size, ACTIVE)
    _drawn(assistant, seed)
    if clusters:
        order = np.random.default_rng(seed).permutation(size).astype(np.int32)
        assistant.masked_embedding.token_ordering = mx.array(order)
    return assistant


def _drawn(model, seed):
    mx.random.seed(seed)

    def drawn(path, values):
        if values.dtype != mx.float32:
            return values
        if values.ndim < 2:
            return (0.8 if "scalar" in path else 1.0) + 0.1 * mx.random.normal(values.shape)
        # So small that a token does not foretell itself.
        scale = 0.15 if path == "model.embed_tokens.weight" else 1.2
        return mx.random.normal(values.shape) * (scale / values.shape[-1] ** 0.5)

    return filled(model, drawn)


def markov_gemma(name="small", size=SIZE):
    """A target whose next token is the successor, or with another size depends on the last alone.

    Its keys are the same for each token, so that queries can look for a distance. Its values are
    the token.
    """
    arguments = {
        **TARGETS[name], **_MARKOV, "vocab_size": size, "vocab_size_per_layer_input": size,
    }  # fmt: skip
    mx.random.seed(1)
    target = gemma4_text.Model(gemma4_text.ModelArgs.from_dict(arguments))

    def known(path, values):
        if path.endswith("embed_tokens.weight") and size == SIZE:
            return mx.eye(SIZE)
        if path.endswith("lm_head.weight") and size == SIZE:
            return STEP
        if path.endswith("per_layer_projection.weight"):
            return mx.zeros_like(values)
        if path.endswith("k_proj.weight"):
            return mx.ones_like(values)
        if path.endswith("v_proj.weight"):
            return mx.eye(SIZE)
        return without_outputs(path, values)

    return filled(target, known)


def matched_assistant(target, *, reads):
    """An assistant that is right about a Markov target.

    It knows the next token by the last one ("token"), by the target's state of the row before
    ("state"), or by the values of the row before, which only its queries find ("sliding_attention"
    or "full_attention", the kind of its layer), or of the row before that (", two rows back").
    Those that look back guess one token.
    """
    looks = reads not in ("token", "state")
    kind, _, two = reads.partition(",") if looks else ("full_attention", "", "")
    assistant = random_assistant(target, layers=[kind], hidden_size=SIZE)
    none, one = mx.zeros((SIZE, SIZE)), mx.eye(SIZE)

    def known(path, values):
        if path == "pre_projection.weight":
            return mx.concatenate([none, STEP] if reads == "state" else [one, none], axis=1)
        if path == "post_projection.weight":
            return one
        if path == "embed_tokens.weight":
            # What it looks back at is the token before the last, or the one before that.
            steps = [STEP] * (1 + bool(two)) if looks else []
            return functools.reduce(mx.matmul, steps, target.lm_head.weight)
        if path.endswith("layer_scalar"):
            return mx.ones_like(values)
        if looks:
            return _looking_back(path, values, target, kind, 2 if two else 1)
        return without_outputs(path, values)

    return filled(assistant, known)


def _looking_back(path, values, target, kind, distance):
    """Weights of a layer whose attention goes to a row before its own, and covers what was."""
    if path.endswith("q_proj.weight"):
        return mx.ones_like(values)
    if path.endswith("q_norm.weight"):
        return 200 * _turned_back(target, kind, distance)
    if path.endswith("o_proj.weight"):
        # Of four heads the first two see the first half of the token, the others the second.
        none = mx.zeros((32, 32))
        first = mx.concatenate([mx.eye(32), none, none, none], axis=1)
        second = mx.concatenate([none, none, mx.eye(32), none], axis=1)
        return mx.concatenate([first, second])
    if path.endswith("post_attention_layernorm.weight"):
        return mx.full(values.shape, 100.0)
    return without_outputs(path, values)


def _turned_back(target, kind, distance):
    """The query that, rotated to a place, equals a key of ones rotated to a place before."""
    rope = next(layer.self_attn.rope for layer in target.layers if layer.layer_type == kind)
    ones = mx.ones((1, 1, 1, 32))
    # Rotations keep lengths, so the inverse is the transpose.
    matrix = mx.concatenate([rope(row.reshape(1, 1, 1, 32), offset=distance) for row in mx.eye(32)])
    return (matrix.reshape(32, 32) @ ones.reshape(32, 1)).reshape(32)


def assistant_model(assistant, context=600):
    size = assistant.embed_tokens.weight.shape[0]
    return make_head_model(assistant, context=context, vocabulary_size=size)


def checkpoint(assistant):
    """The tensors of an assistant as Google's checkpoints name them."""
    own = {"pre_projection", "post_projection", "masked_embedding"}
    return {
        path if path.partition(".")[0] in own else f"model.{path}": array.astype(mx.int64)
        if array.dtype == mx.int32
        else array
        for path, array in parameters_of(assistant).items()
    }


def config_of(assistant, **changes):
    """config.json of an assistant, with the names that published files have."""
    args = assistant.layers[0].self_attn.config
    text = {
        "model_type": "gemma4_text", "rms_norm_eps": args.rms_norm_eps, "attention_bias": False,
        **{
            name: getattr(args, name)
            for name in (
                "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
                "head_dim", "global_head_dim", "layer_types", "vocab_size", "sliding_window",
            )
        },
    }  # fmt: skip
    clusters = "masked_embedding" in assistant
    return {
        "model_type": "gemma4_assistant", "backbone_hidden_size": assistant.width,
        "use_ordered_embeddings": clusters, "num_centroids": CLUSTERS if clusters else 2048,
        "centroid_intermediate_top_k": ACTIVE if clusters else 32, "tie_word_embeddings": True,
        "text_config": text, **changes,
    }  # fmt: skip


def write_assistant(folder, assistant, **changes):
    write(folder / "model.safetensors", checkpoint(assistant))
    (folder / "config.json").write_text(json.dumps(config_of(assistant, **changes)))
    return folder


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "pre_projection": "nextn.pre_projection", "post_projection": "nextn.post_projection",
    "self_attn.q_proj": "attn_q", "self_attn.q_norm": "attn_q_norm",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "layer_scalar": "layer_output_scale",
}  # fmt: skip


def gguf_tensors(assistant):
    """Tensors as llama.cpp's converter names them (conversion/gemma.py)."""
    found = {"rope_freqs.weight": np.ones(16, np.float32)}
    for name, array in checkpoint(assistant).items():
        if name.startswith("masked_embedding"):
            continue
        block, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
        if block.isdigit():
            found[f"blk.{block}.{GGUF_NAMES[part]}.weight"] = np.array(array)
        else:
            found[f"{GGUF_NAMES[name.removesuffix('.weight')]}.weight"] = np.array(array)
    return found


KEYS = {
    "block_count": 3, "context_length": 256, "embedding_length": 32, "embedding_length_out": 64,
    "feed_forward_length": 48, "attention.head_count": 4, "attention.head_count_kv": [2, 2, 1],
    "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16,
    "attention.value_length_swa": 16, "attention.sliding_window": 16,
    "attention.sliding_window_pattern": [True, True, False], "attention.shared_kv_layers": 3,
    "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": 32,
    "rope.dimension_count_swa": 16, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
    "nextn_predict_layers": 3, "embedding_length_per_layer_input": 0,
    "final_logit_softcapping": 30.0,
}  # fmt: skip


def write_gguf(path, tensors, keys=KEYS, architecture="gemma4-assistant", kind=None, other=None):
    """Write a file; `other` has keys that do not begin with the architecture."""
    writer = gguf.GGUFWriter(str(path), architecture)
    own = {f"{architecture}.{key}": value for key, value in keys.items()}
    for key, value in (own | (other or {})).items():
        add = {
            bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
            list: writer.add_array, str: writer.add_string,
        }[type(value)]  # fmt: skip
        add(key, value)
    for name, array in tensors.items():
        if kind is not None and array.ndim == 2 and array.shape[-1] % 32 == 0:
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    finish(writer)
    return path


def kept_rows(target, assistant, tokens):
    """Keys and values of a text, and its states after the last norm, from one pass."""
    caches = target.make_cache()
    states = target.model(mx.array([tokens]), cache=caches)
    kept = {}
    for kind, source in assistant.sources.items():
        cache = caches[source.cache]
        # The pass was the first: all its rows are there, in order.
        keys, values = (a[..., : len(tokens), :] for a in (cache.keys, cache.values))
        most = source.most or len(tokens)
        kept[kind] = (keys[..., -most:, :], values[..., -most:, :])
    return states, kept


def write_gemma_folder(folder):
    """An MLX folder of a target whose next token depends on the last one alone."""
    target = markov_gemma("large", size=300)
    write(folder / "model.safetensors", parameters_of(target))
    arguments = {**LARGE, **_MARKOV, "model_type": "gemma4_text", "vocab_size": 300}
    (folder / "config.json").write_text(json.dumps(arguments))
    write_tokenizer(folder)
    return target
