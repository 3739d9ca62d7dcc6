"""A GGUF file as one of mlx-lm's models: names, layouts and types brought together."""

import logging
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models import llama
from numpy.typing import NDArray

from akunu_py.gguf.config import LlamaConfig, read_config
from akunu_py.gguf.names import ROPE_FREQUENCIES, check_tensors, parameter_path
from akunu_py.gguf.quants import QuantizedMatrix, dequantize, relayout
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.layers import FrequencyRope

_log = logging.getLogger(__name__)


def read_gguf_config(file: GGUFFile) -> LlamaConfig:
    """Return the model's arguments, after checking that all its tensors are there.

    Raises ModelFormatError or UnsupportedArchitectureError, naming the tensor or key.
    """
    config = read_config(file.metadata, file.tensors)
    check_tensors(config, file.tensors)
    return config


def build_gguf_model(file: GGUFFile, config: LlamaConfig, *, dense: bool) -> nn.Module:
    """Build the model and load its weights, tensor by tensor.

    With `dense` every weight is expanded; otherwise quantized tensors stay so. The peak of memory
    is near one model and one tensor.
    """
    kind = _compute_type(file)
    model: nn.Module = llama.Model(llama.ModelArgs(**config.to_mlx_args()))
    if config.has_rope_frequencies:
        _set_frequencies(model, config, _vector(file, ROPE_FREQUENCIES))
    bits: dict[str, int] = {}
    weights: list[tuple[str, mx.array]] = []
    for name, info in file.tensors.items():
        place = parameter_path(config.architecture, name)
        if place is None:
            continue
        module, parameter = place
        raw = file.tensor_bytes(name)
        value = dequantize(info, raw) if dense else relayout(info, raw)
        if isinstance(value, QuantizedMatrix):
            bits[module] = value.bits
            pieces = _quantized_pieces(module, value, kind)
        else:
            array = mx.array(value.reshape(info.shape)).astype(kind)
            pieces = iter([(f"{module}.{parameter}", array)])
        for path, array in pieces:
            # Evaluated one by one, so that numpy's copy is free again before the next is made.
            mx.eval(array)
            weights.append((path, array))
    if bits:
        # Nothing is quantized here: the random weights these layers begin with are never computed.
        nn.quantize(
            model,
            class_predicate=lambda path, _: (
                {"group_size": 32, "bits": bits[path]} if path in bits else False
            ),
        )
    model.load_weights(weights, strict=True)
    model.eval()
    mx.clear_cache()
    _log.info("%d tensors as %s, %d of them quantized", len(weights), kind, len(bits))
    return model


def _compute_type(file: GGUFFile) -> mx.Dtype:
    """Return the type activations are computed in.

    The CPU backend is many times slower in 16 bits than in 32. On a GPU it is that of the file's
    matrices: GGUF's scales are float16, so quantized models compute in float16 without loss.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        return mx.float32
    kinds = {info.type.name for info in file.tensors.values() if len(info.shape) > 1}
    if kinds == {"F32"}:
        return mx.float32
    return mx.bfloat16 if kinds <= {"F32", "BF16"} else mx.float16


def _quantized_pieces(
    module: str, matrix: QuantizedMatrix, kind: mx.Dtype
) -> Iterator[tuple[str, mx.array]]:
    # MLX promotes where scales and activations differ in type, so both get the same.
    yield f"{module}.weight", mx.array(matrix.packed)
    yield f"{module}.scales", mx.array(matrix.scales).astype(kind)
    yield f"{module}.biases", mx.array(matrix.biases).astype(kind)


def _vector(file: GGUFFile, name: str) -> NDArray[np.float32]:
    return dequantize(file.tensors[name], file.tensor_bytes(name)).reshape(-1)


def _set_frequencies(model: nn.Module, config: LlamaConfig, factors: NDArray[np.float32]) -> None:
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    wavelengths = mx.array((config.rope_base**exponents * factors).astype(np.float32))
    layers: list[Any] = model.layers
    for layer in layers:
        layer.self_attn.rope = FrequencyRope(config.head_dim, wavelengths, traditional=True)
