"""Collects metadata and random tensors and writes them as GGUF."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf_files import add_vocabulary, bpe_vocabulary, finish

VOCABULARY_SIZE = len(bpe_vocabulary()[0])


EXPERTS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32}
"""Keys of most mixtures here."""


def yarn(factor: float, original_context: int) -> dict[str, Any]:
    """Keys of an extended context, for `TinyModel.keys`."""
    scaling = {"type": "yarn", "factor": factor, "original_context_length": original_context}
    return {f"rope__scaling__{key}": value for key, value in scaling.items()}


def linear_scaling(factor: float) -> dict[str, Any]:
    return {"rope__scaling__type": "linear", "rope__scaling__factor": factor}


def blocks(*layers: int) -> list[str]:
    """Return how names of tensors begin in each layer; arguments as those of `range`."""
    return [f"blk.{layer}." for layer in range(*layers)]


def each_block(kinds: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield how names of tensors begin in each layer, and its kind."""
    return zip(blocks(len(kinds)), kinds, strict=True)


class TinyModel:
    """What goes into one GGUF file. Tensors are drawn in the order they are asked for.

    Matrices are scaled by the root of their inputs, so that activations keep their size; `std`
    multiplies that. `quantize` names the type of matrices, one of those the gguf package can write.
    """

    def __init__(self, architecture: str, *, seed: int = 0) -> None:
        self.architecture = architecture
        self.random = np.random.default_rng(seed)
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, np.ndarray] = {}
        self.types: dict[str, gguf.GGMLQuantizationType] = {}
        # Blocks in NVFP4, which the gguf package cannot write, for where `types` asks for it.
        self.blocks: dict[str, np.ndarray] = {}

    def key(self, name: str, value: Any) -> None:
        """Set `<architecture>.<name>`; integers become uint32, floats float32."""
        self.metadata[f"{self.architecture}.{name}"] = value

    def keys(self, **values: Any) -> None:
        """Set several; a double underscore stands for a dot."""
        for name, value in values.items():
            self.key(name.replace("__", "."), value)

    def tensor(self, name: str, values: np.ndarray) -> np.ndarray:
        self.tensors[name] = np.ascontiguousarray(values, np.float32)
        return self.tensors[name]

    def matrix(self, name: str, *shape: int, std: float = 1.0) -> np.ndarray:
        """Add a matrix [out, in] or a stack [.., out, in]."""
        return self.tensor(name, self.random.normal(0, std * shape[-1] ** -0.5, shape))

    def vector(self, name: str, size: int, *, mean: float = 0.0, std: float = 0.1) -> np.ndarray:
        return self.tensor(name, self.random.normal(mean, std, size))

    def norm(self, name: str, size: int, *, bias: bool = False, mean: float = 1.0) -> None:
        """Add `name`.weight around `mean` and, with `bias`, `name`.bias around 0."""
        self.vector(f"{name}.weight", size, mean=mean)
        if bias:
            self.vector(f"{name}.bias", size)

    def linear(
        self, name: str, out: int, into: int, *, bias: bool = False, std: float = 1.0
    ) -> None:
        self.matrix(f"{name}.weight", out, into, std=std)
        if bias:
            self.vector(f"{name}.bias", out)

    def attention(
        self,
        block: str,
        width: int = 64,
        *,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int = 16,
        bias: bool = False,
        out_bias: bool | None = None,
        std: float = 2.0,
        out_std: float = 1.0,
    ) -> None:
        """Add q, k, v and the output; `std` of q and k says how sharply a head attends."""
        self.linear(block + "attn_q", heads * head_dim, width, bias=bias, std=std)
        self.linear(block + "attn_k", kv_heads * head_dim, width, bias=bias, std=std)
        self.linear(block + "attn_v", kv_heads * head_dim, width, bias=bias)
        out_bias = bias if out_bias is None else out_bias
        self.linear(block + "attn_output", width, heads * head_dim, bias=out_bias, std=out_std)

    def gated(
        self,
        block: str,
        suffix: str = "",
        *,
        feed_forward: int = 96,
        width: int = 64,
        bias: bool = False,
        out_std: float = 1.0,
    ) -> None:
        """Add a gated feed-forward part, such as the expert that all tokens go through."""
        self.linear(f"{block}ffn_gate{suffix}", feed_forward, width, bias=bias)
        self.linear(f"{block}ffn_up{suffix}", feed_forward, width, bias=bias)
        self.linear(f"{block}ffn_down{suffix}", width, feed_forward, bias=bias, std=out_std)

    def frame(
        self, width: int, *, tied: bool = False, norm_bias: bool = False, std: float = 1.0
    ) -> None:
        """Add embedding (of rows of length about `std` * root width), last norm and head."""
        self.matrix("token_embd.weight", VOCABULARY_SIZE, width, std=std * width**0.5)
        self.norm("output_norm", width, bias=norm_bias)
        if not tied:
            # Wide enough that the likeliest token is seldom nearly tied.
            self.matrix("output.weight", VOCABULARY_SIZE, width, std=3.0)

    def sizes(
        self,
        *,
        layers: int = 3,
        width: int = 64,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int | None = None,
        feed_forward: int = 96,
        context: int = 256,
        rms_eps: float | None = 1e-5,
        norm_eps: float | None = None,
        rope_base: float | None = 10000.0,
        **keys: Any,
    ) -> None:
        """Set the keys that nearly every decoder has, `head_dim` only if it is given, and others."""
        self.keys(
            block_count=layers, context_length=context, embedding_length=width,
            feed_forward_length=feed_forward, attention__head_count=heads,
            attention__head_count_kv=kv_heads,
        )  # fmt: skip
        if head_dim is not None:
            self.keys(attention__key_length=head_dim, attention__value_length=head_dim)
        if rms_eps is not None:
            self.key("attention.layer_norm_rms_epsilon", rms_eps)
        if norm_eps is not None:
            self.key("attention.layer_norm_epsilon", norm_eps)
        if rope_base is not None:
            self.key("rope.freq_base", rope_base)
        self.keys(**keys)

    def quantize(self, name: str, kind: str) -> None:
        """Store a tensor in another type."""
        self.types[name] = gguf.GGMLQuantizationType[kind]

    def digest(self) -> str:
        """A hash of metadata and tensors: a golden file belongs to exactly one model."""
        state = hashlib.sha256(repr(sorted(self.metadata.items())).encode())
        for name in sorted(self.tensors):
            state.update(name.encode())
            state.update(str(self.types.get(name)).encode())
            state.update(self.tensors[name].tobytes())
        return state.hexdigest()

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(str(path), self.architecture)
        add_vocabulary(writer, "bpe", chat_template=None)
        for name, value in self.metadata.items():
            if isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            elif isinstance(value, str):
                writer.add_string(name, value)
            else:
                writer.add_array(name, value)
        for name, values in self.tensors.items():
            kind = self.types.get(name)
            if kind is None:
                writer.add_tensor(name, values)
            elif kind is gguf.GGMLQuantizationType.NVFP4:
                writer.add_tensor(name, self.blocks[name], raw_dtype=kind)
            else:
                writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        finish(writer)
        return path


Builder = Callable[[TinyModel], None]
BUILDERS: dict[str, tuple[str, Builder]] = {}
"""Name -> (architecture, builder). A name is the architecture, or it and what is special."""


def tiny(name: str, architecture: str | None = None) -> Callable[[Builder], Builder]:
    """Register a builder under a name; the architecture is by default the name."""

    def register(function: Builder) -> Builder:
        assert name not in BUILDERS, name
        BUILDERS[name] = (architecture or name, function)
        return function

    return register


def build(name: str) -> TinyModel:
    architecture, function = BUILDERS[name]
    model = TinyModel(architecture, seed=sum(name.encode()))
    function(model)
    return model
