"""A GGUF file as one of mlx-lm's models: class, weights and rotary layers."""

import importlib
import logging
import re
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.rope_utils import initialize_rope

from akunu_py.gguf.plan import ModelPlan, Placement, RotaryFactors, RotaryScaling
from akunu_py.gguf.quants.matrix import release_threads
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.layers import FrequencyRope
from akunu_py.models.library_errors import errors_of
from akunu_py.models.load_steps import Steps
from akunu_py.models.rank_plan import own_part
from akunu_py.models.rank_split import Group
from akunu_py.models.variants import VARIANT_PREFIX, variant
from akunu_py.models.weights import MATRIX_LAYERS, WeightReader
from akunu_py.system.errors import ModelFormatError

_log = logging.getLogger(__name__)

_MAX_FACTOR = np.float32(1e30)


def build_gguf_model(
    plan: ModelPlan, reader: WeightReader, *, context: int | None, group: Group | None = None
) -> Steps[nn.Module]:
    """Build the model and load its weights, tensor by tensor.

    The largest tensors come first: each is in memory twice for a moment, while little else is
    loaded. `context` bounds the tokens the model will see; None is the context it was trained for.
    With a `group` of several ranks, the model is the part of this rank.

    Raises ModelFormatError where metadata and tensors do not make a model, Float16OverflowError
    where the reader's type is float16 and a weight exceeds it, ConfigError for a model that cannot
    be split over the group.
    """
    model = make_model(plan)
    set_rotary(model, plan, reader, context)
    split = None
    if group is not None:
        plan, split = own_part(plan, model, group, reader)
    yield from fill_model(model, plan, reader)
    if split is not None:
        split.join(model)
        model.eval()
    return model


def fill_model(model: nn.Module, plan: ModelPlan, reader: WeightReader) -> Steps[None]:
    """Load the weights of a model whose parameters are those that the plan places.

    Raises as `build_gguf_model` does.
    """
    shapes = {path: tuple(array.shape) for path, array in tree_flatten(model.parameters())}
    try:
        layers, arrays = yield from _read_weights(plan, reader, model, shapes)
    finally:
        release_threads()
    arrays += [
        (path, mx.array(value).astype(reader.kind)) for path, value in plan.constants.items()
    ]
    _check_complete(plan, shapes, {path for path, _ in arrays}, {path for path, _ in layers})
    if layers:
        model.update_modules(tree_unflatten(layers))
    model.update(tree_unflatten(arrays))
    model.eval()
    mx.eval(model.parameters())  # what has no tensor; the others are evaluated
    mx.clear_cache()
    _log.info("%d arrays in %s, %d quantized layers", len(arrays), reader.kind, len(layers))


def _read_weights(
    plan: ModelPlan,
    reader: WeightReader,
    model: nn.Module,
    shapes: dict[str, tuple[int, ...]],
) -> Steps[tuple[list[tuple[str, nn.Module]], list[tuple[str, mx.array]]]]:
    """Return the layers that replace the model's, and the arrays of its other parameters."""
    modules = dict(model.named_modules())
    layers: list[tuple[str, nn.Module]] = []
    arrays: list[tuple[str, mx.array]] = []
    for placement in sorted(plan.placements, key=lambda item: -_size(reader.file, item)):
        path, _, parameter = placement.path.rpartition(".")
        if placement.path not in shapes:
            raise ModelFormatError(
                f"the tensor {placement.tensors[0]!r} has no place in a {plan.architecture} model "
                "with this file's metadata; use a conversion of the plain model"
            )
        old = modules.get(path)
        if parameter == "weight" and isinstance(old, MATRIX_LAYERS):
            new = reader.layer(placement, old)
            if new is not None:
                # Evaluated one by one: numpy's copy is freed before the next is made.
                mx.eval(new.parameters())
                layers.append((path, new))
                yield
                continue
        array = reader.array(placement, shapes[placement.path])
        mx.eval(array)
        arrays.append((placement.path, array))
        yield
    return layers, arrays


def overflows(model: nn.Module, vocabulary_size: int, context: int) -> bool:
    """Return whether activations exceed the model's type on a text of many different tokens.

    Some families were trained in bfloat16 with activations that float16 cannot hold.
    """
    ids = np.linspace(0, vocabulary_size - 1, min(64, context), dtype=np.int32)
    logits = model(mx.array(ids)[None])
    return not bool(mx.isfinite(logits).all().item())


def make_model(plan: ModelPlan) -> nn.Module:
    """Return the plan's model without its weights.

    Raises ModelFormatError for an unknown class, or arguments that contradict each other.
    """
    # A reader checks each number separately; only the classes find contradictions.
    with errors_of(
        f"the metadata describes a {plan.architecture} model that cannot be built",
        "download or convert the model again",
    ):
        if plan.model.startswith(VARIANT_PREFIX):
            model_class, arguments_class = variant(plan.model.removeprefix(VARIANT_PREFIX))
        else:
            module = importlib.import_module(f"mlx_lm.models.{plan.model}")
            model_class, arguments_class = module.Model, module.ModelArgs
        model: nn.Module = model_class(arguments_class.from_dict(plan.arguments))
    return model


def _size(file: GGUFFile, placement: Placement) -> int:
    return sum(file.tensors[name].nbytes for name in placement.tensors)


def _check_complete(
    plan: ModelPlan, shapes: dict[str, Any], arrays: set[str], layers: set[str]
) -> None:
    missing = [
        path
        for path in shapes
        if path not in arrays and not (path.endswith(".weight") and path[:-7] in layers)
    ]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise ModelFormatError(
            f"the file has no tensors for {len(missing)} parameters of its {plan.architecture} "
            f"model: {shown}; it is incomplete, or a variant that akunu does not know"
        )


def set_rotary_scaling(model: nn.Module, rotary: RotaryScaling, context: int) -> None:
    """Replace the rotary layers of a class without an argument for scaled positions.

    Raises ModelFormatError for a model without rotary layers.
    """
    rope = initialize_rope(
        rotary.dims, rotary.base, rotary.traditional, dict(rotary.scaling), context
    )
    _replace_rotary(model, rotary.modules, rope, "scaled positions")


def set_rotary(
    model: nn.Module, plan: ModelPlan, reader: WeightReader, context: int | None
) -> None:
    """Replace the rotary layers of a model where its plan says so."""
    rotary, context = plan.rotary, context or plan.context_length
    if isinstance(rotary, RotaryScaling):
        set_rotary_scaling(model, rotary, context)
    elif rotary is not None:
        rope = _frequency_rope(rotary, reader, context)
        _replace_rotary(model, rotary.modules, rope, repr(rotary.tensor))


def _replace_rotary(model: nn.Module, modules: str, rope: nn.Module, cause: str) -> None:
    paths = [path for path, _ in model.named_modules() if re.fullmatch(modules, path)]
    if not paths:
        raise ModelFormatError(
            f"the file has {cause}, but its model has no rotary layers to apply it to; use a "
            "conversion of the plain model"
        )
    model.update_modules(tree_unflatten([(path, rope) for path in paths]))


def _frequency_rope(rotary: RotaryFactors, reader: WeightReader, context: int) -> FrequencyRope:
    name = rotary.tensor
    if rotary.long_tensor and rotary.original_context and context > rotary.original_context:
        name = rotary.long_tensor
    factors = reader.vector(name)
    # False for NaN. Converters mark pairs that do not rotate with a factor of 1e30.
    sound = (factors > 0) & (factors <= _MAX_FACTOR)
    count = rotary.dims // 2 * rotary.step
    if factors.shape != (count,) or not sound.all():
        raise ModelFormatError(
            f"tensor {name!r} should hold {count} positive factors of the rotary "
            f"frequencies, but has the shape {factors.shape}; download or convert the model again"
        )
    exponents = np.arange(0, rotary.dims, 2, dtype=np.float64) / rotary.dims
    factors = factors[:: rotary.step]
    wavelengths = mx.array((rotary.base**exponents * factors).astype(np.float32))
    return FrequencyRope(
        rotary.dims, wavelengths, traditional=rotary.traditional, scale=rotary.scale
    )
