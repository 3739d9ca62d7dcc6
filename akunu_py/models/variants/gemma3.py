"""Gemma 3 with tied or own output weights from the start, and a soft cap of the logits."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import gemma3_text


@dataclass
class ModelArgs(gemma3_text.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Arguments of mlx-lm's class, and two that it lacks.

    Attributes:
        tie_word_embeddings: whether the embedding also makes the logits.
        final_logit_softcapping: c, where logits are c tanh(logits / c); None for as they are.

    """

    tie_word_embeddings: bool = True
    final_logit_softcapping: float | None = None


class Model(gemma3_text.Model):  # type: ignore[misc]
    """mlx-lm's model, which finds out about tied weights only as it loads them."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self.tie_word_embeddings = args.tie_word_embeddings
        if args.tie_word_embeddings:
            self.pop("lm_head")

    def __call__(
        self,
        inputs: mx.array,
        cache: list[Any] | None = None,
        input_embeddings: mx.array | None = None,
    ) -> mx.array:
        """Return logits [batch, length, vocabulary]."""
        logits: mx.array = super().__call__(inputs, cache, input_embeddings)
        cap = self.args.final_logit_softcapping
        return logits if cap is None else mx.tanh(logits / cap) * cap
