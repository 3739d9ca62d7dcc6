"""GPT-2 with output weights of its own, which files of early conversions have.

They are a copy of the embedding, often in a wider type; mlx-lm's class knows the embedding only.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gpt2


@dataclass
class ModelArgs(gpt2.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Arguments of mlx-lm's class, and whether the embedding also makes the logits."""

    tie_word_embeddings: bool = True


class Model(gpt2.Model):  # type: ignore[misc]
    """mlx-lm's model, with a head where one is there."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        if not args.tie_word_embeddings:
            self.lm_head = nn.Linear(args.n_embd, args.vocab_size, bias=False)

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Return logits [batch, length, vocabulary]."""
        if self.args.tie_word_embeddings:
            logits: mx.array = super().__call__(inputs, cache)
        else:
            logits = self.lm_head(self.model(inputs, cache))
        return logits
