"""Quantized layers, the dense layers for them, and which of both a model gets."""

import logging
import math

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from akunu_py.models.device import has_kernels, on_cpu, physical_memory
from akunu_py.models.layers import Planes, Scaled, StackedLinear
from akunu_py.models.load_steps import Steps
from akunu_py.models.rank_split import Group, PlannedGroup
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import LoadOptions

_log = logging.getLogger(__name__)

_DENSE_SHARE_OF_MEMORY = 0.5
""""auto" chooses dense weights where they take at most this share of the memory."""


def wants_dense(
    options: LoadOptions, parameters: int, group: Group | PlannedGroup | None = None
) -> bool:
    """Decide between the file's quantized weights and dense ones.

    Each rank of a `group` has about the same share of the model's `parameters`.
    """
    if options.weights != "auto":
        return options.weights == "dense"
    if not on_cpu() or has_kernels():
        return False
    needed = 4 * (parameters if group is None else parameters // group.size())
    fits = needed <= _DENSE_SHARE_OF_MEMORY * physical_memory()
    _log.info(
        "CPU backend: float32 dense weights need %.1f GB and %s; weights are %s",
        needed / 1e9,
        "fit" if fits else "do not fit",
        "dense" if fits else "quantized",
    )
    return fits


STOCK_LAYERS = (
    nn.QuantizedLinear,
    nn.QuantizedEmbedding,
    QuantizedSwitchLinear,
    QuantizedMultiLinear,
)
"""MLX's and mlx-lm's own quantized layers."""


def expand(model: nn.Module) -> Steps[None]:
    """Replace every quantized layer with a dense one in float32, in place, layer by layer."""
    layers: list[tuple[str, nn.Module]] = []
    for path, module in model.named_modules():
        if isinstance(module, (*STOCK_LAYERS, Planes)):
            weight = dense_weight(module)
            new = _dense_layer(module)
            new.weight = weight.astype(mx.float32)
            if "bias" in module:
                new.bias = module.bias
            mx.eval(new.parameters())
            layers.append((path, new))
            yield
    model.update_modules(tree_unflatten(layers))
    model.set_dtype(mx.float32)


def num_parameters(model: nn.Module) -> int:
    """Return the number of parameters; quantized layers count with their weights, not codes."""
    count = 0
    for _, module in model.named_modules():
        own = {name: value for name, value in module.items() if isinstance(value, mx.array)}
        if isinstance(module, (*STOCK_LAYERS, Planes)):
            count += math.prod(dense_shape(module))
            own = {"bias": own["bias"]} if "bias" in own else {}
        count += sum(array.size for name, array in own.items() if not name.startswith("_"))
    return count


def dense_shape(module: nn.Module) -> tuple[int, ...]:
    """Return the shape of a layer's weights, [..., out, in], whatever form they have."""
    if isinstance(module, Scaled):
        return dense_shape(module.inner)
    if isinstance(module, StackedLinear):
        shapes = [dense_shape(part) for part in module.parts]
        rows = sum(rows for rows, _ in shapes) if module.order is None else module.order.size
        return rows, shapes[0][-1]
    shape: tuple[int, ...] = module.weight.shape
    if not isinstance(module, (*STOCK_LAYERS, Planes)):
        return shape
    planes = len(module.multipliers) if isinstance(module, Planes) else 1
    return *shape[:-1], shape[-1] * 32 // module.bits // planes


def number_type(model: nn.Module) -> mx.Dtype:
    """Return the most frequent type of a model's dense arrays and scales."""
    kinds = [
        array.dtype
        for _, array in tree_flatten(model.parameters())
        if mx.issubdtype(array.dtype, mx.floating)
    ]
    most: mx.Dtype = max(kinds, key=kinds.count)
    return most


def dense_weight(module: nn.Module) -> mx.array:
    """Return the weights of one of the STOCK_LAYERS or a layer of planes, dense."""
    if isinstance(module, Planes):
        return module.dense_weight()
    return mx.dequantize(
        module.weight,
        module.scales if module.mode != "affine" else module.scales.astype(mx.float32),
        None if module.get("biases") is None else module.biases.astype(mx.float32),
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )


def dense_arrays(model: nn.Module) -> dict[str, mx.array]:
    """Return all parameters in float32 by path, quantized ones expanded.

    The model itself is unchanged. Raises ConfigError for layers that are more than one matrix.
    """
    arrays: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for path, module in model.named_modules():
        if isinstance(module, (Scaled, StackedLinear)):
            raise ConfigError(f"{path} is a {type(module).__name__}, not a single matrix")
        if isinstance(module, (*STOCK_LAYERS, Planes)):
            for name, _ in tree_flatten(module.parameters()):
                if name != "bias":
                    del arrays[f"{path}.{name}"]
            arrays[f"{path}.weight"] = dense_weight(module)
    return {path: array.astype(mx.float32) for path, array in arrays.items()}


def _dense_layer(module: nn.Module) -> nn.Module:
    name = type(module).__name__
    if "Embedding" in name:
        return nn.Embedding(1, 1)
    if "Switch" in name:
        return SwitchLinear(1, 1, 1, bias=False)
    if "MultiLinear" in name:
        return MultiLinear(1, 1, 1)
    return nn.Linear(1, 1, bias=False)
