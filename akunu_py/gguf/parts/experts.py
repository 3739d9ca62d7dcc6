"""Mixtures of experts: their keys, their routers, and the stacks of their weights."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from akunu_py.gguf.names import FEED_FORWARD, Rule, module, modules, parameter, rows_of_each
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.layers import GATED
from akunu_py.system.errors import ModelFormatError

MAX_EXPERTS = 1 << 14
MAX_SHARED = 1 << 10
SHARED = {"ffn_gate_shexp": "gate_proj", "ffn_up_shexp": "up_proj", "ffn_down_shexp": "down_proj"}
"""The shared experts, through which all tokens go; GGUF always fuses them."""


class Gating(IntEnum):
    """The function from the router's outputs to weights: values of `expert_gating_func`."""

    NONE = 0
    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_OF_CHOSEN = 3
    SQRT_SOFTPLUS = 4


@dataclass(frozen=True, slots=True)
class Mixture:
    """Sizes of a mixture."""

    count: int
    used: int  # Experts that each token uses.
    feed_forward_size: int  # Of one expert.
    layers: frozenset[int]  # The other layers have a plain feed-forward part.
    leading: int = 0  # Layers with a plain part before the first mixture.

    @property
    def arguments(self) -> dict[str, int]:
        """The sizes, under the names of most classes."""
        return {
            "num_experts": self.count,
            "n_routed_experts": self.count,
            "num_local_experts": self.count,
            "num_experts_per_tok": self.used,
            "moe_intermediate_size": self.feed_forward_size,
            "first_k_dense_replace": self.leading,
        }

    def routed(self, layer: int) -> bool:
        return layer in self.layers

    def dense(self, layer: int) -> bool:
        return layer not in self.layers


def has_experts(model: Decoder) -> bool:
    """Return whether a model has experts, in an architecture where they are optional."""
    return model.keys.integer("expert_count", 0, low=0, high=MAX_EXPERTS) > 0


def read(
    model: Decoder,
    size_key: str = "expert_feed_forward_length",
    *,
    layers: Iterable[int] | None = None,
) -> Mixture:
    """Return the sizes of the experts, with their width from `size_key`, in `layers`, or all."""
    count = model.keys.integer("expert_count", high=MAX_EXPERTS)
    return Mixture(
        count=count,
        used=model.keys.integer("expert_used_count", high=count),
        feed_forward_size=model.keys.integer(size_key),
        layers=frozenset(range(model.num_layers) if layers is None else layers),
    )


def read_behind_dense(model: Decoder, *, rest: int = 0) -> Mixture:
    """Return the sizes of the experts of all layers but the leading dense ones."""
    dense = leading_dense(model, rest=rest)
    return replace(read(model, layers=range(dense, model.num_layers)), leading=dense)


def leading_dense(model: Decoder, *, rest: int = 0) -> int:
    """Return the number of layers before those with experts, leaving at least `rest`."""
    key, most = "leading_dense_block_count", model.num_layers - rest
    return model.keys.integer(key, 0, low=0, high=most)


def shared_count(model: Decoder, *, low: int = 0) -> int:
    """Return the number of shared experts."""
    return model.keys.integer("expert_shared_count", low=low, high=MAX_SHARED)


def scoring(model: Decoder, default: Gating) -> str:
    """Return the gating function as mlx-lm's classes name it; `default` if the file has none.

    Raises UnsupportedArchitectureError for any but "softmax" and "sigmoid".
    """
    names = {Gating.SOFTMAX: "softmax", Gating.SIGMOID: "sigmoid"}
    gating = _gating(model, default)
    if gating not in names:
        wanted = "softmax (1) or sigmoid (2)"
        raise model.keys.unsupported("expert_gating_func", int(gating), wanted)
    return names[gating]


def require_sigmoid(model: Decoder, mixture: Mixture | None = None) -> None:
    """Raise UnsupportedArchitectureError for any gating function but the sigmoid.

    With a mixture its experts must be in one group, too.
    """
    if (gating := _gating(model, Gating.SIGMOID)) is not Gating.SIGMOID:
        raise model.keys.unsupported("expert_gating_func", int(gating), "a sigmoid (2)")
    if mixture is not None:
        require_one_group(model, mixture)


def _gating(model: Decoder, default: Gating) -> Gating:
    number = model.keys.integer("expert_gating_func", 0, low=0, high=max(Gating))
    return Gating(number) or default


def groups(model: Decoder, mixture: Mixture) -> tuple[int, int]:
    """Return the number of groups of experts, and how many of them a token's experts come from.

    A group is ranked by its two likeliest experts, so each has at least two. (1, 1) stands for no
    groups, also if all groups are used.
    """
    keys = model.keys
    count = keys.integer("expert_group_count", 1, low=0, high=mixture.count)
    if count <= 1:
        keys.ignore("expert_group_used_count")
        return 1, 1
    if mixture.count % count or mixture.count // count < 2:
        raise keys.error("expert_group_count", count, f"a divisor of the {mixture.count} experts")
    chosen = keys.integer("expert_group_used_count", high=count)
    if chosen * (mixture.count // count) < mixture.used:
        raise keys.error("expert_group_used_count", chosen, f"enough for {mixture.used} experts")
    return (1, 1) if chosen == count else (count, chosen)


def require_one_group(model: Decoder, mixture: Mixture) -> None:
    """Raise UnsupportedArchitectureError if experts form groups."""
    if (count := groups(model, mixture)[0]) != 1:
        raise model.keys.unsupported("expert_group_count", count, "experts in one group")


def normalizes_weights(model: Decoder) -> bool:
    """Return whether the weights of the chosen experts are scaled to sum to one."""
    return model.keys.flag("expert_weights_norm", False)


def require_normalized(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if the weights of the chosen experts are left as is."""
    if not normalizes_weights(model):
        raise model.keys.unsupported("expert_weights_norm", False, "weights that sum to one")


def require_several(model: Decoder, *used: int, normed: bool = True) -> None:
    """Raise UnsupportedArchitectureError if a token uses only one expert, unless not `normed`.

    Classes leave the weight of a single expert unchanged, llama.cpp sets it to one.
    """
    if normed and 1 in used:
        raise model.keys.unsupported("expert_used_count", 1, "several experts a token")


def weights_scale(model: Decoder) -> float:
    """Return the final factor of the chosen experts' weights; files may say 0 for 1."""
    return model.keys.number("expert_weights_scale", 0.0, low=-1e-30, high=1e3) or 1.0


def arguments(
    model: Decoder, mixture: Mixture, default: Gating = Gating.SIGMOID, *, shared: int = 0
) -> dict[str, Any]:
    """Return the arguments of classes that choose experts as DeepSeek's do.

    The file states at least `shared` shared experts; `default` as in `scoring`.
    """
    count, chosen = groups(model, mixture)
    shared = shared_count(model, low=shared)
    return {
        **mixture.arguments,
        "n_shared_experts": shared or None,
        "num_shared_experts": shared,
        "scoring_func": scoring(model, default),
        "norm_topk_prob": normalizes_weights(model),
        "routed_scaling_factor": weights_scale(model),
        "n_group": count,
        "topk_group": chosen,
    }


def shared_name(model: Decoder) -> str | None:
    """Return the usual name of the module of shared experts, None for a file without any."""
    return "shared_experts" if shared_count(model) else None


def rules(
    model: Decoder,
    mixture: Mixture,
    at: str = FEED_FORWARD,
    *,
    routed: str = "switch_mlp",
    shared: str | None = None,
) -> list[Rule]:
    """Return the rules for feed-forward parts: gated ones, or experts in layers of a mixture.

    `routed` names the module of the stacks, `shared` the module of the shared experts, if any.
    """
    of_all = modules(f"{at}.{shared}", SHARED, layers=mixture.routed) if shared else []
    return [
        *modules(at, GATED, layers=mixture.dense),
        *stacks(model, mixture, f"{at}.{routed}"),
        *of_all,
    ]


def stacks(model: Decoder, mixture: Mixture, at: str) -> list[Rule]:
    """Return the rules for the stacks [experts, out, in] of a `SwitchGLU` at `at`.

    Converters may fuse gate and up into one stack, with the gate first within each expert.
    """
    rules = modules(at, {"ffn_down_exps": "down_proj"}, layers=mixture.routed)
    fused = [
        info for name, info in model.tensors.items() if name.endswith(".ffn_gate_up_exps.weight")
    ]
    if not fused:
        names = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj"}
        return rules + modules(at, names, layers=mixture.routed)
    size = mixture.feed_forward_size
    wanted = (mixture.count, 2 * size)
    for info in fused:
        if info.shape[:-1] != wanted:
            raise ModelFormatError(
                f"tensor {info.name!r} has the shape {info.shape} where the metadata asks for "
                f"{wanted} and the width; download or convert the model again"
            )
    for half, name in enumerate(("gate_proj", "up_proj")):
        rows = rows_of_each(range(mixture.count), 2 * size, range(half * size, (half + 1) * size))
        source = "blk.{}.ffn_gate_up_exps"
        rules.append(module(source, f"{at}.{name}", rows=rows, layers=mixture.routed))
    return rules


def router(
    mixture: Mixture,
    bias: str = "gate.e_score_correction_bias",
    weight: str = "gate.weight",
    *,
    at: str = FEED_FORWARD,
    required: bool = False,
) -> list[Rule]:
    """Return the rules for routers with a bias that affects only the choice.

    Weight and bias stay in float32, as in the models' own programs, because choices depend on small
    differences. Zeros stand for a bias that is not `required`.
    """
    names = {"ffn_gate_inp.weight": weight, "exp_probs_b.bias": bias}
    zeros = np.zeros(mixture.count, np.float32)
    return [
        parameter(
            f"blk.{{}}.{source}", f"{at}.{target}", layers=mixture.routed, float32=True,
            default=None if required or target == weight else zeros,
        )
        for source, target in names.items()
    ]  # fmt: skip
