"""An EAGLE-3 head: one layer that guesses from the states of three of the target's layers.

Li et al. 2025, EAGLE-3 (arXiv:2503.01840). What it computes was read in the authors' `cnets.py` and
in the `llama_eagle3.py` of vLLM and SGLang:

- The three states are joined and projected to the target's width: the feature. For a token further
  ahead the head's own state, from before its last norm, takes the place of the feature.
- Attention takes the normed embedding and the normed feature side by side. What it adds is added to
  the feature, or, with `norm_before_residual`, to the normed feature.
- The output head may be for some tokens alone (`draft_vocabulary`).
"""

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.llama import ModelArgs, TransformerBlock

from akunu_py.models.heads.head import CachedHead, SharedLayers


class EagleHead(CachedHead):
    """An EAGLE-3 head: from the states between layers at row i and token i+1, token i+2."""

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: tuple[int, ...],
        *,
        norm_before_residual: bool = False,
        window: int | None = None,
    ) -> None:
        """Make a head without weights, which takes the inputs of the target's `layers`.

        `args` are those of the class of its layer; `vocab_size` counts the tokens it guesses.
        `norm_before_residual` says whether the residual is the normed feature, `window` how many
        rows a row sees, its own among them.
        """
        width = args.hidden_size
        super().__init__(shared, layers, width)
        self.fc = nn.Linear(len(layers) * width, width, bias=False)
        self.midlayer = TransformerBlock(args)
        self.midlayer.hidden_norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        attention = self.midlayer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = attention[name].weight.shape[0]
            attention[name] = nn.Linear(2 * width, rows, bias=args.attention_bias)
        self.norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        self.lm_head = nn.Linear(width, args.vocab_size, bias=False)
        self._norm_before_residual = norm_before_residual
        self._window = window

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any] | None = None
    ) -> mx.array:
        """Return states [1, n, H] for the target's, [1, n, layers * H], or the head's own."""
        feature = hidden if hidden.shape[-1] == self.width else self.fc(hidden)
        layer, rows = self.midlayer, None if cache is None else cache[0]
        normed = layer.hidden_norm(feature)
        joined = mx.concatenate([layer.input_layernorm(self.embed(tokens)), normed], axis=-1)
        mask = create_attention_mask(joined, rows, window_size=self._window)
        attended = layer.self_attn(joined, mask, rows)
        states = (normed if self._norm_before_residual else feature) + attended
        output: mx.array = states + layer.mlp(layer.post_attention_layernorm(states))
        return output

    def logits(self, hidden: mx.array) -> mx.array:
        return super().logits(self.norm(hidden))

    def make_cache(self) -> list[Any]:
        return [KVCache()]
