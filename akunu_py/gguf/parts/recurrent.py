"""Recurrent layers: which layers they are, Mamba's mixers, conversions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, modules, parameter
from akunu_py.gguf.parts import attention
from akunu_py.gguf.parts.decoder import MAX_HEADS, Decoder
from akunu_py.gguf.plan import Conversion
from akunu_py.system.errors import ModelFormatError

MAX_KERNEL = 256
MAX_STATE = 1 << 16
NO_LIMIT = (0.0, float("inf"))
"""The range of a state-space model's time steps for classes of mlx-lm; llama.cpp has no limit."""

Layers = Callable[[int], bool]


class Hybrid(Decoder):
    """A decoder with attention in only some layers, those with key and value heads.

    Raises UnsupportedArchitectureError if the layers with attention differ in heads, or if there
    are none.
    """

    @classmethod
    def of(cls, model: Decoder, recurrent: str = "") -> "Hybrid":
        """Return a model as a hybrid; with a name for others, not all layers may have attention."""
        hybrid = cls(model.keys, model.tensors)
        if recurrent and len(hybrid.attention_layers) == hybrid.num_layers:
            raise hybrid.keys.unsupported(attention.KEY_HEADS, hybrid.num_kv_heads, recurrent)
        return hybrid

    @cached_property
    def _kv_heads(self) -> list[int]:
        return self.keys.layer_integers("attention.head_count_kv", self.num_layers, high=MAX_HEADS)

    @cached_property
    def attention_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer, heads in enumerate(self._kv_heads) if heads)

    @cached_property
    def _heads(self) -> tuple[int, int]:
        kv_heads = self._one_value("attention.head_count_kv", self._kv_heads)
        key = "attention.head_count"
        # Converters write the query heads as one number, or per layer with 0 for no attention.
        counts = self.keys.layer_integers(key, self.num_layers, high=MAX_HEADS)
        heads = self._one_value(key, [counts[layer] for layer in self.attention_layers])
        return self._checked_heads(heads, kv_heads)

    def _one_value(self, key: str, counts: Sequence[int]) -> int:
        values = sorted(set(counts) - {0})
        if len(values) != 1:
            wanted = "layers that attend, all with as many heads,"
            raise self.keys.unsupported(key, values, wanted)
        return values[0]

    def layer_types(self, recurrent: str) -> list[str]:
        """Return "attention" or `recurrent` for each layer."""
        layers = range(self.num_layers)
        return ["attention" if self.attends(layer) else recurrent for layer in layers]


@dataclass(frozen=True, slots=True)
class Channels:
    """Sizes of the mixers of Mamba 1."""

    kernel: int  # Taps of the causal convolution over time.
    inner_size: int
    state_size: int  # Of each channel.
    rank: int  # Of the matrix for time steps.


def read_channels(keys: Keys) -> Channels:
    """Return the sizes of the mixers of Mamba 1."""
    return Channels(
        kernel=read_kernel(keys),
        inner_size=keys.integer("ssm.inner_size"),
        state_size=keys.integer("ssm.state_size", high=MAX_STATE),
        rank=keys.integer("ssm.time_step_rank", high=1 << 16),
    )


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Sizes of the Mamba 2 mixers of a model."""

    kernel: int  # Taps of the causal convolution over time.
    inner_size: int  # heads * head_dim.
    state_size: int  # Of each channel of a head.
    heads: int
    groups: int  # Groups of heads that share B and C.

    @property
    def head_dim(self) -> int:
        return self.inner_size // self.heads


def read_state_space(keys: Keys) -> StateSpace:
    """Return the sizes of Mamba 2 mixers, or of gated delta nets, which use the same keys."""
    heads = keys.integer("ssm.time_step_rank", high=MAX_HEADS)
    inner = keys.integer("ssm.inner_size")
    if inner % heads:
        raise keys.error("ssm.inner_size", inner, f"a multiple of the {heads} heads")
    groups = keys.integer("ssm.group_count", high=MAX_HEADS)
    if heads % groups:
        raise keys.error("ssm.group_count", groups, f"a divisor of the {heads} heads")
    return StateSpace(
        kernel=read_kernel(keys),
        inner_size=inner,
        state_size=keys.integer("ssm.state_size", high=MAX_STATE),
        heads=heads,
        groups=groups,
    )


def read_kernel(keys: Keys, key: str = "ssm.conv_kernel") -> int:
    """Return the taps of a convolution over time."""
    return keys.integer(key, low=2, high=MAX_KERNEL)


def mamba_rules(at: str, *, layers: Layers | None = None) -> list[Rule]:
    """Return the rules for the mixer of Mamba 1, whose channels have separate decays."""
    names = {"ssm_in": "in_proj", "ssm_x": "x_proj", "ssm_dt": "dt_proj", "ssm_out": "out_proj"}
    return [
        *modules(at, names, layers=layers),
        kernel_rule(at, layers=layers),
        parameter("blk.{}.ssm_conv1d.bias", f"{at}.conv1d.bias", layers=layers),
        parameter("blk.{}.ssm_d", f"{at}.D", layers=layers),
        parameter(
            "blk.{}.ssm_a",
            f"{at}.A_log",
            convert=lambda rates: log_of_decay(rates).reshape(rates.shape),
            layers=layers,
            float32=True,
        ),
    ]


def mamba2_rules(at: str, *, layers: Layers | None = None, norm: bool = True) -> list[Rule]:
    """Return the rules for a Mamba 2 mixer.

    The parameters of a state's decay stay in float32, in which the classes compute it. D does not,
    since it would make the activations float32 as well.
    """
    rules = [
        *modules(at, {"ssm_in": "in_proj", "ssm_out": "out_proj"}, layers=layers),
        kernel_rule(at, layers=layers),
        parameter("blk.{}.ssm_conv1d.bias", f"{at}.conv1d.bias", layers=layers, required=False),
        *decay_rules(at, layers=layers),
        parameter("blk.{}.ssm_d", f"{at}.D", convert=flat, layers=layers),
    ]
    if norm:
        source, target = "blk.{}.ssm_norm.weight", f"{at}.norm.weight"
        rules.append(parameter(source, target, convert=flat, layers=layers))
    return rules


def delta_net_rules(
    model: Hybrid,
    at: str,
    head_dim: int,
    names: Mapping[str, str],
    *,
    kernel: str,
    rates: Conversion,
) -> list[Rule]:
    """Return the rules for delta nets whose channels have separate decays.

    `names` are those of the nets for decays and gates. `kernel` names the convolution's for q, k
    or v; `rates` converts the decay rates.
    """
    nets = [layer for layer in range(model.num_layers) if model.recurs(layer)]
    size = model.num_heads * head_dim
    own = {"attn_output": "o_proj", "ssm_beta": "b_proj", "ssm_norm": "o_norm"}
    return [
        *attention.inputs(model, at, (size, size, size), layers=nets),
        *modules(at, {**own, **names}, layers=model.recurs),
        *(
            parameter(
                f"blk.{{}}.ssm_conv1d_{part}.weight",
                f"{at}.{kernel.format(part)}",
                convert=unpadded_depthwise,
                layers=model.recurs,
            )
            for part in "qkv"
        ),
        *decay_rules(at, convert=rates, layers=model.recurs),
    ]


def decay_rules(
    at: str,
    *,
    rows: NDArray[np.intp] | None = None,
    convert: Conversion | None = None,
    layers: Layers | None = None,
) -> list[Rule]:
    """Return the rules for time step bias and decay rates; `convert` defaults to `log_of_decay`."""
    step, rates = "blk.{}.ssm_dt.bias", "blk.{}.ssm_a"
    convert = convert or log_of_decay
    return [
        parameter(step, f"{at}.dt_bias", rows=rows, layers=layers, float32=True),
        parameter(rates, f"{at}.A_log", rows=rows, convert=convert, layers=layers, float32=True),
    ]


def kernel_rule(
    at: str, *, rows: NDArray[np.intp] | None = None, layers: Layers | None = None
) -> Rule:
    """Return the rule for the kernel of a mixer's convolution."""
    source, target = "blk.{}.ssm_conv1d.weight", f"{at}.conv1d.weight"
    return parameter(source, target, rows=rows, convert=depthwise, layers=layers)


def depthwise(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel [channels, taps] in MLX's shape, [channels, taps, 1]."""
    return kernel.reshape(*kernel.shape[:2], 1)


def unpadded_depthwise(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel [1, channels, 1, taps], or without the ones, in MLX's shape."""
    return kernel.reshape(-1, kernel.shape[-1], 1)


def flat(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor's numbers as a vector: converters store some vectors as a matrix."""
    return values.reshape(-1)


def log_of_decay(rates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return A_log, flat, for the stored -exp(A_log).

    A rate too small for float32, and so zero in the file, becomes the smallest positive one.
    """
    if not (rates <= 0).all():
        raise ModelFormatError(
            "a tensor 'ssm_a' has decay rates that are not negative; download or convert the "
            "model again"
        )
    least = np.finfo(np.float32).smallest_subnormal
    logarithms: NDArray[np.float32] = np.log(np.maximum(-rates.reshape(-1), least))
    return logarithms
