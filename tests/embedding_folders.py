"""A tiny random model of embeddings as sentence-transformers saves them; needs neither MLX nor akunu."""

import json

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

END = "<|end|>"
PROMPTS = {"query": "Query: ", "document": ""}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
    "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "vocab_size": 257,
    "max_position_embeddings": 2048, "rope_theta": 1000000.0, "tie_word_embeddings": False,
    "attention_bias": False, "hidden_act": "silu", "eos_token_id": 256, "dtype": "float32",
}  # fmt: skip
_MODULES = ("Transformer", "Pooling", "Normalize")


def write_embedder(folder, pooling="lasttoken"):
    """Write the model; its weights are without a head, and named as those of the layers alone."""
    folder.mkdir()
    (folder / "1_Pooling").mkdir()
    flags = {f"pooling_mode_{name}": name == pooling for name in ("lasttoken", "mean_tokens")}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 64, **flags})
    _write(folder / "config.json", CONFIG)
    _write(folder / "config_sentence_transformers.json", {"prompts": PROMPTS})
    paths = ("", "1_Pooling", "2_Normalize")
    types = [f"sentence_transformers.models.{name}" for name in _MODULES]
    _write(folder / "modules.json", [
        {"idx": place, "name": str(place), "path": path, "type": kind}
        for place, (path, kind) in enumerate(zip(paths, types, strict=True))
    ])  # fmt: skip
    save_file(_weights(), folder / "model.safetensors")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, 256)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
        "padding_side": "left",
    }  # fmt: skip
    _write(folder / "tokenizer_config.json", settings)
    return folder


def _weights():
    random = np.random.default_rng(5)

    def matrix(rows, columns, std=1.0):
        return random.normal(0, std * columns**-0.5, (rows, columns)).astype(np.float32)

    def vector(size):
        return random.normal(1, 0.1, size).astype(np.float32)

    found = {"embed_tokens.weight": matrix(257, 64, 2.0), "norm.weight": vector(64)}
    for layer in range(3):
        block = f"layers.{layer}."
        for name, rows, columns, std in (
            ("self_attn.q_proj", 64, 64, 2.0), ("self_attn.k_proj", 32, 64, 2.0),
            ("self_attn.v_proj", 32, 64, 1.0), ("self_attn.o_proj", 64, 64, 1.0),
            ("mlp.gate_proj", 96, 64, 1.0), ("mlp.up_proj", 96, 64, 1.0),
            ("mlp.down_proj", 64, 96, 1.0),
        ):  # fmt: skip
            found[f"{block}{name}.weight"] = matrix(rows, columns, std)
        for name, size in (
            ("input_layernorm", 64), ("post_attention_layernorm", 64), ("self_attn.q_norm", 16),
            ("self_attn.k_norm", 16),
        ):  # fmt: skip
            found[f"{block}{name}.weight"] = vector(size)
    return found


def _write(path, content):
    path.write_text(json.dumps(content))
