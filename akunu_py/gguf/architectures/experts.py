"""Mixtures of experts: their keys, and the stacks of their weights."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import RowOrder
from akunu_py.gguf.reader import TensorInfo

MAX_EXPERTS = 1 << 14
ROUTER_BIAS = "e_score_correction_bias"


class Gating(IntEnum):
    """What makes weights of the router's outputs: values of `expert_gating_func`."""

    NONE = 0
    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_OF_CHOSEN = 3
    SQRT_SOFTPLUS = 4


@dataclass(frozen=True, slots=True)
class Mixture:
    """Sizes of a mixture.

    Attributes:
        count: experts of a layer.
        used: how many of them each token goes through.
        feed_forward_size: the width inside one expert.

    """

    count: int
    used: int
    feed_forward_size: int


def read_mixture(keys: Keys, size_key: str = "expert_feed_forward_length") -> Mixture:
    """Return the sizes of the experts, whose width is at `size_key`."""
    count = keys.integer("expert_count", high=MAX_EXPERTS)
    return Mixture(
        count=count,
        used=keys.integer("expert_used_count", high=count),
        feed_forward_size=keys.integer(size_key),
    )


def read_gating(keys: Keys, default: Gating) -> Gating:
    """Return the gating function; where the file names none, the `default`."""
    number = keys.integer("expert_gating_func", 0, low=0, high=max(Gating))
    return Gating(number) or default


def read_groups(keys: Keys, mixture: Mixture) -> tuple[int, int]:
    """Return how many groups the experts form, and of how many each token's are chosen.

    A group counts by its two likeliest experts, so that each has two at least. Groups of which
    all are chosen are none: (1, 1).
    """
    groups = keys.integer("expert_group_count", 1, low=0, high=mixture.count)
    if groups <= 1:
        keys.ignore("expert_group_used_count")
        return 1, 1
    if mixture.count % groups or mixture.count // groups < 2:
        raise keys.error("expert_group_count", groups, f"a divisor of the {mixture.count} experts")
    chosen = keys.integer("expert_group_used_count", high=groups)
    if chosen * (mixture.count // groups) < mixture.used:
        raise keys.error("expert_group_used_count", chosen, f"enough for {mixture.used} experts")
    return (1, 1) if chosen == groups else (groups, chosen)


def read_weights_scale(keys: Keys) -> float:
    """Return what the chosen experts' weights are multiplied by at last; files may say 0 for 1."""
    return keys.number("expert_weights_scale", 0.0, low=-1e-30, high=1e3) or 1.0


def expert_rules(
    target: str,
    mixture: Mixture,
    tensors: Mapping[str, TensorInfo],
    *,
    layers: Callable[[int], bool] | None = None,
) -> list[Rule]:
    """Return the rules for the stacks [experts, out, in] of a `SwitchGLU` at `target`.

    Converters can also fuse gate and up into one stack, gates first within each expert.
    """
    rules = [module("blk.{}.ffn_down_exps", f"{target}.down_proj", layers=layers)]
    fused = "blk.{}.ffn_gate_up_exps"
    stacks = [info for name, info in tensors.items() if name.endswith(".ffn_gate_up_exps.weight")]
    wanted = (mixture.count, 2 * mixture.feed_forward_size)
    for info in stacks:
        if info.shape[:-1] != wanted:
            raise ModelFormatError(
                f"tensor {info.name!r} has the shape {info.shape} where the metadata asks for "
                f"{wanted} and the width; download or convert the model again"
            )
    if not stacks:
        rules.append(module("blk.{}.ffn_gate_exps", f"{target}.gate_proj", layers=layers))
        rules.append(module("blk.{}.ffn_up_exps", f"{target}.up_proj", layers=layers))
        return rules
    for half, name in enumerate(("gate_proj", "up_proj")):
        rows = _half_of_each(mixture, half)
        rules.append(module(fused, f"{target}.{name}", rows=rows, layers=layers))
    return rules


def router_rules(target: str, *, layers: Callable[[int], bool] | None = None) -> list[Rule]:
    """Return the rules for a router with a bias that counts in the choice alone, at `target`.

    Both stay in float32, as the models' own programs have them: a choice turns on small
    differences.
    """
    bias = f"{target}.{ROUTER_BIAS}"
    return [
        parameter("blk.{}.ffn_gate_inp.weight", f"{target}.weight", layers=layers, float32=True),
        parameter("blk.{}.exp_probs_b.bias", bias, layers=layers, required=False, float32=True),
    ]


def zero_router_biases(
    target: str,
    mixture: Mixture,
    tensors: Mapping[str, TensorInfo],
    layers: Iterable[int],
) -> dict[str, NDArray[np.float32]]:
    """Return zeros for the biases of routers, of those `layers`, that the file has none for."""
    return {
        f"{target.format(layer)}.{ROUTER_BIAS}": np.zeros(mixture.count, np.float32)
        for layer in layers
        if f"blk.{layer}.exp_probs_b.bias" not in tensors
    }


def _half_of_each(mixture: Mixture, half: int) -> RowOrder:
    size = mixture.feed_forward_size
    starts = np.arange(mixture.count, dtype=np.intp)[:, None] * (2 * size) + half * size
    rows: RowOrder = (starts + np.arange(size, dtype=np.intp)).ravel()
    return rows
