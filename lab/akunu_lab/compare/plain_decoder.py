"""A loaded model's weights in float32, named and ordered as Hugging Face's classes expect them.

They let another program run the same weights. Only decoders like llama are supported, whose
parameters mlx-lm names as Hugging Face does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.api import ConfigError

_MODULES = {f"mlx_lm.models.{name}": name for name in ("llama", "qwen2", "qwen3")}
_ARGUMENTS = (
    "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
    "num_key_value_heads", "rms_norm_eps", "vocab_size", "head_dim", "max_position_embeddings",
    "attention_bias", "mlp_bias", "tie_word_embeddings",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """A decoder in plain numbers.

    Attributes:
        model_type: Hugging Face's name of the class: llama, qwen2 or qwen3.
        config: arguments of its configuration, without the rotary frequencies.
        arrays: float32, by Hugging Face's names. The halves of a head rotate together, not
            neighbours.
        float32: whether the model itself computes in float32.
        inverse_frequencies: float32 [head_dim / 2]; position p rotates pair i by p times number i.

    """

    model_type: str
    config: dict[str, Any]
    arrays: dict[str, NDArray[np.float32]]
    float32: bool
    inverse_frequencies: NDArray[np.float32]


def plain_decoder(model: nn.Module, dense: Mapping[str, mx.array]) -> PlainDecoder:
    """Return a model's weights for another program, from its `dense` parameters by their paths.

    Raises ConfigError for another family, sliding windows, and rotary layers that do more than
    rotate all of a head by fixed frequencies.
    """
    model_type = _MODULES.get(type(model).__module__)
    if model_type is None:
        raise ConfigError(
            f"{type(model).__module__} is not among the model classes whose weights are handed "
            f"over: {', '.join(_MODULES.values())}"
        )
    args = model.args
    if any("sliding" in str(kind) for kind in getattr(args, "layer_types", None) or ()):
        raise ConfigError("it has layers with a sliding window")
    config = {name: getattr(args, name) for name in _ARGUMENTS if hasattr(args, name)}
    rope = model.layers[0].self_attn.rope
    heads = {"q_proj": args.num_attention_heads, "k_proj": args.num_key_value_heads}
    rows = model.layers[0].self_attn.k_proj.weight.shape[0]
    head_dim = rows // args.num_key_value_heads
    config["head_dim"] = head_dim
    if rope.dims != head_dim:
        raise ConfigError(f"its rotary layers rotate {rope.dims} of {head_dim} dimensions")
    frequencies = _inverse_frequencies(rope)
    arrays: dict[str, NDArray[np.float32]] = {}
    for path, array in dense.items():
        numbers = np.array(array, dtype=np.float32)
        part = path.split(".")[-2]
        if rope.traditional and part in heads:
            numbers = _by_halves(numbers, heads[part])
        arrays[path] = numbers
    # The weights of norms have the type of the activations.
    float32 = model.layers[0].input_layernorm.weight.dtype == mx.float32
    return PlainDecoder(model_type, config, arrays, float32, frequencies)


def _inverse_frequencies(rope: nn.Module) -> NDArray[np.float32]:
    if getattr(rope, "wavelengths", None) is not None and rope.scale == 1:
        # akunu's own layer, of any frequencies.
        return np.array(1 / rope.wavelengths, dtype=np.float32)
    if type(rope) is nn.RoPE:
        exponents = np.arange(0, rope.dims, 2, dtype=np.float64) / rope.dims
        return np.asarray(rope.scale * float(rope.base) ** -exponents, dtype=np.float32)
    if type(rope).__name__ == "Llama3RoPE":
        wavelengths: mx.array = rope._freqs  # noqa: SLF001 - mlx-lm has no public name
        return np.array(1 / wavelengths, dtype=np.float32)
    raise ConfigError(f"its rotary layers are a {type(rope).__name__}")


def _by_halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of each head from pairs of neighbours to pairs across its halves."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))
