"""GGML blocks to MLX's quantized layout: a re-layout of the same numbers, not a re-quantization.

MLX keeps a weight as `scale * code + bias`, its codes as one little-endian bit stream a row and
one scale and bias for each group. The GGML types below are that form with other packing, so the
weights come out exactly as in the file.

    type   code          scale  bias        source: ggml's `ggml-quants.c`
    Q8_0   int8 ^ 0x80   d      -128 d      w = d * q
    Q4_0   nibble        d      -8 d        w = d * (q - 8)
    Q4_1   nibble        d      m           w = d * q + m
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ModelFormatError, UnsupportedQuantizationError
from akunu_py.gguf.reader import TensorInfo

GROUP_SIZE = 32
"""Weights that share a scale and a bias, in each of the supported types."""

_CHUNK_BYTES = 1 << 20  # stays in a core's cache, and bounds temporary memory

SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix [rows, cols] as `mlx.core.quantized_matmul` takes it, in mode "affine".

    Attributes:
        packed: uint32 [rows, cols * bits / 32], element 0 in the lowest bits.
        scales: float16 [rows, cols / group_size]; float32 where float16 would overflow.
        biases: as scales.
        bits: 4 or 8, of one code.
        group_size: weights for one scale.

    """

    packed: NDArray[np.uint32]
    scales: NDArray[Any]
    biases: NDArray[Any]
    bits: Literal[4, 8]
    group_size: int = GROUP_SIZE


_Parts = tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]


def _half(blocks: NDArray[np.uint8], start: int) -> NDArray[np.float32]:
    """Return the float16 at byte `start` of each block, float32 [rows, blocks]."""
    raw = np.ascontiguousarray(blocks[..., start : start + 2])
    values: NDArray[np.float32] = raw.view("<f2")[..., 0].astype(np.float32)
    return values


def _pair_nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn [.., 16] bytes of (element i, element i + 16) into bytes of (2 i, 2 i + 1).

    GGML keeps elements 0-15 of a block in the low nibbles and 16-31 in the high ones; MLX keeps
    neighbours together.
    """
    # Two bytes a step: (a, b) as one 16-bit word with clean high halves; word | word >> 4 then has
    # a | b << 4 in its low byte, which the cast keeps.
    words = np.ascontiguousarray(codes).view("<u2")
    paired = np.empty(codes.shape, np.uint8)
    for half, nibbles in ((slice(None, 8), words), (slice(8, None), words >> 4)):
        clean = nibbles & 0x0F0F
        paired[..., half] = (clean | clean >> 4).astype(np.uint8)
    return paired


def _q8_0(blocks: NDArray[np.uint8]) -> _Parts:
    scales = _half(blocks, 0)
    return blocks[..., 2:] ^ np.uint8(0x80), scales, scales * -128


def _q4_0(blocks: NDArray[np.uint8]) -> _Parts:
    scales = _half(blocks, 0)
    return _pair_nibbles(blocks[..., 2:]), scales, scales * -8


def _q4_1(blocks: NDArray[np.uint8]) -> _Parts:
    return _pair_nibbles(blocks[..., 4:]), _half(blocks, 0), _half(blocks, 2)


_QUANTIZED: dict[str, tuple[Literal[4, 8], Callable[[NDArray[np.uint8]], _Parts]]] = {
    "Q8_0": (8, _q8_0),
    "Q4_0": (4, _q4_0),
    "Q4_1": (4, _q4_1),
}


def _unsupported(info: TensorInfo) -> UnsupportedQuantizationError:
    return UnsupportedQuantizationError(
        f"tensor {info.name!r} has the type {info.type.name}, which this version of akunu cannot "
        f"load; use a file of one of {', '.join(SUPPORTED_TYPES)}"
    )


def _check_shape(info: TensorInfo, raw: NDArray[np.uint8]) -> None:
    if raw.dtype != np.uint8 or raw.shape != (info.rows, info.row_bytes):
        raise ModelFormatError(
            f"tensor {info.name!r} of {info.type.name} needs bytes {(info.rows, info.row_bytes)}, "
            f"got {raw.dtype} {raw.shape}; pass what tensor_bytes returns"
        )


def relayout(info: TensorInfo, raw: NDArray[np.uint8]) -> QuantizedMatrix | NDArray[Any]:
    """Return a tensor in a form MLX computes with: quantized where the file is, else dense.

    `raw` is uint8 [rows, row_bytes] of `GGUFFile.tensor_bytes`. Raises
    UnsupportedQuantizationError for a type without a re-layout, ModelFormatError for scales that
    are not finite.
    """
    if info.type.name not in _QUANTIZED:
        return dense(info, raw)
    _check_shape(info, raw)
    bits, split = _QUANTIZED[info.type.name]
    rows, groups = info.rows, info.cols // GROUP_SIZE
    codes = np.empty((rows, info.cols * bits // 8), np.uint8)
    scales = np.empty((rows, groups), np.float32)
    biases = np.empty((rows, groups), np.float32)
    step = max(1, _CHUNK_BYTES // info.row_bytes)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        blocks = raw[part].reshape(-1, groups, info.type.block_bytes)
        chunk, scales[part], biases[part] = split(blocks)
        codes[part] = chunk.reshape(chunk.shape[0], -1)
    if not (np.isfinite(scales).all() and np.isfinite(biases).all()):
        raise ModelFormatError(
            f"tensor {info.name!r} has scales that are not finite; the file is damaged, or its "
            "quantization overflowed: download it again or use another quantization"
        )
    # d is float16 in the file, so float16 keeps it exactly, but 128 d may be beyond 65504.
    limit = float(np.finfo(np.float16).max)
    kind = np.float16 if np.abs(biases).max(initial=0) <= limit else np.float32
    return QuantizedMatrix(
        packed=codes.view("<u4"), scales=scales.astype(kind), biases=biases.astype(kind), bits=bits
    )


def dense(info: TensorInfo, raw: NDArray[np.uint8]) -> NDArray[Any]:
    """Return an unquantized tensor [rows, cols]: float16 for F16, float32 for F32 and BF16.

    F32 and F16 are views of `raw` where it is aligned; bfloat16 numbers are exact in float32,
    and numpy has no bfloat16. Values are not searched for NaN: that would read every byte of a
    large model a second time. Raises UnsupportedQuantizationError for another type.
    """
    if info.type.name not in ("F32", "F16", "BF16"):
        raise _unsupported(info)
    _check_shape(info, raw)
    if info.type.name == "BF16":
        words = np.ascontiguousarray(raw).view("<u2").astype(np.uint32)
        return (words << 16).view(np.float32)
    # An alignment of 1 is legal in GGUF, and a cast of unaligned bytes is slow or refused below.
    aligned = raw if raw.ctypes.data % 4 == 0 else raw.copy()
    return aligned.view("<f4" if info.type.name == "F32" else "<f2")


def dequantize(info: TensorInfo, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a tensor's weights as float32 [rows, cols], for each of the supported types."""
    matrix = relayout(info, raw)
    if not isinstance(matrix, QuantizedMatrix):
        return matrix.astype(np.float32)
    packed = matrix.packed.view(np.uint8)
    if matrix.bits == 4:
        packed = np.stack((packed & 0x0F, packed >> 4), axis=-1)
    codes = packed.reshape(info.rows, -1, matrix.group_size).astype(np.float32)
    scales = matrix.scales.astype(np.float32)[..., None]
    biases = matrix.biases.astype(np.float32)[..., None]
    # In place: with a large embedding each further copy would be gigabytes.
    codes *= scales
    codes += biases
    return codes.reshape(info.rows, info.cols)


if sys.byteorder != "little":  # pragma: no cover - neither Macs nor CI
    raise ImportError("akunu views file bytes as machine words and needs a little-endian machine")
