"""What most decoders have in common: sizes, and the names of attention and feed-forward parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.keys import MAX_SIZE, Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.reader import TensorInfo

MAX_LAYERS = 10_000
MAX_CONTEXT = 1 << 40
_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,9})\.")

EMBEDDING = "token_embd"
OUTPUT = "output"
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a decoder.

    Attributes:
        hidden_size: the width of the residual stream.
        num_layers: blocks, those for predicting further tokens left out.
        num_heads: query heads.
        num_kv_heads: key and value heads, a divisor of num_heads.
        head_dim: of one head.
        feed_forward_size: the width inside the feed-forward part; 0 where the file has none.
        context_length: tokens the model was trained for.
        vocabulary_size: rows of the embedding.
        tied: whether the embedding also makes the logits.

    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    feed_forward_size: int
    context_length: int
    vocabulary_size: int
    tied: bool


def read_dimensions(
    keys: Keys, tensors: Mapping[str, TensorInfo], *, feed_forward: bool = True
) -> Dimensions:
    """Return the sizes of a decoder whose layers have equal heads.

    Raises ModelFormatError, naming key or tensor, where they contradict each other or the file.
    """
    width = keys.integer("embedding_length")
    layers = read_num_layers(keys, tensors)
    heads = keys.integer("attention.head_count", high=1 << 16)
    kv_heads = keys.integer("attention.head_count_kv", heads, high=1 << 16)
    if heads % kv_heads:
        raise keys.error("attention.head_count_kv", kv_heads, f"a divisor of the {heads} heads")
    return Dimensions(
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=read_head_dim(keys, width, heads),
        feed_forward_size=keys.integer("feed_forward_length") if feed_forward else 0,
        context_length=keys.integer("context_length", high=MAX_CONTEXT),
        vocabulary_size=read_vocabulary_size(keys, tensors, width),
        tied=f"{OUTPUT}.weight" not in tensors,
    )


def read_head_dim(keys: Keys, width: int, heads: int) -> int:
    """Return the width of a head; raises ModelFormatError for an odd one."""
    if "attention.key_length" not in keys and width % heads:
        raise keys.error("embedding_length", width, f"a multiple of the {heads} heads")
    head_dim = keys.integer("attention.key_length", max(1, width // heads), high=1 << 16)
    if heads * head_dim > MAX_SIZE:
        # Before anything of that size is made.
        raise keys.error("attention.key_length", head_dim, f"at most {MAX_SIZE // heads}")
    if head_dim % 2:
        raise keys.error("attention.key_length", head_dim, "even")
    return head_dim


def require_whole_heads(keys: Keys, head_dim: int) -> None:
    """Raise UnsupportedArchitectureError where values or rotation are not as wide as the head."""
    for key, what in (("attention.value_length", "values"), ("rope.dimension_count", "rotation")):
        if (size := keys.integer(key, head_dim, low=0)) != head_dim:
            raise keys.unsupported(key, size, f"{what} as wide as the head, here {head_dim}")


def read_rotated(keys: Keys, head_dim: int, default: int | None = None) -> int:
    """Return how many dimensions of a head rotate, even and at most all."""
    default = head_dim if default is None else default
    rotated = keys.integer("rope.dimension_count", default, low=2, high=head_dim)
    if rotated % 2:
        raise keys.error("rope.dimension_count", rotated, "even")
    return rotated


def rms_eps(keys: Keys) -> float:
    """Return what is added to the mean square in an RMS norm."""
    return keys.number("attention.layer_norm_rms_epsilon", low=0, high=1)


def layer_norm_eps(keys: Keys) -> float:
    """Return what is added to the variance in a layer norm."""
    return keys.number("attention.layer_norm_epsilon", low=0, high=1)


def read_num_layers(keys: Keys, tensors: Mapping[str, TensorInfo]) -> int:
    """Return the number of blocks to run, checked against the tensors that are there.

    Blocks that predict further tokens (`nextn_predict_layers`) are at the end and not counted.
    """
    _embedding(tensors)
    layers = keys.integer("block_count", high=MAX_LAYERS)
    extra = keys.integer("nextn_predict_layers", 0, low=0, high=MAX_LAYERS)
    present = {int(match[1]) for name in tensors if (match := _BLOCK.match(name))}
    if extra >= layers or not set(range(layers - extra)) <= present <= set(range(layers)):
        raise ModelFormatError(
            f"the metadata announces {layers} layers and the file holds {len(present)}; the file "
            "is incomplete: download it again"
        )
    return layers - extra


def extra_blocks(num_layers: int, block_count: int) -> str:
    """Return a regular expression for the tensors of blocks that predict further tokens."""
    numbers = "|".join(str(layer) for layer in range(num_layers, block_count))
    return rf"blk\.({numbers})\..*" if numbers else r"(?!)"


def read_vocabulary_size(keys: Keys, tensors: Mapping[str, TensorInfo], width: int) -> int:
    """Return the embedding's rows; raises ModelFormatError where they contradict the metadata."""
    embedding = _embedding(tensors)
    if len(embedding.shape) != 2 or embedding.shape[1] != width:
        raise ModelFormatError(
            f"'token_embd.weight' has the shape {embedding.shape} where the metadata asks for "
            f"(vocabulary, {width}); download or convert the model again"
        )
    size = embedding.shape[0]
    tokens = keys.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) != size:
        raise ModelFormatError(
            f"the vocabulary has {len(tokens)} tokens and the embedding {size} rows; download or "
            "convert the model again"
        )
    return size


def _embedding(tensors: Mapping[str, TensorInfo]) -> TensorInfo:
    embedding = tensors.get(f"{EMBEDDING}.weight")
    if embedding is None:
        raise ModelFormatError(
            "the file has no tensor 'token_embd.weight': it holds a vocabulary only, or a part of "
            "a model; give a whole model"
        )
    return embedding


def has_biases(
    tensors: Mapping[str, TensorInfo], layers: int, parts: tuple[str, ...], what: str
) -> bool:
    """Return whether parts of every layer have a bias.

    Raises UnsupportedArchitectureError where some have and some have not.
    """
    names = [f"blk.{layer}.{part}.bias" for layer in range(layers) for part in parts]
    present = sum(name in tensors for name in names)
    if present not in (0, len(names)):
        raise UnsupportedArchitectureError(
            f"only {present} of {len(names)} {what} biases are there; akunu runs models that have "
            "all of them or none"
        )
    return present > 0


def frame_rules(
    tied: bool, *, body: str = "model", head: str = "lm_head", copied: bool = False
) -> list[Rule]:
    """Return the rules for embedding, last norm and, unless `tied`, the head.

    `copied`: the class has a head of its own always; where tied, a copy of the embedding.
    """
    rules = [module(EMBEDDING, f"{body}.embed_tokens"), module("output_norm", f"{body}.norm")]
    if not tied or copied:
        rules.append(module(EMBEDDING if tied else OUTPUT, head))
    return rules
