"""A DFlash head: layers that guess a whole block of tokens in one pass.

"DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv:2602.06036). What it computes was
read in the authors' `model.py` and `model_mlx.py`:

- The states that go into some of the target's layers are joined, projected and normed: the feature
  of a row. Every layer of the head makes keys and values of all features.
- The block is the last token and masks behind it, embedded by the target. In every layer its rows
  attend to the features of the rows before the last token, and to the block: all of it, or what is
  before them. In a layer with a window of W, row i of the text sees the features of rows above
  i - W.
- The row of a mask guesses the token in its own place, by the target's output head. In heads of
  DeepSpec's (arXiv:2607.05147) every row, the last token's too, guesses the token after its place.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3 import Attention, ModelArgs, TransformerBlock

from akunu_py.models.heads.head import BlockHead, SharedLayers, WalkStep


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlockForm:
    """How a head guesses blocks, beside the arguments of its layers."""

    size: int
    """Rows of a block, the last token's among them."""

    mask: int
    """Id of the token that stands for an unknown one."""

    windows: Sequence[int | None]
    """Of each layer: the rows of text that a row sees, its own among them; None for all."""

    causal: Sequence[bool]
    """Of each layer: whether a row of the block sees only those before it, and itself."""

    last_guesses: bool = False
    """Whether the last token's row guesses the token after it, and so each further row."""

    bias: bool = False
    """Whether the projections of attention have biases."""

    embedding_scale: float = 1.0
    multiplier: float = 1.0
    """Factors of the embedding, and of the logits before they are capped."""

    cap: float | None = None
    """Bound of the logits, as in cap * tanh(logits / cap)."""


class DFlashHead(BlockHead):
    """A DFlash head: from the states of all rows before the last token, the tokens after it."""

    def __init__(
        self, args: ModelArgs, shared: SharedLayers, layers: Sequence[int], form: BlockForm
    ) -> None:
        """Make a head without weights, which takes the inputs of the target's `layers`."""
        super().__init__(shared, tuple(layers), len(layers) * args.hidden_size)
        self.fc = nn.Linear(self.width, args.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.layers = [TransformerBlock(args) for _ in range(args.num_hidden_layers)]
        if form.bias:
            for layer in self.layers:
                for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                    rows, columns = layer.self_attn[name].weight.shape
                    layer.self_attn[name] = nn.Linear(columns, rows, bias=True)
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.form = form

    @property
    def num_guessed(self) -> int:
        return self.form.size - (not self.form.last_guesses)

    def __call__(self, hidden: mx.array, tokens: mx.array, cache: list[Any]) -> mx.array:
        # The cache takes up the rows, and nothing of the block.
        self.read(hidden, cache)
        known = tokens[:, hidden.shape[1] - 1 :]
        masks = mx.full((1, self.form.size - known.shape[1]), self.form.mask, dtype=known.dtype)
        x = self.embed(mx.concatenate([known, masks], axis=1)) * self.form.embedding_scale
        for number, (layer, rows) in enumerate(zip(self.layers, cache, strict=True)):
            x = self._layer(number, layer, x, rows)
        return x[:, known.shape[1] - self.form.last_guesses :]

    def read(self, hidden: mx.array, cache: list[Any]) -> None:
        """Take in the target's states of the next rows, [1, n, W]."""
        feature = self.hidden_norm(self.fc(hidden))
        for layer, rows in zip(self.layers, cache, strict=True):
            rows.update_and_fetch(*_keys_and_values(layer.self_attn, feature, rows.offset))

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of states [1, m, H], each by itself."""
        return self.logits_of_normed(self.norm(hidden))

    def logits_of_normed(self, hidden: mx.array) -> mx.array:
        """Return the same of states after the last norm."""
        found = super().logits(hidden) * self.form.multiplier
        cap = self.form.cap
        return found if cap is None else mx.tanh(found / cap) * cap

    def walk(self, hidden: mx.array, count: int | None = None) -> WalkStep:
        hidden = hidden[:, :count]
        rows = iter(mx.split(self.logits(hidden), hidden.shape[1], axis=1))
        return lambda _: (next(rows), None)

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]

    def _layer(self, number: int, layer: nn.Module, x: mx.array, cache: KVCache) -> mx.array:
        """Return the rows of a block, [1, n, H], behind a layer."""
        x = x + self._attend(number, layer.self_attn, layer.input_layernorm(x), cache)
        output: mx.array = x + layer.mlp(layer.post_attention_layernorm(x))
        return output

    def _attend(self, number: int, attention: Attention, x: mx.array, cache: KVCache) -> mx.array:
        """Return the output of attention for a block, whose first row comes after the cache's."""
        window, causal = self.form.windows[number], self.form.causal[number]
        queries = _split(attention.q_proj(x), attention.n_heads)
        queries = attention.rope(attention.q_norm(queries), offset=cache.offset)
        keys, values = _keys_and_values(attention, x, cache.offset)
        read_keys, read_values = cache.keys_and_values()
        first = 0 if window is None else max(0, cache.offset - window + 1)
        keys = mx.concatenate([read_keys[..., first:, :], keys], axis=2)
        values = mx.concatenate([read_values[..., first:, :], values], axis=2)
        found = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=attention.scale,
            mask=_mask(cache.offset - first, x.shape[1], window, causal=causal),
        )  # fmt: skip
        added: mx.array = attention.o_proj(found.swapaxes(1, 2).flatten(2))
        return added


def _mask(read: int, block: int, window: int | None, *, causal: bool) -> mx.array | None:
    """Return which of `read` features and of the block its rows see, bool [block, read + block]."""
    if not causal and (window is None or read + block <= window):
        return None
    rows, seen = mx.arange(block)[:, None], mx.arange(-read, block)
    # Rows of the block see one another whatever the window.
    mask = (seen >= 0) | (rows - seen < (window or read + block))
    return mask & (seen <= rows) if causal else mask


def _keys_and_values(attention: Attention, x: mx.array, offset: int) -> tuple[mx.array, mx.array]:
    """Return keys and values [1, heads, n, width] of rows [1, n, H] from place `offset` on."""
    keys = attention.k_norm(_split(attention.k_proj(x), attention.n_kv_heads))
    return attention.rope(keys, offset=offset), _split(attention.v_proj(x), attention.n_kv_heads)


def _split(x: mx.array, heads: int) -> mx.array:
    """Return [1, n, heads * w] as [1, heads, n, w]."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
