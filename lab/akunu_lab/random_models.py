"""Models of real size with random weights, to measure speed without a download."""

from collections.abc import Mapping

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama

from akunu_py.api import ConfigError, Engine, Tokenizer

_CONTEXT = 8192
_SEED = 0
_SCALE = 0.02

RANDOM_MODELS: Mapping[str, Mapping[str, int | float | bool | str]] = {
    # The shapes of SmolLM 135M (Hugging Face, Apache-2.0).
    "llama-135m": {
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
        "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5, "vocab_size": 49152, "rope_theta": 10000.0,
        "max_position_embeddings": _CONTEXT, "tie_word_embeddings": True,
    },
    "llama-tiny": {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "vocab_size": 49152, "rope_theta": 10000.0, "max_position_embeddings": _CONTEXT,
        "tie_word_embeddings": True,
    },
}  # fmt: skip


def build_random_model(name: str, tokenizer: Tokenizer) -> Engine:
    """Return an engine over a model with random float32 weights, the same in every run.

    The tokenizer's ids must be among the model's. Raises ConfigError for an unknown name or a
    vocabulary that is larger than the model's.
    """
    if name not in RANDOM_MODELS:
        raise ConfigError(
            f"there is no random model named {name!r}; choose from {', '.join(RANDOM_MODELS)}"
        )
    arguments = llama.ModelArgs.from_dict(dict(RANDOM_MODELS[name]))
    if tokenizer.vocabulary_size > arguments.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocabulary_size} ids and the random model {name} only "
            f"{arguments.vocab_size}; choose another tokenizer"
        )
    model = llama.Model(arguments)
    # Separate keys: equal weights in every run, and MLX's global random state is unchanged.
    keys = iter(mx.random.split(mx.random.key(_SEED), len(tree_flatten(model.parameters()))))
    model.update(tree_map(lambda array: _random_like(array, next(keys)), model.parameters()))
    mx.eval(model.parameters())
    engine = Engine.of(model, tokenizer, name=f"{name}, random weights", context=_CONTEXT)
    engine.compares_rows = False
    return engine


def _random_like(array: mx.array, key: mx.array) -> mx.array:
    """Return random numbers for a matrix, ones for the weights of a norm."""
    if array.ndim < 2:
        return mx.ones(array.shape, dtype=mx.float32)
    return mx.random.normal(array.shape, dtype=mx.float32, scale=_SCALE, key=key)
