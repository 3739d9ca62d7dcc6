"""Bytes that a step of plain decoding reads from memory, and the speed of this device's memory.

Decoding one token reads all weights it multiplies with and the whole KV cache, and computes little
with each number. So memory bandwidth bounds its speed (Williams et al. 2009, "Roofline").
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

_COPY_BYTES = 128 << 20
"""Bytes of one copy: more than the last-level caches that one processor core can reach."""

_HEADS = ("lm_head", "output")
"""Names of the layer that makes the logits in models with untied embeddings."""

_ACTIVE_EXPERTS = ("num_experts_per_tok", "top_k")
"""Names of the number of experts that a token visits, in mlx-lm's mixtures."""


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """Size of one layer's cache: fixed bytes, bytes per token, and the most tokens it holds.

    `most_tokens` is None for a cache that holds all.
    """

    fixed: float
    per_token: float
    most_tokens: int | None = None

    def at(self, context: float) -> float:
        """Return the bytes with that many tokens."""
        held = context if self.most_tokens is None else min(context, self.most_tokens)
        return self.fixed + self.per_token * held


def step_bytes(model: nn.Module, context: float) -> float:
    """Return the bytes that one step reads with that many tokens in the cache."""
    return weight_bytes(model) + sum(cache.at(context) for cache in cache_bytes(model))


def copy_bandwidth(
    repeats: int = 5,
    *,
    clock: Callable[[], float] = time.perf_counter,
    copy: Callable[[], object] | None = None,
) -> float:
    """Return the bytes a second that a large copy reads and writes, the median of `repeats`.

    The STREAM benchmark counts a copy so. On a GPU it copies; on the CPU one thread does. `copy`
    stands in for the copy in tests.
    """
    copy = copy or _copier()
    # The first copy allocates the target's pages.
    copy()
    taken: list[float] = []
    for _ in range(repeats):
        started = clock()
        copy()
        taken.append(clock() - started)
    return 2 * _COPY_BYTES / median(taken)


def _copier() -> Callable[[], object]:
    """Return a function that copies `_COPY_BYTES` once on the default device."""
    # Not zeros: pages that were never written may share memory.
    if mx.default_device() == mx.Device(mx.cpu):
        # MLX's CPU backend gives large arrays new pages each time, which costs more than the copy.
        source = np.arange(_COPY_BYTES // 4, dtype=np.int32)
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)
    array = mx.arange(_COPY_BYTES // 4, dtype=mx.int32)
    mx.eval(array)

    def copy() -> None:
        mx.eval(array + 1)
        mx.synchronize()

    return copy


def weight_bytes(model: nn.Module) -> float:
    """Return the bytes of the weights that decoding one token reads.

    Experts count by the share that a token visits, and an embedding that is only looked up in not
    at all.
    """
    modules = dict(model.named_modules())
    embeddings = {name: module for name, module in modules.items() if _is_a(module, "Embedding")}
    if not any(name.rpartition(".")[2] in _HEADS for name in modules):
        # Tied: the largest embedding also makes the logits.
        tied = max(embeddings, key=lambda name: _bytes(embeddings[name]), default="")
        embeddings.pop(tied, None)
    total = 0.0
    for path, array in tree_flatten(model.parameters()):
        above = _prefixes(path)
        if not any(name in embeddings for name in above):
            total += array.nbytes * _visited_share(modules, above, array.shape)
    return total


def _visited_share(
    modules: dict[str, nn.Module], above: Sequence[str], shape: Sequence[int]
) -> float:
    """Return the share of an array that one token visits; below 1 only for experts."""
    if not any(_is_a(modules[name], "SwitchLinear") for name in above if name in modules):
        return 1.0
    for name in above:
        for key in _ACTIVE_EXPERTS:
            active = getattr(modules.get(name), key, None)
            if isinstance(active, int) and not isinstance(active, bool):
                return min(1.0, active / shape[0])
    return 1.0


def _prefixes(path: str) -> list[str]:
    """Return the names of the modules that contain an array, the nearest first."""
    parts = path.split(".")[:-1]
    return [".".join(parts[:size]) for size in range(len(parts), 0, -1)]


def _is_a(module: nn.Module, kind: str) -> bool:
    # By name: MLX, mlx-lm and this package have classes of each kind without a common base.
    return type(module).__name__.endswith(kind)


def _bytes(module: nn.Module) -> int:
    return sum(int(array.nbytes) for _, array in tree_flatten(module.parameters()))


def cache_bytes(model: nn.Module) -> tuple[CacheBytes, ...]:
    """Return the size of each layer's cache, from shapes alone; nothing is computed."""
    caches = make_prompt_cache(model)
    model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    return tuple(part for cache in caches for part in _parts(cache))


def _parts(cache: Any) -> list[CacheBytes]:
    parts = getattr(cache, "caches", None)
    if parts is not None:
        return [entry for part in parts for entry in _parts(part)]
    if getattr(cache, "keys", cache) is None:
        # The cache of a layer that reads another layer's keys.
        return []
    arrays = [array for _, array in tree_flatten(cache.state) if isinstance(array, mx.array)]
    # Keys and values are [1, heads, tokens, width], with room for further tokens; the state of a
    # recurrent layer has a fixed size.
    growing = [array for array in arrays if hasattr(cache, "offset") and array.ndim == 4]
    fixed = sum(array.nbytes for array in arrays) - sum(array.nbytes for array in growing)
    per_token = sum(array.nbytes / array.shape[2] for array in growing)
    most = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
    return [CacheBytes(float(fixed), per_token, most)]
