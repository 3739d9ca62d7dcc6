"""Phi 3 with its sliding window, which mlx-lm's class leaves out.

As in Microsoft's model all layers have it. llama.cpp has it switched off
(https://github.com/ggml-org/llama.cpp/pull/13676), so that both agree within the window only.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import phi3
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache


@dataclass
class ModelArgs(phi3.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Arguments of mlx-lm's class, and the window.

    Attributes:
        sliding_window: tokens that a token sees, itself included; None for all before it.

    """

    sliding_window: int | None = None


class Phi3Model(phi3.Phi3Model):  # type: ignore[misc]
    """The layers, under a mask with the window."""

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Return the normed hidden states [batch, length, width] of ids [batch, length]."""
        h = self.embed_tokens(inputs)
        caches = cache or [None] * len(self.layers)
        mask = create_attention_mask(h, caches[0], window_size=self.args.sliding_window)
        for layer, part in zip(self.layers, caches, strict=True):
            h = layer(h, mask, part)
        normed: mx.array = self.norm(h)
        return normed


class Model(phi3.Model):  # type: ignore[misc]
    """mlx-lm's model over those layers."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self.model = Phi3Model(args)

    def make_cache(self) -> list[Any]:
        """Return a cache for each layer, which keeps the window where there is one."""
        window = self.args.sliding_window
        return [
            KVCache() if window is None else RotatingKVCache(max_size=window) for _ in self.layers
        ]
