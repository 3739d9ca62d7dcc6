"""GGUF metadata to the arguments of a model, every value checked against its range.

A further architecture is one entry in `_READERS` and one in `names`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.reader import TensorInfo

_MAX_LAYERS = 10_000
_MAX_SIZE = 1 << 24
_MAX_CONTEXT = 1 << 40
_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,9})\.")
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
_FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")
# Keys of related families: they change what the model computes, and mlx-lm's llama has no
# argument for them.
_UNSUPPORTED_KEYS = (
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What a model of the llama family is made of.

    Attributes:
        architecture: `general.architecture`.
        hidden_size: the width of the residual stream.
        num_layers: blocks.
        num_heads: query heads.
        num_kv_heads: key and value heads, a divisor of num_heads.
        head_dim: of one head, even.
        feed_forward_size: the width inside the feed-forward part.
        rms_norm_eps: added to the mean square in a norm.
        rope_base: of the rotary frequencies, base ** (-2 i / head_dim).
        rope_linear_factor: positions are divided by it; 1.0 is none.
        context_length: tokens the model was trained for.
        vocabulary_size: rows of the embedding.
        tied_embeddings: whether the embedding also makes the logits.
        attention_bias: whether q, k, v and output projections have a bias.
        mlp_bias: whether the feed-forward projections have a bias.
        has_rope_frequencies: whether `rope_freqs.weight` is there (Llama 3.1 and later). Then
            frequency i is to be divided by entry i of it; this is the only form in which GGUF
            holds that scaling, so whoever builds the model replaces its rotary layer by one with
            these frequencies (mlx: `freqs = base ** (2 i / head_dim) * rope_freqs`).

    """

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    feed_forward_size: int
    rms_norm_eps: float
    rope_base: float
    rope_linear_factor: float
    context_length: int
    vocabulary_size: int
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    has_rope_frequencies: bool

    def to_mlx_args(self) -> dict[str, Any]:
        """Return the keyword arguments of `mlx_lm.models.llama.ModelArgs`.

        `rope_traditional` is True: converters reorder the rows of q and k so that adjacent pairs
        rotate together. `has_rope_frequencies` has no argument there; see its description.
        """
        scaling = None
        if self.rope_linear_factor != 1.0:
            scaling = {"type": "linear", "factor": self.rope_linear_factor}
        return {
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "intermediate_size": self.feed_forward_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.rms_norm_eps,
            "vocab_size": self.vocabulary_size,
            "max_position_embeddings": self.context_length,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            "rope_theta": self.rope_base,
            "rope_traditional": True,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
        }


class _Keys:
    """Typed access to the metadata of one architecture."""

    def __init__(self, metadata: Mapping[str, MetadataValue], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def __contains__(self, key: str) -> bool:
        return f"{self._prefix}.{key}" in self._metadata

    def _value(self, key: str, default: MetadataValue | None) -> MetadataValue:
        value = self._metadata.get(f"{self._prefix}.{key}", default)
        if value is None:
            raise ModelFormatError(
                f"the metadata has no {self._prefix}.{key}; the file is incomplete: download or "
                "convert the model again"
            )
        return value

    def error(self, key: str, value: object, wanted: str) -> ModelFormatError:
        return ModelFormatError(
            f"{self._prefix}.{key} is {value!r}, not {wanted}; the file is damaged: download or "
            "convert the model again"
        )

    def integer(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = _MAX_SIZE
    ) -> int:
        """Return a whole number in range; an array a layer is taken where all are equal."""
        value = self._value(key, default)
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "iu" or value.size == 0:
                raise self.error(key, value, "a whole number")
            if (value != value[0]).any():
                raise UnsupportedArchitectureError(
                    f"{self._prefix}.{key} differs from layer to layer; akunu runs models with "
                    "equal layers only"
                )
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        """Return a number in (low, high]."""
        value = self._value(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not low < value <= high
        ):
            raise self.error(key, value, f"a number above {low}, at most {high}")
        return float(value)

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, value, "a text")
        return value


def _linear_factor(keys: _Keys) -> float:
    kind = keys.text("rope.scaling.type", "none")
    old = keys.number("rope.scale_linear", 1.0, low=0, high=1e6)
    factor = keys.number("rope.scaling.factor", old, low=0, high=1e6)
    if kind not in ("none", "linear"):
        raise UnsupportedArchitectureError(
            f"the model scales its positions by {kind!r}; akunu knows 'linear' and the "
            "frequencies of Llama 3"
        )
    return factor if kind == "linear" else old


def _all_or_none(
    tensors: Mapping[str, TensorInfo], layers: int, parts: tuple[str, ...], what: str
) -> bool:
    names = [f"blk.{layer}.{part}.bias" for layer in range(layers) for part in parts]
    present = sum(name in tensors for name in names)
    if present not in (0, len(names)):
        raise UnsupportedArchitectureError(
            f"only {present} of {len(names)} {what} biases are there; akunu runs llama models "
            "that have all of them or none"
        )
    return present > 0


def _vocabulary_size(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo], width: int
) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFormatError(
            "the file has no tensor 'token_embd.weight': it holds a vocabulary only, or one part "
            "of a split model; give a whole model"
        )
    if len(embedding.shape) != 2 or embedding.shape[1] != width:
        raise ModelFormatError(
            f"'token_embd.weight' has the shape {embedding.shape} where the metadata asks for "
            f"(vocabulary, {width}); download or convert the model again"
        )
    size = embedding.shape[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) != size:
        raise ModelFormatError(
            f"the vocabulary has {len(tokens)} tokens and the embedding {size} rows; download or "
            "convert the model again"
        )
    return size


def _check_layers(tensors: Mapping[str, TensorInfo], layers: int) -> None:
    present = {int(match[1]) for name in tensors if (match := _BLOCK.match(name))}
    if present != set(range(layers)):
        raise ModelFormatError(
            f"the metadata announces {layers} layers and the file holds {len(present)}; the file "
            "is incomplete, or one part of a split model"
        )


def _read_llama(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo], architecture: str
) -> LlamaConfig:
    keys = _Keys(metadata, architecture)
    experts = keys.integer("expert_count", 0, low=0)
    if experts > 0:
        raise UnsupportedArchitectureError(
            f"{architecture}.expert_count is {experts}: mixtures of experts come with a later "
            "release; use a dense model"
        )
    for key in _UNSUPPORTED_KEYS:
        if key in keys:
            raise UnsupportedArchitectureError(
                f"the model sets {architecture}.{key}, which akunu cannot apply; use another model"
            )
    width = keys.integer("embedding_length")
    layers = keys.integer("block_count", high=_MAX_LAYERS)
    vocabulary_size = _vocabulary_size(metadata, tensors, width)
    _check_layers(tensors, layers)
    heads = keys.integer("attention.head_count", high=1 << 16)
    kv_heads = keys.integer("attention.head_count_kv", heads, high=1 << 16)
    if heads % kv_heads:
        raise keys.error("attention.head_count_kv", kv_heads, f"a divisor of the {heads} heads")
    if "attention.key_length" not in keys and width % heads:
        raise keys.error("embedding_length", width, f"a multiple of the {heads} heads")
    head_dim = keys.integer("attention.key_length", max(1, width // heads), high=1 << 16)
    if head_dim % 2:
        raise keys.error("attention.key_length", head_dim, "even")
    for key, what in (("attention.value_length", "values"), ("rope.dimension_count", "rotation")):
        if (size := keys.integer(key, head_dim, low=0)) != head_dim:
            raise UnsupportedArchitectureError(
                f"{architecture}.{key} is {size} and the head {head_dim} wide; akunu runs llama "
                f"models whose {what} have the width of the head"
            )
    frequencies = "rope_freqs.weight" in tensors
    factor = _linear_factor(keys)
    if frequencies and factor != 1.0:
        raise UnsupportedArchitectureError(
            "the model has both rope_freqs.weight and a linear scaling of positions; akunu knows "
            "either, not both"
        )
    return LlamaConfig(
        architecture=architecture,
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward_size=keys.integer("feed_forward_length"),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon", low=0, high=1),
        rope_base=keys.number("rope.freq_base", 10000.0, low=1, high=1e12),
        rope_linear_factor=factor,
        context_length=keys.integer("context_length", high=_MAX_CONTEXT),
        vocabulary_size=vocabulary_size,
        tied_embeddings="output.weight" not in tensors,
        attention_bias=_all_or_none(tensors, layers, _ATTENTION, "attention"),
        mlp_bias=_all_or_none(tensors, layers, _FEED_FORWARD, "feed-forward"),
        has_rope_frequencies=frequencies,
    )


_Reader = Callable[[Mapping[str, MetadataValue], Mapping[str, TensorInfo], str], LlamaConfig]
_READERS: dict[str, _Reader] = {"llama": _read_llama}


def supported_architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that akunu can run."""
    return tuple(sorted(_READERS))


def read_config(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo]
) -> LlamaConfig:
    """Return the model's arguments, from `GGUFFile.metadata` and `GGUFFile.tensors`.

    Raises UnsupportedArchitectureError, naming what is not supported, for a sound file of a model
    akunu cannot run, and ModelFormatError, naming the key, for a value out of its range.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFormatError(
            "the metadata has no general.architecture: this is not a language model's file"
        )
    parts = metadata.get("split.count", 0)
    if not isinstance(parts, int) or parts > 1:
        raise ModelFormatError(
            f"the model is split into {parts} files; join them with llama.cpp's "
            "`llama-gguf-split --merge` and give the whole"
        )
    if architecture not in _READERS:
        raise UnsupportedArchitectureError(
            f"the model is of the architecture {architecture!r}; akunu runs "
            f"{', '.join(supported_architectures())} from GGUF"
        )
    return _READERS[architecture](metadata, tensors, architecture)
