"""The model that a reader describes: its sizes, checked when they are read, and its plan."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.keys import MAX_SIZE, Keys
from akunu_py.gguf.names import Rule, place
from akunu_py.gguf.plan import ModelPlan, RotaryFactors, RotaryScaling
from akunu_py.gguf.reader import TensorInfo
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

MAX_LAYERS = 10_000
MAX_CONTEXT = 1 << 40
MAX_HEADS = 1 << 16
MAX_HEAD_DIM = 1 << 16

EMBEDDING = "token_embd"
OUTPUT = "output"
FREQUENCY_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies, [dims / 2]: GGUF's form of Llama 3's scaling."""

_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,9})\.")

_SHARED_ARGUMENTS = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "feed_forward_size",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocabulary_size",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "rms_eps",
    "rope_theta": "rope_base",
    "tie_word_embeddings": "tied",
}
"""Arguments of most classes in mlx-lm, and the attribute of `Decoder` for each."""


class Decoder:
    """The model in a file, for the reader of its architecture.

    Sizes that every model has are read and checked at once, others when they are first used, since
    a file need not have what no reader uses. Each raises ModelFormatError, naming key or tensor, if
    the file contradicts itself.
    """

    def __init__(self, keys: Keys, tensors: Mapping[str, TensorInfo]) -> None:
        self.keys = keys
        self.tensors = tensors
        self.hidden_size = keys.integer("embedding_length")
        # Blocks to run; those that predict further tokens follow them.
        self.num_layers = _num_layers(keys, tensors)
        self.context_length = keys.integer("context_length", high=MAX_CONTEXT)
        self.vocabulary_size = _vocabulary_size(keys, tensors, self.hidden_size)
        # Whether the embedding also makes the logits.
        self.tied = f"{OUTPUT}.weight" not in tensors

    @property
    def num_heads(self) -> int:
        return self._heads[0]

    @property
    def num_kv_heads(self) -> int:
        """Number of key and value heads of a layer, a divisor of `num_heads`."""
        return self._heads[1]

    @cached_property
    def _heads(self) -> tuple[int, int]:
        heads = self.keys.integer("attention.head_count", high=MAX_HEADS)
        kv_heads = self.keys.integer("attention.head_count_kv", heads, high=MAX_HEADS)
        return self._checked_heads(heads, kv_heads)

    def _checked_heads(self, heads: int, kv_heads: int) -> tuple[int, int]:
        if heads % kv_heads:
            wanted = f"a divisor of the {heads} heads"
            raise self.keys.error("attention.head_count_kv", kv_heads, wanted)
        return heads, kv_heads

    @cached_property
    def head_dim(self) -> int:
        """Width of a head, even."""
        return read_head_dim(self.keys, self.hidden_size, self.num_heads)

    @cached_property
    def feed_forward_size(self) -> int:
        return self.keys.integer("feed_forward_length")

    @property
    def rms_eps(self) -> float:
        """Epsilon that RMS norms add to the mean square."""
        return self.keys.number("attention.layer_norm_rms_epsilon", low=0, high=1)

    @property
    def layer_norm_eps(self) -> float:
        """Epsilon that layer norms add to the variance."""
        return self.keys.number("attention.layer_norm_epsilon", low=0, high=1)

    @property
    def rope_base(self) -> float:
        """Base of the rotary frequencies, base ** (-2 i / dims)."""
        return self.keys.number("rope.freq_base", 10000.0, low=1, high=1e12)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers with attention, in most models all."""
        return tuple(range(self.num_layers))

    def attends(self, layer: int) -> bool:
        return layer in self.attention_layers

    def recurs(self, layer: int) -> bool:
        """Return whether a layer has a recurrent state instead of attention."""
        return layer not in self.attention_layers

    def has_biases(self, parts: Iterable[str], what: str) -> bool:
        """Return whether these parts of every layer have a bias.

        Raises UnsupportedArchitectureError if only some do.
        """
        names = [f"blk.{layer}.{part}.bias" for layer in range(self.num_layers) for part in parts]
        present = sum(name in self.tensors for name in names)
        if present not in (0, len(names)):
            raise UnsupportedArchitectureError(
                f"the model has only {present} of {len(names)} {what} biases; akunu runs models "
                "that have all of them or none"
            )
        return present > 0

    def has_any(self, *endings: str) -> bool:
        """Return whether the name of any tensor has one of these endings."""
        return any(name.endswith(endings) for name in self.tensors)

    def rows_of(self, name: str) -> int:
        """Return the number of rows of a matrix; raise ModelFormatError if it is missing."""
        if name not in self.tensors or len(self.tensors[name].shape) != 2:
            raise ModelFormatError(
                f"the file has no matrix {name!r}; it is incomplete: download it again"
            )
        return self.tensors[name].shape[0]

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return `given`, completed by the arguments that most classes share.

        A class ignores arguments that it does not have. `given` has the epsilon of a class that
        names it otherwise.
        """
        has_epsilon = any(name.endswith(("eps", "epsilon")) for name in given)
        shared = {
            argument: getattr(self, size)
            for argument, size in _SHARED_ARGUMENTS.items()
            if argument not in given and not (has_epsilon and argument == "rms_norm_eps")
        }
        return {**shared, **given}

    def plan(
        self,
        model: str,
        rules: Iterable[Rule],
        arguments: Mapping[str, Any],
        *,
        shared_arguments: bool = True,
        rotary: RotaryFactors | RotaryScaling | None = None,
        ignored: str = r"(?!)",
        constants: Mapping[str, NDArray[np.float32]] | None = None,
        wide_range: bool = False,
    ) -> ModelPlan:
        """Return the plan for a class, "NAME" of `mlx_lm.models` or "variants.NAME".

        Blocks that predict further tokens are left out.

        Arguments:
            model: the class, and the model's type where `arguments` do not give it.
            rules: the rules for its tensors.
            arguments: arguments of the class, completed by those that most classes share unless
                `shared_arguments` is False.
            shared_arguments: see `arguments`.
            rotary: as in `ModelPlan`; so are `constants` and `wide_range`.
            ignored: a regular expression for names of tensors to leave out.

        Raises UnsupportedArchitectureError for unused factors of the rotary frequencies.
        """
        factors = re.escape(FREQUENCY_FACTORS)
        if isinstance(rotary, RotaryFactors):
            ignored = f"{factors}|{ignored}"
        elif FREQUENCY_FACTORS in self.tensors and not re.fullmatch(ignored, FREQUENCY_FACTORS):
            raise UnsupportedArchitectureError(
                f"the model has {FREQUENCY_FACTORS}, which akunu cannot apply to "
                f"{self.keys.architecture} models; use another model"
            )
        further = [block for block in _blocks(self.tensors) if block >= self.num_layers]
        if further:
            ignored += rf"|blk\.({'|'.join(map(str, further))})\..*"
        given = {"model_type": model.rpartition(".")[2], **arguments}
        rules = list(rules)
        defaults = {
            rule.target.format(layer): rule.default
            for rule in rules
            for layer in range(self.num_layers)
            if rule.default is not None
            and rule.applies(layer)
            and rule.sources[0].format(layer) not in self.tensors
        }
        return ModelPlan(
            architecture=self.keys.architecture,
            model=model,
            arguments=self.arguments(given) if shared_arguments else given,
            placements=place(rules, self.tensors, self.num_layers, ignored=ignored),
            num_layers=self.num_layers,
            context_length=self.context_length,
            vocabulary_size=self.vocabulary_size,
            rotary=rotary,
            constants={**defaults, **(constants or {})},
            wide_range=wide_range,
        )


Reader = Callable[[Decoder], ModelPlan]
"""A function from a file of one architecture to the plan of its model."""


def read_head_dim(keys: Keys, width: int, heads: int) -> int:
    """Return the width of a head; raise ModelFormatError for one that is odd or too large."""
    key = "attention.key_length"
    if key not in keys and width % heads:
        raise keys.error("embedding_length", width, f"a multiple of the {heads} heads")
    head_dim = keys.integer(key, max(1, width // heads), high=MAX_HEAD_DIM)
    if heads * head_dim > MAX_SIZE:
        # Before anything of that size is allocated.
        raise keys.error(key, head_dim, f"at most {MAX_SIZE // heads}")
    if head_dim % 2:
        raise keys.error(key, head_dim, "even")
    return head_dim


def _num_layers(keys: Keys, tensors: Mapping[str, TensorInfo]) -> int:
    _embedding(tensors)
    stated = keys.integer("block_count", high=MAX_LAYERS)
    further = keys.integer("nextn_predict_layers", 0, low=0, high=MAX_LAYERS)
    present, first = _blocks(tensors), head_block(tensors)
    count = len(present) if first is None else first
    # Not every converter counts the blocks that predict further tokens, or writes their number.
    heads = max(further, len(present) - count)
    if count not in {stated, stated - heads} or not (
        set(range(count)) <= present <= set(range(count + heads))
    ):
        raise ModelFormatError(
            f"the metadata states {stated} layers, but the file has {len(present)}; the file is "
            "incomplete: download it again"
        )
    return count


def head_block(tensors: Iterable[str]) -> int | None:
    """Return the first block that predicts further tokens, None where a file has none."""
    return min(_blocks(name for name in tensors if ".nextn." in name), default=None)


def _blocks(tensors: Iterable[str]) -> set[int]:
    return {int(match[1]) for name in tensors if (match := _BLOCK.match(name))}


def _vocabulary_size(keys: Keys, tensors: Mapping[str, TensorInfo], width: int) -> int:
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
            "the file has no tensor 'token_embd.weight': it has only a vocabulary, or a part of a "
            "model; give a whole model"
        )
    return embedding
