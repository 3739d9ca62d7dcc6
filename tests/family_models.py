"""Random models of the families in `tiny_families`, and variants of how they are run."""

import copy
import importlib
import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.models.cache import RotatingKVCache
from tiny_families import FAMILIES, WINDOW

from akunu_py.values.load_options import KVBits


@dataclass(frozen=True)
class Variant:
    """A family run in another way.

    `bits` quantizes the weights, `kv_bits` the caches; `sinks` replaces every cache by a sliding
    window that keeps so many rows of the beginning; `changes` are arguments of the model.
    """

    family: str
    bits: int | None = None
    kv_bits: KVBits | None = None
    sinks: int | None = None
    changes: tuple[tuple[str, Any], ...] = ()


VARIANTS = {
    "llama, 4-bit weights": Variant("llama", bits=4),
    "mixtral, 4-bit weights": Variant("mixtral", bits=4),
    "qwen3_next, 8-bit weights": Variant("qwen3_next", bits=8),
    "llama, 8-bit caches": Variant("llama", kv_bits=8, changes=(("head_dim", 32),)),
    "qwen3, 4-bit caches": Variant("qwen3", kv_bits=4, changes=(("head_dim", 32),)),
    "llama, all windows": Variant("llama", sinks=0),
    "llama, windows with sinks": Variant("llama", sinks=4),
    "llama, sliding, with sinks": Variant("llama, sliding", sinks=3),
}
NAMES = [*FAMILIES, *VARIANTS]
# Where the greedy text of seed 0 keeps to a few tokens.
SEEDS = {
    "deepseek_v3": 3, "exaone4": 2, "gear": 1, "gemma2": 1, "gemma3n": 5, "llama4_text": 5,
    "longcat_flash": 4, "olmo2": 3, "olmo3": 2, "plamo2": 1, "qwen3": 5, "qwen3_moe": 2,
    "rwkv7": 1,
}  # fmt: skip


def variant_of(name: str) -> Variant:
    return VARIANTS.get(name) or Variant(name)


def build_family(name: str | Variant, dtype: mx.Dtype = mx.float32) -> nn.Module:
    """A model whose text neither collapses into one token nor hangs on near-ties."""
    variant = variant_of(name) if isinstance(name, str) else name
    module_name, arguments = FAMILIES[variant.family]
    module = importlib.import_module(f"mlx_lm.models.{module_name}")
    # Some classes change the lists they are given.
    arguments = copy.deepcopy({"model_type": module_name, **arguments, **dict(variant.changes)})
    # Some classes draw decay rates, which stay as they are.
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(arguments))
    mx.random.seed(SEEDS.get(variant.family, 0))
    tied = not any("head.weight" in path for path, _ in tree_flatten(model.parameters()))
    model.update(tree_map_with_path(lambda *part: _drawn(*part, tied), model.parameters()))
    model.set_dtype(dtype)
    if variant.bits is not None:
        nn.quantize(
            model, group_size=32, bits=variant.bits,
            class_predicate=lambda _, part: (
                hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0
            ),
        )  # fmt: skip
    if variant.sinks is not None:
        count = len(model.layers)
        keep = variant.sinks
        model.make_cache = lambda: [RotatingKVCache(WINDOW, keep=keep) for _ in range(count)]
    model.eval()
    mx.eval(model.parameters())
    return model


def _drawn(path: str, values: mx.array, tied: bool) -> mx.array:
    """Random numbers for a parameter, such that activations keep their size.

    Where the embedding is the head too, it is small, or each token would be followed by itself.
    """
    if not mx.issubdtype(values.dtype, mx.floating) or path.endswith(("A_log", "dt_bias")):
        return values
    if values.ndim < 2:
        return values + 0.1 * mx.random.normal(values.shape)
    if "embed" in path:
        return mx.random.normal(values.shape) * (0.03 if tied else 1.0)
    inputs = 4 if "conv" in path else values.shape[-1]
    return mx.random.normal(values.shape) * (1.2 / math.sqrt(inputs))
