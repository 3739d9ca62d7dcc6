"""Llama's class with norms that have no weights and clipped q, k and v: OLMo 1.

mlx-lm's `olmo` wants the checkpoints' fused tensors, has no key and value heads of its own and does
not clip.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import llama
from mlx_lm.models.base import scaled_dot_product_attention


@dataclass
class ModelArgs(llama.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Llama's arguments; q, k and v are kept in [-clip_qkv, clip_qkv], 0 for as they are."""

    clip_qkv: float = 0.0


class _Attention(llama.Attention):  # type: ignore[misc]
    def __init__(self, args: ModelArgs) -> None:
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


class Model(llama.Model):  # type: ignore[misc]
    """The model; attention and norms differ."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(args.hidden_size, eps=args.rms_norm_eps, affine=False)

        self.model.norm = norm()
        for layer in self.layers:
            layer.self_attn = _Attention(args)
            layer.input_layernorm = norm()
            layer.post_attention_layernorm = norm()
