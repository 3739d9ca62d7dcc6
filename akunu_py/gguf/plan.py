"""What a GGUF file says of its model, in the terms of the class that will run it.

A reader in `architectures/` turns metadata and the tensor table into a `ModelPlan`; nothing is read
of the weights. `akunu_py.models.gguf_model` builds what it describes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

RowOrder = slice | NDArray[np.intp]
"""Rows of a tensor to take, in that order: a slice or an index array."""

Conversion = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""A tensor's numbers, float32 in row-major shape, to the parameter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One parameter of the model, and the GGUF tensors it is made of.

    Attributes:
        path: of the parameter, such as "model.layers.0.self_attn.q_proj.weight".
        tensors: GGUF names; the rows of several follow one another.
        rows: which rows of them the parameter has, in its order (for a vector: which elements);
            None takes all as they are. Of an expert stack: rows of the stack laid flat.
        columns: which column of the tensor each column of the parameter is, a permutation.
        convert: applied to the dense numbers, after `rows` and `columns`. A tensor with a
            conversion is never kept quantized.
        float32: kept in float32 whatever the model computes in.
        scales: for each of the tensors the one that its numbers are multiplied by, or None; as a
            whole empty where there are none. It has one number, or one for each expert of a stack.

    """

    path: str
    tensors: tuple[str, ...]
    rows: RowOrder | None = None
    columns: NDArray[np.intp] | None = None
    convert: Conversion | None = None
    float32: bool = False
    scales: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryFactors:
    """Rotary frequencies that the model class has no argument for.

    Attributes:
        dims: rotated dimensions of a head.
        base: frequency i is base ** (-2 i / dims) / factor i.
        tensor: name of the GGUF tensor [dims / 2] that holds the factors.
        long_tensor: the factors to take instead where the context exceeds `original_context`.
        original_context: see long_tensor, in tokens.
        scale: cosines and sines are multiplied by it (`rope.scaling.attn_factor`).
        traditional: whether neighbours rotate together, rather than halves of the head.
        modules: a regular expression for the paths of the rotary modules to replace.

    """

    dims: int
    base: float
    tensor: str
    long_tensor: str | None = None
    original_context: int | None = None
    scale: float = 1.0
    traditional: bool = False
    modules: str = r".*\.rope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryScaling:
    """Rotary layers for a model class that has no argument for scaled positions.

    Attributes:
        dims: rotated dimensions of a head.
        base: of the frequencies, base ** (-2 i / dims).
        scaling: mlx-lm's `rope_scaling`.
        traditional: whether neighbours rotate together, rather than halves of the head.
        modules: a regular expression for the paths of the rotary modules to replace.

    """

    dims: int
    base: float
    scaling: Mapping[str, Any]
    traditional: bool = False
    modules: str = r".*\.rope"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model to build, and where its parameters come from.

    Attributes:
        architecture: `general.architecture`.
        model: module of the class, in `mlx_lm.models`, or "variants.<name>" in `akunu_py.models`.
        arguments: for its ModelArgs.
        placements: every parameter that the file holds.
        constants: parameters of the class that the file leaves out, since their value is fixed.
        num_layers: blocks that are run.
        context_length: tokens the model was trained for.
        vocabulary_size: rows of the embedding.
        rotary: what the rotary layers are to be, where the class has no argument for it.
        wide_range: whether activations of the family are known to leave float16's range. On a GPU
            such a model computes in bfloat16; others are checked when they are loaded.

    """

    architecture: str
    model: str
    arguments: dict[str, Any]
    placements: tuple[Placement, ...]
    num_layers: int
    context_length: int
    vocabulary_size: int
    rotary: RotaryFactors | RotaryScaling | None = None
    constants: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    wide_range: bool = False
