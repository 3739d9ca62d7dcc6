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

from akunu_py.models.heads.head import SharedLayers
from akunu_py.protocols import Hidden


class EagleHead(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """An EAGLE-3 head: from the target's states of row i and token i + 1, token i + 2.

    Parameters have the names of the published files.

    Attributes:
        takes: the numbers of the target's layers whose inputs it takes.
        width: H, of a layer's state, and of the head's own.
        embed_tokens: an embedding of its own, in place of the target's, if the file has one.
        lm_head: an output head of its own, for all tokens or for some (`DraftOutput`). Absent where
            it equals the target's.

    """

    takes: Hidden
    width: int

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: tuple[int, ...],
        *,
        norm_before_residual: bool = False,
    ) -> None:
        """Make a head without weights.

        Arguments:
            args: arguments of the class of its layer; `vocab_size` counts the tokens it guesses.
            shared: embedding and output head of the target.
            layers: `takes`.
            norm_before_residual: whether the residual is the normed feature.

        """
        super().__init__()
        width = args.hidden_size
        self.fc = nn.Linear(len(layers) * width, width, bias=False)
        self.midlayer = TransformerBlock(args)
        self.midlayer.hidden_norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        attention = self.midlayer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = attention[name].weight.shape[0]
            attention[name] = nn.Linear(2 * width, rows, bias=args.attention_bias)
        self.norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        self.lm_head = nn.Linear(width, args.vocab_size, bias=False)
        self.takes = layers
        self.width = width
        self._shared = shared
        self._norm_before_residual = norm_before_residual

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any] | None = None
    ) -> mx.array:
        """Return the head's states [1, n, H], the `hidden` of the next depth.

        Arguments:
            hidden: the target's states, [1, n, layers * H], or the head's own, [1, n, H].
            tokens: the token that follows each state, int32 [1, n].
            cache: from `make_cache`; it takes up n rows. None stands for an empty one.

        """
        feature = hidden if hidden.shape[-1] == self.width else self.fc(hidden)
        embed = self.embed_tokens if "embed_tokens" in self else self._shared.embed
        layer, rows = self.midlayer, None if cache is None else cache[0]
        normed = layer.hidden_norm(feature)
        joined = mx.concatenate([layer.input_layernorm(embed(tokens)), normed], axis=-1)
        attended = layer.self_attn(joined, create_attention_mask(joined, rows), rows)
        states = (normed if self._norm_before_residual else feature) + attended
        output: mx.array = states + layer.mlp(layer.post_attention_layernorm(states))
        return output

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of states [1, m, H] that a call returned."""
        output = self.lm_head if "lm_head" in self else self._shared.logits
        logits: mx.array = output(self.norm(hidden))
        return logits

    def make_cache(self) -> list[Any]:
        """Return a fresh cache of the head's own layer; it can be trimmed."""
        return [KVCache()]
