"""A DFlash head: layers that guess a whole block of tokens in one pass.

"DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv:2602.06036). What it computes was
read in the authors' `model.py` and `model_mlx.py`:

- The states that go into some of the target's layers are joined, projected and normed: the feature
  of a row. Every layer of the head makes keys and values of all features.
- The block is the last token and masks behind it, embedded by the target. In every layer its rows
  attend to the features of the rows before the last token, and to the whole block in both
  directions.
- The row of a mask guesses the token in its own place, by the target's output head.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3 import Attention, ModelArgs, TransformerBlock

from akunu_py.models.heads.head import CachedHead, SharedLayers


class DFlashHead(CachedHead):
    """A DFlash head: from the states of all rows before the last token, the tokens after it."""

    block: int
    """Rows of a block, the last token's among them."""

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: Sequence[int],
        *,
        block: int,
        mask: int,
        bias: bool = False,
    ) -> None:
        """Make a head without weights, which takes the inputs of the target's `layers`.

        `mask` is the id of the token that stands for an unknown one; `bias` says whether the
        projections of attention have biases.
        """
        super().__init__(shared, tuple(layers), len(layers) * args.hidden_size)
        self.fc = nn.Linear(self.width, args.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.layers = [TransformerBlock(args) for _ in range(args.num_hidden_layers)]
        if bias:
            for layer in self.layers:
                for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                    rows, columns = layer.self_attn[name].weight.shape
                    layer.self_attn[name] = nn.Linear(columns, rows, bias=True)
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.block = block
        self._mask = mask

    def __call__(self, hidden: mx.array, tokens: mx.array, cache: list[Any]) -> mx.array:
        """Take in states and guess a block; return its states [1, block - k, H], one for each mask.

        Arguments:
            hidden: the target's states of the next rows, [1, n, W].
            tokens: the token that follows each state, and further known ones, int32 [1, n - 1 + k]:
                the last token of the text is the k-th from the end.
            cache: from `make_cache`; it takes up the n rows, and nothing of the block.

        """
        self.read(hidden, cache)
        known = tokens[:, hidden.shape[1] - 1 :]
        masks = mx.full((1, self.block - known.shape[1]), self._mask, dtype=known.dtype)
        x = self.embed(mx.concatenate([known, masks], axis=1))
        for layer, rows in zip(self.layers, cache, strict=True):
            x = x + _attend(layer.self_attn, layer.input_layernorm(x), rows)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        states: mx.array = x[:, known.shape[1] :]
        return states

    def read(self, hidden: mx.array, cache: list[Any]) -> None:
        """Take in the target's states of the next rows, [1, n, W]."""
        feature = self.hidden_norm(self.fc(hidden))
        for layer, rows in zip(self.layers, cache, strict=True):
            rows.update_and_fetch(*_keys_and_values(layer.self_attn, feature, rows.offset))

    def logits(self, hidden: mx.array) -> mx.array:
        return super().logits(self.norm(hidden))

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]


def _attend(attention: Attention, x: mx.array, cache: KVCache) -> mx.array:
    """Return what attention adds to a block, [1, n, H], whose first row comes after the cache's."""
    queries = _split(attention.q_proj(x), attention.n_heads)
    queries = attention.rope(attention.q_norm(queries), offset=cache.offset)
    keys, values = _keys_and_values(attention, x, cache.offset)
    read_keys, read_values = cache.keys_and_values()
    keys = mx.concatenate([read_keys, keys], axis=2)
    values = mx.concatenate([read_values, values], axis=2)
    found = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=attention.scale)
    added: mx.array = attention.o_proj(found.swapaxes(1, 2).flatten(2))
    return added


def _keys_and_values(attention: Attention, x: mx.array, offset: int) -> tuple[mx.array, mx.array]:
    """Return keys and values [1, heads, n, width] of rows [1, n, H] from place `offset` on."""
    keys = attention.k_norm(_split(attention.k_proj(x), attention.n_kv_heads))
    return attention.rope(keys, offset=offset), _split(attention.v_proj(x), attention.n_kv_heads)


def _split(x: mx.array, heads: int) -> mx.array:
    """Return [1, n, heads * w] as [1, heads, n, w]."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
