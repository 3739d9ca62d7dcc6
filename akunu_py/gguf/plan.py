"""The plan of a GGUF file's model, in terms of the class that will run it.

A reader in `architectures/` turns metadata and the tensor table into a `ModelPlan` without reading
weights. `akunu_py.models.gguf_model` builds the model.
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
        path: path of the parameter, such as "model.layers.0.self_attn.q_proj.weight".
        tensors: GGUF names; the rows of several follow one another.
        rows: which of their rows the parameter has, in its order (elements for a vector); None
            takes all in order. For a stack of experts they are rows of the flattened stack.
        columns: for each column of the parameter the column of the tensor; None takes all in order.
        convert: applied to the dense numbers, after `rows` and `columns`. A tensor with a
            conversion is never kept quantized.
        float32: whether the parameter stays in float32 whatever the model computes in.
        scales: for each tensor the name of the tensor that scales it, or None; empty if there are
            none. A scale has one number, or one for each expert of a stack.

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
        tensor: name of the GGUF tensor of the factors, [dims / 2].
        long_tensor: name of the factors to use if the context exceeds `original_context`.
        original_context: see long_tensor, in tokens.
        scale: factor of cosines and sines (`rope.scaling.attn_factor`).
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
    """Rotary layers for a model class without an argument for scaled positions.

    Attributes:
        dims: rotated dimensions of a head.
        base: base of the frequencies, base ** (-2 i / dims).
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
        model: module of the class in `mlx_lm.models`, or "variants.<name>", a class of
            `akunu_py.models.variants`.
        arguments: arguments of the class (ModelArgs).
        placements: every parameter that the file holds.
        constants: parameters of the class with fixed values, which the file leaves out.
        num_layers: number of blocks to run.
        context_length: tokens the model was trained for.
        vocabulary_size: rows of the embedding.
        rotary: the rotary layers, if the class has no argument for them.
        wide_range: whether activations of the family are known to exceed float16's range. On a GPU
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
