"""Tensors of a GGUF file to arrays for MLX, chunk by chunk on a few threads.

numpy releases the interpreter inside its loops, so threads help. Chunks that fit a core's cache
make the many passes of a re-layout cheap and bound temporary memory.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akunu_py.gguf.quants import scratch
from akunu_py.gguf.quants.forms import (
    DENSE,
    EXACT,
    SUPPORTED_TYPES,
    Lattice,
    Mode,
    WeightForm,
    lattice_of,
)
from akunu_py.gguf.quants.packing import pack, pack_planes
from akunu_py.gguf.reader import TensorInfo
from akunu_py.system.errors import ModelFormatError, UnsupportedQuantizationError
from akunu_py.values.load_options import Q6KForm

# Each chunk takes a few dozen numpy calls, whose overhead serializes threads. So large
# chunks are better, as long as codes and temporaries stay in a core's cache.
_CHUNK_WEIGHTS = 1 << 20
_MAX_THREADS = 8  # beyond that memory bandwidth is the limit
_BYTES_FOR_THREADS = 1 << 21  # below that starting threads costs more than they save

_LAST_E8M0 = 252  # 6 * 2 ** (252 - 127) is the last weight float32 can hold
_NAN_E4M3 = 0x7F


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix [rows, cols] in the form `mlx.core.quantized_matmul` takes."""

    # uint32 [rows, stored * bits / 32], element 0 in the lowest bits; stored is cols times the
    # number of `multipliers`, if any.
    packed: NDArray[np.uint32]
    # float16 or float32 [rows, stored / group_size] in mode "affine"; else uint8.
    scales: NDArray[Any]
    biases: NDArray[Any] | None  # As scales; None unless the mode is "affine".
    bits: int
    group_size: int  # Stored codes per scale.
    mode: Mode = "affine"
    # Of planes, or empty; see `forms`. A group has a part `scale * code + bias` of each weight
    # for each plane, and the weight is the sum of the parts times their multipliers.
    multipliers: tuple[float, ...] = ()

    @property
    def group_columns(self) -> int:
        """Columns of the matrix per group."""
        return self.group_size // max(1, len(self.multipliers))


def _check_shape(info: TensorInfo, raw: NDArray[np.uint8]) -> None:
    if raw.dtype != np.uint8 or raw.shape != (info.rows, info.row_bytes):
        raise ModelFormatError(
            f"tensor {info.name!r} of {info.type.name} needs bytes {(info.rows, info.row_bytes)}, "
            f"got {raw.dtype} {raw.shape}; pass what tensor_bytes returns"
        )


def _check_finite(info: TensorInfo, *arrays: NDArray[Any]) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ModelFormatError(
            f"tensor {info.name!r} has scales that are not finite; the file is damaged, or its "
            "quantization overflowed: download it again or use another quantization"
        )


def _check_bytes(info: TensorInfo, mode: Mode, scales: NDArray[np.uint8]) -> None:
    """Refuse scale bytes that are NaN, or that MLX and ggml read as different numbers."""
    sound = scales <= _LAST_E8M0 if mode == "mxfp4" else scales != _NAN_E4M3
    _check_finite(info, np.where(sound, 0.0, np.nan))


def _each_chunk(info: TensorInfo, work: Callable[[slice], bool]) -> bool:
    """Call `work` with slices that cover the rows; return whether all calls returned True."""
    step = max(1, _CHUNK_WEIGHTS // info.cols)
    parts = [slice(start, start + step) for start in range(0, info.rows, step)]
    cores = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    threads = min(_MAX_THREADS, cores, len(parts))
    if threads == 1 or info.nbytes < _BYTES_FOR_THREADS:
        return all(map(work, parts))
    return all(_threads.map(threads, work, parts))


class _ChunkThreads:
    """The threads of re-layouts, kept between tensors for the memory that each has."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop the pool, also in a child process, which has none of its parent's threads."""
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def map(
        self, count: int, work: Callable[[slice], bool], parts: Iterable[slice]
    ) -> Iterator[bool]:
        """Call `work` with each part on `count` threads; return the results in order."""
        # Under the lock nobody can end the threads. Submitted work is still done.
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(count, "akunu-relayout")
            return self._pool.map(work, parts)

    def release(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


_threads = _ChunkThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


def release_threads() -> None:
    """End the threads of re-layouts and free their memory; the next re-layout starts new ones."""
    _threads.release()


class _Relayout:
    """The re-layout of one tensor into a QuantizedMatrix with scales of the type `kind`."""

    def __init__(
        self,
        info: TensorInfo,
        raw: NDArray[np.uint8],
        lattice: Lattice,
        kind: DTypeLike,
        memory: scratch.ReusedMemory | None,
    ) -> None:
        self.info = info
        self.raw = raw
        self.lattice = lattice
        self.form: WeightForm = lattice.form
        stored = info.cols * self.form.codes_per_weight
        groups = stored // self.form.group_size
        affine = lattice.mode == "affine"
        empty = np.empty if memory is None else memory.empty
        self.packed = empty((info.rows, stored * self.form.bits // 8), np.uint8)
        self.scales = empty((info.rows, groups), kind if affine else np.uint8)
        self.biases = empty((info.rows, groups), kind) if affine else None

    def run(self) -> bool:
        """Fill the arrays; return whether all scales and biases fit their type."""
        return _each_chunk(self.info, self._chunk)

    def matrix(self) -> QuantizedMatrix:
        return QuantizedMatrix(
            packed=self.packed.view("<u4"),
            scales=self.scales,
            biases=self.biases,
            bits=self.form.bits,
            group_size=self.form.group_size,
            mode=self.lattice.mode,
            multipliers=self.form.multipliers,
        )

    def _chunk(self, part: slice) -> bool:
        scratch.begin_chunk()
        blocks = self.raw[part].reshape(-1, self.info.type.block_bytes)
        codes = scratch.empty((len(blocks), self.info.type.block_elements))
        # Threads do not inherit numpy's error state. Invalid and overflowing scales are checked
        # below, and underflow is rounding.
        with np.errstate(all="ignore"):
            scales, biases = self.lattice.decode(blocks, codes)
            packed = self.packed[part].reshape(-1)
            if self.lattice.planes is None:
                pack(codes.reshape(-1), self.form.bits, packed)
            else:
                count, width = len(self.form.multipliers), self.lattice.group
                pack_planes(codes.reshape(-1), self.form.bits, count, width, packed)
            if self.biases is None:
                _check_bytes(self.info, self.lattice.mode, scales)
                self.scales[part] = scales.reshape(self.scales[part].shape)
                return True
            _check_finite(self.info, scales, *(() if biases is None else (biases,)))
            return self._write_scales(part, scales, biases, self.biases)

    def _write_scales(
        self,
        part: slice,
        scales: NDArray[np.float32],
        biases: NDArray[np.float32] | None,
        target: NDArray[Any],
    ) -> bool:
        planes = self.lattice.planes
        # Each plane has the bias, times its multiplier.
        step, share = (1.0, 1.0) if planes is None else (planes.step, sum(planes.multipliers))
        shape = target[part].shape
        stored = (scales * np.float32(step)).reshape(shape)
        self.scales[part] = stored
        if biases is not None:
            moved = (biases / np.float32(share)).reshape(shape)
        else:
            # From the rounded scale, so that weight 0 stays exactly 0.
            zero = self.lattice.zero or 0.0
            moved = self.scales[part] * np.float32(-zero / (step * share))
        target[part] = moved
        largest = max(np.abs(stored).max(), np.abs(moved).max())
        return bool(largest <= np.finfo(target.dtype).max)


def relayout(
    info: TensorInfo,
    raw: NDArray[np.uint8],
    *,
    scale_type: Literal["float16", "float32"] = "float16",
    q6k: Q6KForm = "planes",
    memory: scratch.ReusedMemory | None = None,
) -> QuantizedMatrix | NDArray[Any]:
    """Return a tensor in a form for MLX: quantized if it is quantized in the file, else dense.

    Args:
        info: of the tensor, or of a selection of its rows.
        raw: its bytes, uint8 [rows, row_bytes], as `GGUFFile.tensor_bytes` returns them.
        scale_type: type of scales and biases; float32 is used where float16 would overflow.
        q6k: Q6_K as bit planes (exact, 8 bits per weight) or requantized to 8 bits (9 bits per
            weight, one matrix product of the usual shape).
        memory: where to write a QuantizedMatrix, by default new memory.

    Raises UnsupportedQuantizationError for a type that holds no weights, ModelFormatError for
    scales that are not finite.

    """
    if info.type.name not in EXACT:
        return dense(info, raw)
    _check_shape(info, raw)
    lattice = lattice_of(info.type.name, q6k)
    layout = _Relayout(info, raw, lattice, scale_type, memory)
    if not layout.run():
        # Products of a float16 and small integers are far within float32.
        layout = _Relayout(info, raw, lattice, np.float32, memory)
        layout.run()
    return layout.matrix()


def dense(info: TensorInfo, raw: NDArray[np.uint8]) -> NDArray[Any]:
    """Return an unquantized tensor [rows, cols]: float16 for F16, float32 for F32 and BF16.

    F32 and F16 are views of `raw` if it is aligned. numpy has no bfloat16, whose numbers are exact
    in float32. Values are not searched for NaN, which would read every byte of a large model a
    second time. Raises UnsupportedQuantizationError for another type.
    """
    if info.type.name not in DENSE:
        raise UnsupportedQuantizationError(
            f"tensor {info.name!r} has the type {info.type.name}, which this version of akunu "
            f"cannot load; use a file of one of {', '.join(SUPPORTED_TYPES)}"
        )
    _check_shape(info, raw)
    if info.type.name == "BF16":
        words = np.ascontiguousarray(raw).view("<u2").astype(np.uint32)
        return (words << 16).view(np.float32)
    # GGUF allows an alignment of 1, and casting unaligned bytes is slow or refused.
    aligned = raw if raw.ctypes.data % 4 == 0 else raw.copy()
    return aligned.view("<f4" if info.type.name == "F32" else "<f2")


def _expand(
    info: TensorInfo,
    raw: NDArray[np.uint8],
    lattice: Lattice,
    weights: NDArray[np.float32],
    part: slice,
) -> bool:
    scratch.begin_chunk()
    blocks = raw[part].reshape(-1, info.type.block_bytes)
    codes = scratch.empty((len(blocks), info.type.block_elements))
    with np.errstate(all="ignore"):
        scales, biases = lattice.decode(blocks, codes)
        target = weights[part].reshape(-1, lattice.group)
        if lattice.mode != "affine":
            _check_bytes(info, lattice.mode, scales)
            table = _e8m0_numbers() if lattice.mode == "mxfp4" else _e4m3_numbers()
            scales = table[scales]
        else:
            _check_finite(info, scales, *(() if biases is None else (biases,)))
        if lattice.values:
            np.take(np.array(lattice.values, np.float32), codes.reshape(target.shape), out=target)
        else:
            target[:] = codes.reshape(target.shape)
            if lattice.zero is not None:
                target -= np.float32(lattice.zero)
        target *= scales.reshape(-1, 1)
        if biases is not None:
            target += biases.reshape(-1, 1)
    return True


def _e8m0_numbers() -> NDArray[np.float32]:
    """Return the value of each e8m0 byte, 2 ** (byte - 127), without NaN."""
    return np.ldexp(np.float32(1), np.arange(256) - 127).astype(np.float32)


def _e4m3_numbers() -> NDArray[np.float32]:
    """Return the value of each unsigned e4m3 byte, with an exponent bias of 7."""
    exponents, fractions = np.divmod(np.arange(128), 8)
    normal = np.ldexp(1 + fractions / 8, exponents - 7)
    return np.where(exponents == 0, fractions * 2.0**-9, normal).astype(np.float32)


def dequantize(info: TensorInfo, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a tensor's weights as float32 [rows, cols], exactly, for each supported type.

    Arguments and errors as for `relayout`.
    """
    if info.type.name not in EXACT:
        return dense(info, raw).astype(np.float32)
    _check_shape(info, raw)
    weights = np.empty((info.rows, info.cols), np.float32)
    _each_chunk(info, partial(_expand, info, raw, EXACT[info.type.name], weights))
    return weights


if sys.byteorder != "little":  # pragma: no cover - neither Macs nor CI
    raise ImportError("akunu views file bytes as machine words and needs a little-endian machine")
