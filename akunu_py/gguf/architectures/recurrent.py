"""Parts of models whose layers keep a state: which layers do, Mamba 2 mixers, conversions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.architectures import decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import RowOrder
from akunu_py.gguf.reader import TensorInfo

MAX_KERNEL = 256
NO_LIMIT = (0.0, float("inf"))
"""The range of a state-space model's time steps: llama.cpp has none, classes of mlx-lm ask."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Sizes of a decoder of which only some layers attend.

    Attributes:
        hidden_size: the width of the residual stream.
        num_layers: blocks to run.
        num_heads: query heads of the layers that attend.
        num_kv_heads: key and value heads of those.
        head_dim: of one head.
        attends: for each layer, whether it attends.
        context_length: tokens the model was trained for.
        vocabulary_size: rows of the embedding.
        tied: whether the embedding also makes the logits.

    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attends: tuple[bool, ...]
    context_length: int
    vocabulary_size: int
    tied: bool

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that attend."""
        return tuple(layer for layer, attends in enumerate(self.attends) if attends)

    def attending(self, layer: int) -> bool:
        """Whether a layer attends."""
        return self.attends[layer]

    def recurrent(self, layer: int) -> bool:
        """Whether a layer does not."""
        return not self.attends[layer]


def read_hybrid(keys: Keys, tensors: Mapping[str, TensorInfo]) -> Hybrid:
    """Return the sizes of a decoder whose layers without attention have 0 key and value heads.

    Raises UnsupportedArchitectureError where the layers that attend differ in heads, or where none
    does.
    """
    width = keys.integer("embedding_length")
    layers = decoder.read_num_layers(keys, tensors)
    kv_heads = keys.layer_integers("attention.head_count_kv", layers, high=1 << 16)
    attends = tuple(heads > 0 for heads in kv_heads)
    kv_count = _one_value(keys, "attention.head_count_kv", kv_heads)
    # Converters write the query heads as one number, or 0 where a layer does not attend.
    query_heads = keys.layer_integers("attention.head_count", layers, high=1 << 16)
    heads = _one_value(
        keys,
        "attention.head_count",
        [count for count, attending in zip(query_heads, attends, strict=True) if attending],
    )
    if heads % kv_count:
        raise keys.error("attention.head_count_kv", kv_count, f"a divisor of the {heads} heads")
    return Hybrid(
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_count,
        head_dim=decoder.read_head_dim(keys, width, heads),
        attends=attends,
        context_length=keys.integer("context_length", high=decoder.MAX_CONTEXT),
        vocabulary_size=decoder.read_vocabulary_size(keys, tensors, width),
        tied=f"{decoder.OUTPUT}.weight" not in tensors,
    )


def _one_value(keys: Keys, key: str, counts: Sequence[int]) -> int:
    values = sorted(set(counts) - {0})
    if len(values) != 1:
        raise keys.unsupported(key, values, "layers that attend, all with as many heads,")
    return values[0]


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Sizes of the Mamba 2 mixers of a model.

    Attributes:
        kernel: taps of the causal convolution over time.
        inner_size: heads times head_dim.
        state_size: of each channel of a head.
        heads: of the mixer.
        groups: of heads that share their B and C.

    """

    kernel: int
    inner_size: int
    state_size: int
    heads: int
    groups: int

    @property
    def head_dim(self) -> int:
        """The channels of one head."""
        return self.inner_size // self.heads


def read_state_space(keys: Keys) -> StateSpace:
    """Return the sizes of Mamba 2 mixers, or of gated delta nets, which use the same keys."""
    heads = keys.integer("ssm.time_step_rank", high=1 << 16)
    inner = keys.integer("ssm.inner_size")
    if inner % heads:
        raise keys.error("ssm.inner_size", inner, f"a multiple of the {heads} heads")
    groups = keys.integer("ssm.group_count", high=1 << 16)
    if heads % groups:
        raise keys.error("ssm.group_count", groups, f"a divisor of the {heads} heads")
    return StateSpace(
        kernel=keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
        inner_size=inner,
        state_size=keys.integer("ssm.state_size", high=1 << 16),
        heads=heads,
        groups=groups,
    )


@dataclass(frozen=True, slots=True)
class Projections:
    """The rows of q, k and v, one after the other, where a converter fused them in `attn_qkv`.

    Attributes:
        sizes: rows of q, k and v.
        orders: for each the order of its rows in the class, None for the file's.

    """

    sizes: tuple[int, int, int]
    orders: tuple[NDArray[np.intp] | None, ...] = (None, None, None)

    @classmethod
    def of(cls, sizes: Hybrid | decoder.Dimensions, *, share: int = 1) -> "Projections":
        """Return those of a decoder; `share` is how many rows a query's row stands for."""
        keys = sizes.num_kv_heads * sizes.head_dim
        return cls((share * sizes.num_heads * sizes.head_dim, keys, keys))

    def rules(
        self, target: str, tensors: Mapping[str, TensorInfo], layers: Collection[int]
    ) -> list[Rule]:
        """Return the rules for `q_proj`, `k_proj` and `v_proj` at `target` in these layers."""
        fused = any(f"blk.{layer}.attn_qkv.weight" in tensors for layer in layers)
        rules = []
        start = 0
        for part, size, order in zip("qkv", self.sizes, self.orders, strict=True):
            rows: RowOrder | None = order
            if fused:
                rows = start + (np.arange(size, dtype=np.intp) if order is None else order)
            source = "attn_qkv" if fused else f"attn_{part}"
            rules.append(
                module(
                    f"blk.{{}}.{source}",
                    f"{target}.{part}_proj",
                    rows=rows,
                    layers=layers.__contains__,
                )
            )
            start += size
        return rules


def has_query_bias(tensors: Mapping[str, TensorInfo]) -> bool:
    """Return whether queries have a bias; where layers differ in it, a parameter has no tensor."""
    return any(name.endswith((".attn_q.bias", ".attn_qkv.bias")) for name in tensors)


def mamba2_rules(
    target: str, *, layers: Callable[[int], bool] | None = None, norm: bool = True
) -> list[Rule]:
    """Return the rules for a Mamba 2 mixer at `target`.

    What decides how fast a state decays stays in float32, in which the classes compute it; D does
    not, since it would make the activations float32 too.
    """
    rules = [
        module("blk.{}.ssm_in", f"{target}.in_proj", layers=layers),
        module("blk.{}.ssm_out", f"{target}.out_proj", layers=layers),
        *decay_rules(target, layers=layers),
        parameter("blk.{}.ssm_d", f"{target}.D", convert=flat, layers=layers),
        parameter("blk.{}.ssm_conv1d.bias", f"{target}.conv1d.bias", layers=layers, required=False),
    ]
    if norm:
        rules.append(
            parameter(
                "blk.{}.ssm_norm.weight", f"{target}.norm.weight", convert=flat, layers=layers
            )
        )
    return rules


def decay_rules(target: str, *, layers: Callable[[int], bool] | None = None) -> list[Rule]:
    """Return the rules for convolution kernel, time step bias and decay rates of a mixer."""
    return [
        parameter(
            "blk.{}.ssm_conv1d.weight",
            f"{target}.conv1d.weight",
            convert=depthwise,
            layers=layers,
        ),
        parameter("blk.{}.ssm_dt.bias", f"{target}.dt_bias", layers=layers, float32=True),
        parameter(
            "blk.{}.ssm_a", f"{target}.A_log", convert=log_of_decay, layers=layers, float32=True
        ),
    ]


def depthwise(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel [channels, taps] as MLX has it, [channels, taps, 1]."""
    return kernel.reshape(*kernel.shape[:2], 1)


def flat(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor's numbers in one row: converters store some vectors as a matrix."""
    return values.reshape(-1)


def log_of_decay(rates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return A_log, flat, of the stored -exp(A_log).

    A rate that is too small for float32, and so zero in the file, becomes the least there is.
    """
    if not (rates <= 0).all():
        raise ModelFormatError(
            "a tensor 'ssm_a' has decay rates that are not negative; download or convert the "
            "model again"
        )
    least = np.finfo(np.float32).smallest_subnormal
    logarithms: NDArray[np.float32] = np.log(np.maximum(-rates.reshape(-1), least))
    return logarithms
