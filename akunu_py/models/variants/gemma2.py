"""Gemma 2 with its sliding window, which mlx-lm's class leaves out."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import gemma2
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache


@dataclass
class ModelArgs(gemma2.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Arguments of mlx-lm's class, and those of the window.

    Attributes:
        sliding_window: tokens that a token of a windowed layer sees, itself included.
        windowed_layers: whether a layer is windowed, for each.

    """

    sliding_window: int = 4096
    windowed_layers: tuple[bool, ...] = ()


class GemmaModel(gemma2.GemmaModel):  # type: ignore[misc]
    """The layers, each with the mask of its kind."""

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Return the normed hidden states [batch, length, width] of ids [batch, length]."""
        h = self.embed_tokens(inputs)
        h = h * (self.args.hidden_size**0.5)
        caches = cache or [None] * len(self.layers)
        masks: dict[bool, mx.array | None] = {}
        for layer, windowed, part in zip(
            self.layers, self.args.windowed_layers, caches, strict=True
        ):
            if windowed not in masks:
                window = self.args.sliding_window if windowed else None
                masks[windowed] = create_attention_mask(
                    h, part, window_size=window, return_array=True
                )
            h = layer(h, masks[windowed], part)
        normed: mx.array = self.norm(h)
        return normed


class Model(gemma2.Model):  # type: ignore[misc]
    """mlx-lm's model over those layers."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self.model = GemmaModel(args)

    def make_cache(self) -> list[Any]:
        """Return a cache for each layer; those of windowed layers keep the window."""
        return [
            RotatingKVCache(max_size=self.args.sliding_window) if windowed else KVCache()
            for windowed in self.args.windowed_layers
        ]
