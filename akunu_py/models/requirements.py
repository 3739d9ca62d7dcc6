"""What a model will need and can do, before its weights are read.

The model is built from metadata, and one row is passed through it without evaluation: that gives
all shapes without computing anything. Freed buffers, which MLX keeps for the next pass and gives
back where memory is short, are not counted.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.cache import make_caches
from akunu_py.models.cache_needs import CacheNeeds, cache_needs, cached_bytes
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.converted_plan import DESCRIPTION, read_converted_plan
from akunu_py.models.device import has_kernels, on_cpu, physical_memory
from akunu_py.models.expansion import num_parameters
from akunu_py.models.folder_settings import folder_context, read_folder_config
from akunu_py.models.gguf_model import make_model
from akunu_py.models.heads.loading import head_place
from akunu_py.models.heads.needs import HeadNeeds, head_needs
from akunu_py.models.library_errors import from_library
from akunu_py.models.load import LoadOptions, compute_types, explained, held, wants_dense
from akunu_py.models.pass_memory import PassShape, pass_shape
from akunu_py.models.ranks.split import PlannedGroup, Way, plan
from akunu_py.models.rollback import RollbackCaches, leaves
from akunu_py.models.weight_bytes import bytes_in_forms, forms_of
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.codecs import check_vocabulary

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


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
        head: what the prediction head needs that drafts for it; None without one.

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
    head: HeadNeeds | None = None

    def cache_bytes(self, tokens: int, *, kv_bits: int | None = None) -> int:
        """Return the bytes of the caches after `tokens`, with `kv_bits` (4, 8) a number.

        The cache of a head counts too; it is never quantized.
        """
        own = cached_bytes(self.caches, tokens, self.number_bytes, kv_bits=kv_bits)
        return own if self.head is None else own + self.head.cache_bytes(tokens)

    def total_bytes(self, tokens: int, *, kv_bits: int | None = None, fitted: bool = False) -> int:
        """Return the bytes of weights (`fitted` or not), caches and the largest pass together."""
        weights = self.fitted_bytes if fitted else self.weights_bytes
        if self.head is not None:
            weights += self.head.fitted_bytes if fitted else self.head.weights_bytes
        return (
            weights
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
    path: Path,
    options: LoadOptions | None = None,
    group: PlannedGroup | None = None,
    *,
    heads: str | Path | None = None,
) -> Requirements:
    """Return what the model of a GGUF file or an MLX model folder needs.

    With a `group` these are the needs of one of several ranks. With `heads`, "own" or the path of a
    file or folder, they include those of the prediction head there, if there is one. Raises
    ConfigError and ModelFormatError as `load_model` and `load_head` do, except for damaged weights.
    """
    options = options or LoadOptions()
    head = None if heads is None else head_place(path, heads)
    with explained(path):
        if not path.is_dir():
            return _of_gguf(path, options, group, head)
        return _of_folder(path, options, group, head)


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


def _of_gguf(
    path: Path, options: LoadOptions, group: PlannedGroup | None, head: Path | None
) -> Requirements:
    with GGUFFile.open(path) as file:
        model_plan = read_plan(file.metadata, file.tensors)
        check_vocabulary(file.metadata)
        parameters = file.num_weights
        dense = wants_dense(options.weights, held(parameters, group)) or not file.is_quantized
        number_bytes = compute_types(file, model_plan, options, on_gpu=not on_cpu())[0].size
        used = {name for placement in model_plan.placements for name in placement.tensors}
        tensors = [file.tensors[name] for name in used]
        forms, fitted_forms = (
            forms_of(tensors, number_bytes, dense=dense, fitted=fitted, q6k=options.q6k)
            for fitted in (options.fitted, True)
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
        weights_bytes=bytes_in_forms(tensors, forms, number_bytes),
        fitted_bytes=bytes_in_forms(tensors, fitted_forms, number_bytes),
        number_bytes=number_bytes,
        planes=max((form.codes_per_weight for form in forms), default=1),
        group=group,
        head=head,
        fitted=options.fitted,
    )


def _loaded_bytes(array: mx.array) -> int:
    """Return the bytes of an array of a folder model in memory: kernels compute in float32."""
    widened = on_cpu() and has_kernels() and mx.issubdtype(array.dtype, mx.floating)
    return 4 * array.size if widened else array.nbytes


def _of_folder(
    folder: Path, options: LoadOptions, group: PlannedGroup | None, head: Path | None
) -> Requirements:
    # Imports transformers, which GGUF files do without.
    from akunu_py.models import mlx_folder

    files = filter(Path.is_file, folder.glob("*.safetensors"))
    file_bytes = sum(place.stat().st_size for place in files)
    known_plan: ModelPlan | None = None
    planes = 1
    if (folder / DESCRIPTION).is_file():
        known_plan, planes = read_converted_plan(folder)
        model: nn.Module = make_model(known_plan)
        architecture, context = known_plan.architecture, known_plan.context_length
        quantized = True
        stored_bytes = file_bytes
    else:
        config = read_folder_config(folder)
        architecture, context = config["model_type"], folder_context(config)
        quantized = "quantization" in config or "quantization_config" in config
        model = mlx_folder.open_folder_model(folder, config)
        # Files may hold what the model is loaded without, such as a head.
        stored_bytes = sum(_loaded_bytes(array) for _, array in tree_flatten(model.parameters()))
    parameters = num_parameters(model)
    dense = wants_dense(options.weights, held(parameters, group)) or not quantized
    number_bytes = 4 if on_cpu() and (dense or known_plan is not None or has_kernels()) else 2
    weights_bytes = parameters * number_bytes if dense else stored_bytes
    with from_library(folder, "model"):
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
            head=head,
        )


def _described(
    model: nn.Module,
    *,
    planes: int = 1,
    group: PlannedGroup | None = None,
    head: Path | None = None,
    fitted: bool = False,
    **known: Any,
) -> Requirements:
    """Return requirements, completed by the model's caches and by the head at `head`.

    With a `group`, `known` is of the whole model, and the result of the part of a rank. `fitted`
    says whether a head in a GGUF file gets fitted forms.
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
    kept = tuple(cache_needs(leaf) for leaf in leaves(caches))
    if head is not None:
        known["head"] = head_needs(
            model, known["architecture"], head, known["number_bytes"],
            dense=known["dense"], fitted=fitted,
        )  # fmt: skip
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
