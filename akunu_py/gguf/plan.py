"""The plan of a GGUF file's model, in terms of the class that will run it.

A reader in `architectures/` turns metadata and the tensor table into a `ModelPlan` without reading
weights. `akunu_py.models.gguf_model` builds the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]

RowOrder = slice | Indices
"""Rows of a tensor to take, in that order: a slice or an index array."""

Conversion = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""A tensor's numbers, float32 in row-major shape, to the parameter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One parameter of the model, and the GGUF tensors it is made of."""

    path: str  # Such as "model.layers.0.self_attn.q_proj.weight".
    tensors: tuple[str, ...]  # GGUF names; the rows of several follow one another.
    # Which of their rows the parameter has, in its order (elements for a vector; rows of the
    # flattened stack for experts); None takes all in order.
    rows: RowOrder | None = None
    # For each column of the parameter the column of the tensor; None takes all in order.
    columns: Indices | None = None
    # Applied to the dense numbers, after `rows` and `columns`. A tensor with a conversion is
    # never kept quantized.
    convert: Conversion | None = None
    float32: bool = False  # Whether the parameter stays in float32 whatever the model computes in.
    # For each tensor the name of the tensor that scales it, or None; empty if there are none. A
    # scale has one number, or one for each expert of a stack.
    scales: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryFactors:
    """Rotary frequencies that the model class has no argument for."""

    dims: int  # Rotated dimensions of a head.
    base: float  # Frequency i is base ** (-2 i / dims) / factor i.
    tensor: str  # GGUF name of the factors, [dims / 2 * step].
    step: int = 1  # Only every so many factors are of rotated dimensions.
    long_tensor: str | None = None  # Factors to use if the context exceeds `original_context`.
    original_context: int | None = None
    scale: float = 1.0  # Of cosines and sines (`rope.scaling.attn_factor`).
    traditional: bool = False  # Whether neighbours rotate together, rather than halves of the head.
    # A regular expression for the paths of the rotary modules to replace.
    modules: str = r".*\.rope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryScaling:
    """Rotary layers for a model class without an argument for scaled positions."""

    dims: int  # This and the rest as in `RotaryFactors`.
    base: float
    scaling: Mapping[str, Any]  # mlx-lm's `rope_scaling`.
    traditional: bool = False
    modules: str = r".*\.rope"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model to build, and where its parameters come from."""

    architecture: str
    # Module of the class in `mlx_lm.models`, or "variants.<name>", a class of
    # `akunu_py.models.variants`.
    model: str
    arguments: dict[str, Any]  # Of the class (ModelArgs).
    placements: tuple[Placement, ...]
    num_layers: int  # Blocks to run; the file may have further ones.
    context_length: int  # Tokens the model was trained for.
    vocabulary_size: int
    # The rotary layers, if the class has no argument for them.
    rotary: RotaryFactors | RotaryScaling | None = None
    # Parameters of the class with fixed values, which the file leaves out.
    constants: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    # Whether activations of the family are known to exceed float16's range. On a GPU such a model
    # computes in bfloat16; others are checked when they are loaded.
    wide_range: bool = False
