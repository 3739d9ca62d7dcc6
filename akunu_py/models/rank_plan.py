"""What a rank reads of a GGUF file: its part of each tensor, found before anything is read.

A plan says which rows and columns of the file's tensors make each parameter. So the part of a rank
is a plan as well, with fewer rows and columns.
"""

import dataclasses
import math

import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from numpy.typing import NDArray

from akunu_py.gguf.plan import Conversion, ModelPlan, Placement, RowOrder
from akunu_py.gguf.quants.forms import DENSE, form_of
from akunu_py.models.rank_split import Group, Kept, Split, prepare, stacked_error
from akunu_py.models.weights import WeightReader, wrong_shape
from akunu_py.system.errors import ConfigError


def own_part(
    plan: ModelPlan, model: nn.Module, group: Group, reader: WeightReader
) -> tuple[ModelPlan, Split]:
    """Return the plan of this rank's part; `model`, without weights, gets the shapes of that part.

    Raises ConfigError for a model that cannot be split over the group, ModelFormatError for tensors
    whose shapes do not fit.
    """
    before = {path for path, _ in tree_flatten(model.parameters())}
    split = prepare(model, group, f"a GGUF file of the architecture {plan.architecture}")
    if split.whole_model:
        raise ConfigError(
            f"mlx-lm's class for {plan.architecture} can split only a whole model, and no rank "
            "builds that from a GGUF file; run `akunu models convert FILE FOLDER` on each machine, "
            "and give that folder"
        )
    shapes = {path: tuple(array.shape) for path, array in tree_flatten(model.parameters())}
    absent = before - shapes.keys()
    placements = []
    for item in plan.placements:
        if item.path in absent:
            continue
        kept = split.part_of(item.path, shapes[item.path]) if item.path in shapes else None
        if kept is not None:
            _check_quantized(item, kept, shapes[item.path], group.size(), reader)
            item = _part(item, kept, shapes[item.path], reader)  # noqa: PLW2901
        placements.append(item)
    constants = {
        path: value if (kept := split.part_of(path, value.shape)) is None else _take(value, kept)
        for path, value in plan.constants.items()
        if path not in absent
    }
    split.cut_all(model)
    return dataclasses.replace(plan, placements=tuple(placements), constants=constants), split


def _part(item: Placement, kept: Kept, shape: tuple[int, ...], reader: WeightReader) -> Placement:
    """Return a placement of what a rank keeps of a parameter; `shape` is the whole one's."""
    infos = [reader.file.tensors[name] for name in item.tensors]
    if item.convert is not None:
        # What it makes of some rows is unknown: the tensor is read whole, and then cut.
        convert = _then_cut(item.convert, kept, shape)
        return dataclasses.replace(item, convert=convert)
    whole = item.rows is None and item.columns is None
    if whole and len(infos) == 1 and infos[0].shape != shape:
        raise wrong_shape(item, infos[0].shape, shape)
    num_columns = shape[-1] if len(shape) > 1 else 1
    found = infos[0].cols if item.columns is None else len(item.columns)
    if len(shape) > 1 and found != num_columns:
        raise wrong_shape(item, (found,), shape)
    num_rows = math.prod(shape) // num_columns
    available = sum(info.rows if len(shape) > 1 else math.prod(info.shape) for info in infos)
    rows = np.arange(available) if item.rows is None else _resolve(item.rows, available)
    if len(rows) != num_rows:
        raise wrong_shape(item, (len(rows),), shape)
    if len(shape) > 1 and kept.axis == len(shape) - 1:
        columns = np.arange(num_columns) if item.columns is None else item.columns
        return dataclasses.replace(item, columns=columns[kept.indices])
    lead = shape[:-1] if len(shape) > 1 else shape
    own = rows.reshape(lead).take(kept.indices, kept.axis).reshape(-1)
    return dataclasses.replace(item, rows=_as_slice(own))


def _resolve(rows: RowOrder, available: int) -> NDArray[np.intp]:
    if isinstance(rows, slice):
        # A file with too few rows is found by the reader.
        stop = available if rows.stop is None else rows.stop
        return np.arange(rows.start or 0, stop, rows.step or 1)
    return rows


def _as_slice(rows: NDArray[np.intp]) -> RowOrder:
    """Return rows that follow one another as a slice, of which the reader makes no copy."""
    begin, end = int(rows[0]), int(rows[0]) + len(rows)
    return slice(begin, end) if np.array_equal(rows, np.arange(begin, end)) else rows


def _then_cut(convert: Conversion, kept: Kept, shape: tuple[int, ...]) -> Conversion:
    def cut(values: NDArray[np.float32]) -> NDArray[np.float32]:
        whole = convert(values)
        if whole.shape != shape:
            raise ValueError(f"{whole.shape} instead of {shape}")
        return _take(whole, kept)

    return cut


def _take(values: NDArray[np.float32], kept: Kept) -> NDArray[np.float32]:
    return values.take(kept.indices, kept.axis)


def _check_quantized(
    item: Placement, kept: Kept, shape: tuple[int, ...], ranks: int, reader: WeightReader
) -> None:
    """Raise ConfigError for quantized weights that cannot be cut where they would have to be."""
    if reader.dense or not item.path.endswith(".weight") or len(shape) == 1:
        return
    infos = [reader.file.tensors[name] for name in item.tensors]
    kinds = {info.type.name for info in infos}
    if len(kinds) > 1 and not kinds <= DENSE.keys():
        raise stacked_error(item.path.removesuffix(".weight"))
    if kept.axis < len(shape) - 1:
        return
    for info in infos:
        form = form_of(info.type.name, reader.q6k)
        width = 1 if form.mode == "dense" else form.group_size // form.codes_per_weight
        if info.cols % (ranks * width):
            raise ConfigError(
                f"the tensor {info.name!r} has {info.cols} columns in groups of {width}, which do "
                f"not divide by {ranks}; start another number of ranks, or set weights to "
                "dense where memory allows"
            )
