"""Classes that attend differently: in a sliding window, or with clipped projections."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma2, llama, muse_glimmer, phi3
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention
from mlx_lm.models.cache import KVCache, RotatingKVCache


@dataclass
class Gemma2Args(gemma2.ModelArgs):  # type: ignore[misc]  # mlx_lm has no types
    """Arguments of mlx-lm's class, and of the window."""

    sliding_window: int = 4096
    """Tokens that a token of a windowed layer sees, itself included."""

    windowed_layers: tuple[bool, ...] = ()
    """Whether each layer is windowed."""


class _Gemma2Body(gemma2.GemmaModel):  # type: ignore[misc]
    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
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


class Gemma2(gemma2.Model):  # type: ignore[misc]
    """Gemma 2 with its sliding window, which mlx-lm's class leaves out."""

    def __init__(self, args: Gemma2Args) -> None:
        super().__init__(args)
        self.model = _Gemma2Body(args)

    def make_cache(self) -> list[Any]:
        """Return a cache for each layer; the cache of a windowed layer keeps the window only."""
        return [
            RotatingKVCache(max_size=self.args.sliding_window) if windowed else KVCache()
            for windowed in self.args.windowed_layers
        ]


class MuseGlimmer(muse_glimmer.Model):  # type: ignore[misc]
    """Muse Glimmer with the factor of its queries as a parameter, as files have it."""

    def __init__(self, args: muse_glimmer.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.self_attn.qk_scale_factor = mx.ones(args.head_dim)


@dataclass
class Phi3Args(phi3.ModelArgs):  # type: ignore[misc]
    """Arguments of mlx-lm's class, and the window."""

    sliding_window: int | None = None
    """Tokens that a token sees, itself included; None for all before it."""


class _Phi3Body(phi3.Phi3Model):  # type: ignore[misc]
    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        h = self.embed_tokens(inputs)
        caches = cache or [None] * len(self.layers)
        mask = create_attention_mask(h, caches[0], window_size=self.args.sliding_window)
        for layer, part in zip(self.layers, caches, strict=True):
            h = layer(h, mask, part)
        normed: mx.array = self.norm(h)
        return normed


class Phi3(phi3.Model):  # type: ignore[misc]
    """Phi 3 with its sliding window, which mlx-lm's class leaves out.

    All layers have it, as in Microsoft's model. llama.cpp switches it off
    (https://github.com/ggml-org/llama.cpp/pull/13676), so both agree within the window only.
    """

    def __init__(self, args: Phi3Args) -> None:
        super().__init__(args)
        self.model = _Phi3Body(args)

    def make_cache(self) -> list[Any]:
        """Return a cache for each layer, which keeps the window only where there is one."""
        window = self.args.sliding_window
        return [
            KVCache() if window is None else RotatingKVCache(max_size=window) for _ in self.layers
        ]


@dataclass
class OlmoArgs(llama.ModelArgs):  # type: ignore[misc]
    """Llama's arguments; q, k and v are clipped to [-clip_qkv, clip_qkv], not at all for 0."""

    clip_qkv: float = 0.0


class _OlmoAttention(llama.Attention):  # type: ignore[misc]
    def __init__(self, args: OlmoArgs) -> None:
        super().__init__(args)
        self.clip = args.clip_qkv

    def _heads(self, x: mx.array, heads: int) -> mx.array:
        if self.clip:
            x = mx.clip(x, -self.clip, self.clip)
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: Any | None = None
    ) -> mx.array:
        offset = 0 if cache is None else cache.offset
        queries = self.rope(self._heads(self.q_proj(x), self.n_heads), offset=offset)
        keys = self.rope(self._heads(self.k_proj(x), self.n_kv_heads), offset=offset)
        values = self._heads(self.v_proj(x), self.n_kv_heads)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)
        y = scaled_dot_product_attention(
            queries, keys, values, cache=cache, scale=self.scale, mask=mask
        )
        out: mx.array = self.o_proj(y.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))
        return out


class Olmo(llama.Model):  # type: ignore[misc]
    """Llama with clipped q, k and v, and norms without weights: OLMo 1.

    mlx-lm's `olmo` expects the checkpoints' fused tensors, has no separate key and value heads and
    does not clip.
    """

    def __init__(self, args: OlmoArgs) -> None:
        super().__init__(args)

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(args.hidden_size, eps=args.rms_norm_eps, affine=False)

        self.model.norm = norm()
        for layer in self.layers:
            layer.self_attn = _OlmoAttention(args)
            layer.input_layernorm = norm()
            layer.post_attention_layernorm = norm()
