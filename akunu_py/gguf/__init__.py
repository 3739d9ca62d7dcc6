"""GGUF files: bytes to checked metadata, weights in MLX's quantized form, model arguments.

Nothing here imports MLX; arrays are numpy's. `reader` checks every number of a file, so the other
modules can trust them.
"""

from akunu_py.gguf.architectures import read_plan, supported_architectures
from akunu_py.gguf.header import BLOCK_TYPES, BlockType, MetadataValue
from akunu_py.gguf.plan import ModelPlan, Placement, RotaryFactors
from akunu_py.gguf.quants.matrix import QuantizedMatrix, dense, dequantize, relayout
from akunu_py.gguf.reader import GGUFFile, TensorInfo

__all__ = [
    "BLOCK_TYPES",
    "BlockType",
    "GGUFFile",
    "MetadataValue",
    "ModelPlan",
    "Placement",
    "QuantizedMatrix",
    "RotaryFactors",
    "TensorInfo",
    "dense",
    "dequantize",
    "read_plan",
    "relayout",
    "supported_architectures",
]
