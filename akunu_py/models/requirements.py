"""What a model will need and can do, before its weights are read.

The model is built from metadata, and one row is passed through it without evaluation: that gives
all shapes without computing anything. Freed buffers, which MLX keeps for the next pass and gives
back where memory is short, are not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import ChunkedKVCache, KVCache, RotatingKVCache

from akunu_py.errors import ConfigError
from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.quants.forms import WeightForm, form_of
from akunu_py.gguf.reader import GGUFFile, TensorInfo
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.converted_plan import DESCRIPTION, read_converted_plan
from akunu_py.models.device import on_cpu, physical_memory
from akunu_py.models.expansion import num_parameters
from akunu_py.models.gguf_model import make_model
from akunu_py.models.load import LoadOptions, compute_types, held, wants_dense
from akunu_py.models.pass_memory import PassShape, pass_shape
from akunu_py.models.ranks.split import PlannedGroup, Way, plan
from akunu_py.models.rollback import RollbackCaches, leaves

_QUANTIZED_GROUP = 64
_STEP = int(KVCache.step)
"""Rows by which caches grow."""

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class CacheNeeds:
    """Sizes of one cache.

    Attributes:
        per_token: numbers per token.
        window: the most tokens it keeps; None for all.
        fixed_bytes: size of a state that does not grow.
        head_width: width of a key; 0 without keys.

    """

    per_token: int
    window: int | None
    fixed_bytes: int
    head_width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a model needs and can do.

    Attributes:
        architecture: `general.architecture`, or `model_type` of an MLX folder.
        parameters: number of parameters.
        dense: whether its weights will be dense rather than quantized.
        context: tokens it was trained for.
        file_bytes: size of its weights on disk.
        weights_bytes: size of its weights in memory.
        fitted_bytes: size in memory if types with a smaller, fitted form get it.
        number_bytes: size of a number in unquantized caches.
        caches: one entry for each cache that holds rows.
        quantizable: whether its caches can be quantized (`kv_bits`).
        rollback: the ways its caches roll back; empty where they cannot, and nothing is drafted.
        shape: sizes on which the memory of a pass depends.
        way: how the model is split over ranks; None for the whole model.

    """

    architecture: str
    parameters: int
    dense: bool
    context: int
    file_bytes: int
    weights_bytes: int
    fitted_bytes: int
    number_bytes: int
    caches: tuple[CacheNeeds, ...]
    quantizable: bool
    rollback: tuple[str, ...]
    shape: PassShape
    way: Way | None = None

    def cache_bytes(self, tokens: int, *, kv_bits: int | None = None) -> int:
        """Return the bytes of the caches after `tokens`, with `kv_bits` (4, 8) a number."""
        size = float(self.number_bytes)
        if kv_bits is not None:
            # A group has a scale and a bias.
            size = kv_bits / 8 + 2 * self.number_bytes / _QUANTIZED_GROUP
        rows = -(-tokens // _STEP) * _STEP
        kept = sum(
            cache.per_token * (rows if cache.window is None else min(rows, cache.window))
            for cache in self.caches
        )
        return round(kept * size) + sum(cache.fixed_bytes for cache in self.caches)

    def total_bytes(self, tokens: int, *, kv_bits: int | None = None, fitted: bool = False) -> int:
        """Return the bytes of weights (`fitted` or not), caches and the largest pass together."""
        return (
            (self.fitted_bytes if fitted else self.weights_bytes)
            + self.cache_bytes(tokens, kv_bits=kv_bits)
            + self.working_bytes(tokens, kv_bits=kv_bits)
        )

    def working_bytes(self, tokens: int, *, kv_bits: int | None = None) -> int:
        """Return the additional bytes of the largest pass with a context of `tokens`."""
        columns = max(
            (
                tokens if cache.window is None else min(tokens, cache.window + PREFILL_CHUNK)
                for cache in self.caches
                if cache.per_token
            ),
            default=0,
        )
        # A growing cache is in memory twice for a moment, one layer's at a time.
        growing = max((cache.per_token for cache in self.caches), default=0)
        return growing * columns * self.number_bytes + self.shape.working_bytes(
            tokens,
            columns=columns,
            number_bytes=self.number_bytes,
            quantized_cache=kv_bits is not None,
        )


def requirements(
    path: Path, options: LoadOptions | None = None, group: PlannedGroup | None = None
) -> Requirements:
    """Return what the model of a GGUF file or an MLX model folder needs.

    With a `group` these are the needs of one of several ranks. Raises ConfigError and
    ModelFormatError as `load_model` does, except for damaged weights.
    """
    options = options or LoadOptions()
    try:
        if not path.is_dir():
            return _of_gguf(path, options, group)
        return _of_folder(path, options, group)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def memory_limit() -> int:
    """Return the bytes of memory that a model on this machine can take.

    On a GPU that is the working set recommended by MLX, else the memory of the machine or the limit
    of its container.
    """
    physical = physical_memory()
    if not on_cpu():
        info = mx.device_info()
        recommended = info.get("max_recommended_working_set_size") or info.get("total_memory")
        return int(recommended or physical)
    try:
        allowed = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):
        return physical
    return min(physical, allowed)


def _of_gguf(path: Path, options: LoadOptions, group: PlannedGroup | None) -> Requirements:
    with GGUFFile.open(path) as file:
        model_plan = read_plan(file.metadata, file.tensors)
        parameters = file.num_weights
        dense = wants_dense(options.weights, held(parameters, group)) or not file.is_quantized
        number_bytes = compute_types(file, model_plan, options, on_gpu=not on_cpu())[0].size
        used = {name for placement in model_plan.placements for name in placement.tensors}
        tensors = [file.tensors[name] for name in used]

        taken, fitted = (
            [
                WeightForm(8 * number_bytes, 0, "dense")
                if dense
                else form_of(info.type.name, fitted=choice, q6k=options.q6k)
                for info in tensors
            ]
            for choice in (options.fitted, True)
        )
        file_bytes = file.nbytes
    model = make_model(model_plan)
    return _described(
        model,
        architecture=model_plan.architecture,
        parameters=parameters,
        dense=dense,
        context=model_plan.context_length,
        file_bytes=file_bytes,
        weights_bytes=_weights_bytes(tensors, taken, number_bytes),
        fitted_bytes=_weights_bytes(tensors, fitted, number_bytes),
        number_bytes=number_bytes,
        planes=max((form.codes_per_weight for form in taken), default=1),
        group=group,
    )


def _weights_bytes(
    tensors: Sequence[TensorInfo], forms: Sequence[WeightForm], number_bytes: int
) -> int:
    """Return the bytes of tensors in these forms; a dense number has `number_bytes`."""
    bits = sum(
        info.rows * info.cols * _bits_per_weight(form, number_bytes)
        for info, form in zip(tensors, forms, strict=True)
    )
    return round(bits / 8)


def _bits_per_weight(form: WeightForm, number_bytes: int) -> float:
    """Return the bits of a weight in a model whose dense numbers have `number_bytes`."""
    if form.mode == "dense":
        return 8.0 * number_bytes
    # The rest are scales and biases: 16 bits in a form, as wide as dense numbers here.
    codes = form.bits * form.codes_per_weight
    wider = number_bytes / 2 if form.mode == "affine" else 1
    return codes + (form.bits_per_weight - codes) * wider


def _of_folder(folder: Path, options: LoadOptions, group: PlannedGroup | None) -> Requirements:
    # Imports transformers, which GGUF files do without.
    from akunu_py.models import mlx_folder  # noqa: PLC0415

    file_bytes = sum(place.stat().st_size for place in folder.glob("*.safetensors"))
    known_plan: ModelPlan | None = None
    planes = 1
    if (folder / DESCRIPTION).is_file():
        known_plan, planes = read_converted_plan(folder)
        model: nn.Module = make_model(known_plan)
        architecture, context = known_plan.architecture, known_plan.context_length
        quantized = True
    else:
        config = mlx_folder.read_folder_config(folder)
        architecture, context = config["model_type"], mlx_folder.folder_context(config)
        quantized = "quantization" in config or "quantization_config" in config
        model = mlx_folder.open_folder_model(folder, config)
    parameters = num_parameters(model)
    dense = wants_dense(options.weights, held(parameters, group)) or not quantized
    number_bytes = 4 if on_cpu() and (dense or known_plan is not None) else 2
    weights_bytes = parameters * number_bytes if dense else file_bytes
    with mlx_folder.from_library(folder, "model"):
        return _described(
            model,
            architecture=architecture,
            parameters=parameters,
            dense=dense,
            context=context,
            file_bytes=file_bytes,
            weights_bytes=weights_bytes,
            fitted_bytes=weights_bytes,
            number_bytes=number_bytes,
            planes=1 if dense else planes,
            group=group,
        )


def _described(
    model: nn.Module, *, planes: int = 1, group: PlannedGroup | None = None, **known: Any
) -> Requirements:
    """Return requirements, completed by the model's caches.

    With a `group`, `known` is of the whole model, and the result of the part of a rank.
    """
    if group is not None:
        known["way"], share = plan(model, group, known["architecture"])
        for name in ("weights_bytes", "fitted_bytes"):
            known[name] = round(known[name] * share)
    # Numbers that take no memory, in case a class evaluates something.
    model.update(
        tree_map(
            lambda array: mx.broadcast_to(mx.zeros((), array.dtype), array.shape),
            model.parameters(),
        )
    )
    caches = make_caches(model)
    rollback = RollbackCaches(caches)
    logits = model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    kept = tuple(_needs(leaf) for leaf in leaves(caches))
    try:
        make_caches(model, kv_bits=8)
        quantizable = True
    except ConfigError:
        quantizable = False
    return Requirements(
        caches=kept,
        quantizable=quantizable,
        rollback=tuple(rollback.methods),
        shape=pass_shape(
            model,
            head_width=max((cache.head_width for cache in kept), default=0),
            vocabulary=logits.shape[-1],
            planes=planes,
        ),
        **known,
    )


def _needs(cache: Any) -> CacheNeeds:
    """Return the sizes of a cache, from its shapes after one row."""
    if isinstance(cache, KVCache | RotatingKVCache | ChunkedKVCache):
        arrays: Sequence[mx.array] = (cache.keys, cache.values)
        per_token = sum(array.size // array.shape[2] for array in arrays if array.size)
        window = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
        return CacheNeeds(per_token, window, 0, cache.keys.shape[-1])
    state = [array for _, array in tree_flatten(cache.state) if isinstance(array, mx.array)]
    return CacheNeeds(0, None, sum(array.nbytes for array in state))
