"""LoRA adapters on models: merged into dense weights, beside quantized ones.

A merged adapter costs nothing from then on. Quantized weights stay as they are, since rounding them
anew would lose what the adapter says. An embedding keeps its adapter beside it in any case, since
its matrix may also make the logits.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_unflatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from akunu_py.gguf.plan import Placement
from akunu_py.models.adapter_files import EMBEDDING, Adapter, Change
from akunu_py.models.expansion import dense_shape, dense_weight, number_type
from akunu_py.models.layers import (
    LowRankEmbedding,
    LowRankLinear,
    LowRankSwitchLinear,
    PlanesEmbedding,
    PlanesLinear,
    PlanesSwitchLinear,
    ScaledLinear,
    ScaledSwitchLinear,
    StackedLinear,
)
from akunu_py.models.load_steps import Steps
from akunu_py.models.sources.source import ModelSource
from akunu_py.system.errors import ConfigError

_LINEAR = (nn.Linear, nn.QuantizedLinear, PlanesLinear, StackedLinear, ScaledLinear)
_EXPERTS = (SwitchLinear, QuantizedSwitchLinear, PlanesSwitchLinear, ScaledSwitchLinear)
_EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding, PlanesEmbedding)

_MEASURED = (nn.Linear, nn.QuantizedLinear, PlanesLinear)
"""Layers whose weights can be had whole, for DoRA's lengths."""

_MOVED = ("mlx_lm.models.llama", "mlx_lm.models.mixtral")
_HEADS = {
    "q_proj": ("n_heads", "num_heads"),
    "k_proj": ("n_kv_heads", "num_key_value_heads"),
}

_FRAME = re.compile(r"^((model|language_model|text_model|transformer|backbone)\.)+")
"""What stands before the names of layers, which differs between programs."""

_RANK_STEP = 16
"""Ranks are filled up with zeros to a multiple of what akunu's kernels take."""


class _Target(NamedTuple):
    """A layer of a model, and what an adapter changes of each tensor it is made of."""

    path: str
    changes: tuple[Change | None, ...]
    rows: tuple[int, ...] = (0,)
    """Of each tensor of a GGUF file."""

    placement: Placement | None = None
    heads: int | None = None
    """Heads whose rows stand in the order of llama.cpp's converters; see `_converted_heads`."""


def check_adapter(model: nn.Module, adapter: Adapter, source: ModelSource) -> None:
    """Raise ConfigError, naming the layer, for an adapter of another model.

    Names and shapes tell, so the model may be without weights.
    """
    _targets(model, adapter, source)


def adapt(model: nn.Module, adapter: Adapter, source: ModelSource) -> Steps[str]:
    """Apply an adapter to a loaded model, layer by layer; return what was done, in words.

    Raises as `check_adapter`, ModelFormatError for damaged numbers.
    """
    targets = _targets(model, adapter, source)
    read, kind = adapter.reader(), number_type(model)
    modules = dict(model.named_modules())
    merged = 0
    for target in targets:
        up, down = _factors(target, read)
        old = modules[target.path]
        wanted = _seen_shape(old)
        if (*up.shape[:-1], down.shape[-1]) != wanted:
            raise _misfit(adapter, f"{target.path} has the shape {wanted}")
        lengths = next(
            (read(one.magnitude) for one in target.changes if one and one.magnitude), None
        )
        if lengths is not None and target.heads is not None:
            lengths = _moved(lengths.flatten(), target.heads)
        factors = up * adapter.strength, down
        if isinstance(old, (nn.Linear, SwitchLinear)):
            old.weight = _cast(_sum(old.weight, *factors, lengths), old.weight.dtype)
            mx.eval(old.weight)
            merged += 1
        else:
            new = _beside(old, *factors, lengths, kind, tied=adapter.kind == "MLX")
            mx.eval(new.parameters())
            model.update_modules(tree_unflatten([(target.path, new)]))
        yield
    model.eval()
    mx.clear_cache()
    ways = ((merged, "merged into"), (len(targets) - merged, "beside"))
    done = " and ".join(f"{way} {count}" for count, way in ways if count)
    return f"{adapter.name} ({adapter.summary}), {done} layers"


def _targets(model: nn.Module, adapter: Adapter, source: ModelSource) -> list[_Target]:
    find = _in_gguf if adapter.kind == "GGUF" else _in_class
    targets = list(find(dict(model.named_modules()), adapter, source))
    used = {change.layer for target in targets for change in target.changes if change}
    for change in adapter.changes:
        if change.layer not in used:
            raise _misfit(adapter, f"{change.layer[:120]} is not a layer of it")
    return targets


def _in_class(
    modules: Mapping[str, nn.Module], adapter: Adapter, source: ModelSource
) -> Iterator[_Target]:
    """Yield the layers by the names of the model's class."""
    paths = {_FRAME.sub("", path, count=1): path for path in modules}
    for change in adapter.changes:
        path = paths.get(_FRAME.sub("", change.layer, count=1))
        if path is None:
            continue
        module = modules[path]
        measured = change.magnitude is None or isinstance(module, _MEASURED)
        _check_fit(adapter, path, change, _seen_shape(module) if measured else None)
        heads = _converted_heads(modules, path, adapter) if source.has_gguf_rows else None
        yield _Target(path, (change,), heads=heads)


def _in_gguf(
    modules: Mapping[str, nn.Module], adapter: Adapter, source: ModelSource
) -> Iterator[_Target]:
    """Yield the layers that are made of the tensors of a GGUF file."""
    plan, shapes = source.gguf_plan(adapter.path)
    if plan.architecture != adapter.architecture:
        raise _misfit(adapter, f"it is a {plan.architecture}, not a {adapter.architecture[:40]}")
    changes = {change.layer: change for change in adapter.changes}
    for name, change in changes.items():
        if name in shapes:
            found = shapes[name]
            _check_fit(adapter, name, change, found[::-1] if name.endswith(EMBEDDING) else found)
    for placement in plan.placements:
        own = tuple(changes.get(name) for name in placement.tensors)
        path, _, parameter = placement.path.rpartition(".")
        module = modules.get(path)
        looked_up = placement.tensors[0].endswith(EMBEDDING)
        if not any(own) or (looked_up and isinstance(module, nn.Linear)):
            continue
        stacked = isinstance(module, _EXPERTS)
        moved = placement.convert is not None or (
            (stacked or looked_up) and (len(own) > 1 or placement.rows is not None)
        )
        moved = moved or isinstance(module, _EMBEDDINGS) != looked_up
        if moved or parameter != "weight" or _seen_shape(module) is None:
            raise _misfit(adapter, f"akunu cannot change {placement.tensors[0]} of it")
        yield _Target(path, own, tuple(shapes[name][-2] for name in placement.tensors), placement)


def _converted_heads(modules: Mapping[str, nn.Module], path: str, adapter: Adapter) -> int | None:
    """Return the heads of a query or key whose rows llama.cpp's converter moved, None for others.

    It does so where its rotation takes neighbours and the authors' takes halves of a head. Which
    other families have that was not looked at, so their queries and keys are refused.
    """
    owner, _, name = path.rpartition(".")
    attention = modules[owner]
    rotates = getattr(attention.get("rope"), "traditional", False)
    if not rotates or not re.search("q|k", name.removesuffix("_proj")):
        return None
    if type(attention).__module__ not in _MOVED or name not in _HEADS:
        raise _misfit(
            adapter,
            f"akunu does not know the order of rows in {path} of a GGUF file; convert the adapter "
            "with llama.cpp's convert_lora_to_gguf.py, which does",
        )
    return next(int(getattr(attention, key)) for key in _HEADS[name] if hasattr(attention, key))


def _moved(array: mx.array, heads: int) -> mx.array:
    """Return rows [out, ...] as llama.cpp's converter orders them: halves of a head mixed."""
    halves = array.reshape(heads, 2, len(array) // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(array.shape)


def _check_fit(adapter: Adapter, name: str, change: Change, wanted: tuple[int, ...] | None) -> None:
    if wanted is None:
        raise _misfit(adapter, f"akunu cannot change {name} of it")
    if change.shape != wanted:
        raise _misfit(adapter, f"{name} has the shape {wanted}, and in the adapter {change.shape}")


def _misfit(adapter: Adapter, reason: str) -> ConfigError:
    return ConfigError(
        f"the adapter {adapter.path} does not fit the model: {reason}; give the model that the "
        "adapter was trained on"
    )


def _seen_shape(module: nn.Module | None) -> tuple[int, ...] | None:
    """Return the shape of a matrix as an adapter sees it; None for what cannot carry one."""
    if isinstance(module, _EMBEDDINGS):
        return dense_shape(module)[::-1]
    return dense_shape(module) if isinstance(module, (*_LINEAR, *_EXPERTS)) else None


def _factors(target: _Target, read: Callable[[str], mx.array]) -> tuple[mx.array, mx.array]:
    """Return the adapter of a layer, scaled: [..., out, r] and [..., r, in], in float32.

    The factors of several tensors stand in blocks along a diagonal.
    """
    rank = sum(one.rank for one in target.changes if one)
    ups, downs, begin = [], [], 0
    for change, rows in zip(target.changes, target.rows, strict=True):
        if change is None:
            ups.append(mx.zeros((rows, rank)))
            continue
        up, down = (
            array.swapaxes(-1, -2) if factor.turned else array
            for factor in (change.up, change.down)
            for array in (read(factor.name),)
        )
        after = rank - begin - change.rank
        ups.append(mx.pad(up * change.scale, [(0, 0)] * (up.ndim - 1) + [(begin, after)]))
        downs.append(down)
        begin += change.rank
    up, down = mx.concatenate(ups, axis=-2), mx.concatenate(downs, axis=-2)
    if target.heads is not None:
        up = _moved(up, target.heads)
    if target.placement is not None:
        if target.placement.rows is not None:
            up = up[mx.array(np.arange(len(up))[target.placement.rows])]
        if target.placement.columns is not None:
            down = down[..., mx.array(target.placement.columns)]
    return up, down


def _sum(weight: mx.array, up: mx.array, down: mx.array, lengths: mx.array | None) -> mx.array:
    """Return changed weights in float32; with `lengths`, each row has the one given."""
    changed = weight.astype(mx.float32) + up @ down
    if lengths is None:
        return changed
    return changed * (lengths.flatten() / mx.linalg.norm(changed, axis=-1))[:, None]


def _beside(
    old: nn.Module,
    up: mx.array,
    down: mx.array,
    lengths: mx.array | None,
    kind: mx.Dtype,
    *,
    tied: bool,
) -> nn.Module:
    """Return a layer that adds a product to those of `old`."""
    fill = [(0, 0)] * (up.ndim - 2)
    more = (0, -up.shape[-1] % _RANK_STEP)
    factors = (
        _cast(mx.pad(up, [*fill, (0, 0), more]), kind),
        _cast(mx.pad(down, [*fill, more, (0, 0)]), kind),
    )
    if isinstance(old, _EMBEDDINGS):
        return LowRankEmbedding(old, *factors, tied=tied)
    if isinstance(old, _EXPERTS):
        return LowRankSwitchLinear(old, *factors)
    if lengths is None:
        return LowRankLinear(old, *factors)
    bias = old.pop("bias", None)
    changed = dense_weight(old).astype(mx.float32) + up @ down
    new = ScaledLinear(
        LowRankLinear(old, *factors), lengths.flatten() / mx.linalg.norm(changed, axis=-1)
    )
    if bias is not None:
        new.bias = bias
    return new


def _cast(array: mx.array, kind: mx.Dtype) -> mx.array:
    """Return an array in another type; raise ConfigError where that cannot hold it."""
    found = array.astype(kind)
    if not mx.isfinite(found).all().item():
        raise ConfigError(
            f"the adapter makes numbers that {kind} cannot hold; choose another compute type"
        )
    return found
