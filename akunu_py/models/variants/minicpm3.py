"""MiniCPM 3 whose logits are scaled also where the embedding makes them."""

from typing import Any

import mlx.core as mx
from mlx_lm.models import minicpm3
from mlx_lm.models.minicpm3 import ModelArgs

__all__ = ["Model", "ModelArgs"]


class Model(minicpm3.Model):  # type: ignore[misc]  # mlx_lm has no types
    """MiniCPM 3's; mlx-lm's scales the logits of a head of its own only."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        """Return the logits after each of the inputs [batch, length]."""
        hidden = self.model(inputs, None, cache)
        hidden = hidden / (self.args.hidden_size / self.args.dim_model_base)
        logits: mx.array = (
            self.model.embed_tokens.as_linear(hidden)
            if self.args.tie_word_embeddings
            else self.lm_head(hidden)
        )
        return logits
