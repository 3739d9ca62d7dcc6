"""ggml's own quantizers and dequantizers, from llama-cpp-python or xllamacpp where installed."""

import ctypes
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np

from akunu_py.gguf import BLOCK_TYPES

TYPES = {block.name: block for block in BLOCK_TYPES.values()}


class _Traits(ctypes.Structure):
    """The head of ggml's `ggml_type_traits`."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_elements", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    )


def _library_path():
    """The shared library of an installed package that has ggml in it."""
    for package, pattern in (("llama_cpp", "lib/libggml-base*"), ("xllamacpp", "xllamacpp*.so")):
        spec = find_spec(package)
        folders = () if spec is None else spec.submodule_search_locations
        found = next(chain.from_iterable(Path(place).glob(pattern) for place in folders), None)
        if found is not None:
            return found
    raise ImportError("install llama-cpp-python or xllamacpp: their ggml makes the blocks")


class Ggml:
    """Raises ImportError where neither llama-cpp-python nor xllamacpp is installed."""

    def __init__(self):
        self._library = ctypes.CDLL(str(_library_path()))
        self._library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
        self._library.ggml_quantize_chunk.restype = ctypes.c_size_t
        self._library.ggml_quantize_chunk.argtypes = [
            ctypes.c_int,
            *[ctypes.c_void_p] * 2,
            *[ctypes.c_int64] * 3,
            ctypes.c_void_p,
        ]

    def _traits(self, kind):
        traits = self._library.ggml_get_type_traits(TYPES[kind].id).contents
        block = TYPES[kind]
        found = traits.block_elements, traits.block_bytes
        if found != (block.block_elements, block.block_bytes):
            raise AssertionError(f"{kind} is {found} in this ggml")
        return traits

    def quantize(self, kind, weights, importance):
        """Blocks uint8 [rows, row_bytes] of float32 weights, with an importance for each column."""
        self._traits(kind)
        rows, cols = weights.shape
        block = TYPES[kind]
        raw = np.zeros((rows, cols // block.block_elements * block.block_bytes), np.uint8)
        pointers = weights.ctypes.data, raw.ctypes.data
        written = self._library.ggml_quantize_chunk(
            block.id, *pointers, 0, rows, cols, importance.ctypes.data
        )
        if written != raw.nbytes:
            raise AssertionError(f"ggml wrote {written} bytes, not {raw.nbytes}")
        return raw

    def dequantize(self, kind, raw):
        """Weights float32 [rows, cols] of blocks uint8 [rows, row_bytes]."""
        block = TYPES[kind]
        cols = raw.shape[1] // block.block_bytes * block.block_elements
        weights = np.zeros((len(raw), cols), np.float32)
        raw = np.ascontiguousarray(raw)
        self._traits(kind).to_float(raw.ctypes.data, weights.ctypes.data, weights.size)
        return weights
