"""GGUF files: bytes to checked metadata, weights in MLX's quantized form, model arguments.

Nothing here imports MLX; arrays are numpy's. `reader` trusts no number of a file before it has
checked it, so the other modules can.
"""

from akunu_py.gguf.block_types import BLOCK_TYPES, BlockType
from akunu_py.gguf.config import LlamaConfig, read_config, supported_architectures
from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.names import ROPE_FREQUENCIES, check_tensors, expected_tensors, parameter_path
from akunu_py.gguf.quants import QuantizedMatrix, dense, dequantize, relayout
from akunu_py.gguf.reader import GGUFFile, TensorInfo

__all__ = [
    "BLOCK_TYPES",
    "ROPE_FREQUENCIES",
    "BlockType",
    "GGUFFile",
    "LlamaConfig",
    "MetadataValue",
    "QuantizedMatrix",
    "TensorInfo",
    "check_tensors",
    "dense",
    "dequantize",
    "expected_tensors",
    "parameter_path",
    "read_config",
    "relayout",
    "supported_architectures",
]
