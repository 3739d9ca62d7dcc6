"""Classes that make their logits differently: by another head, scaled or capped."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma3_text, gpt2, minicpm3


@dataclass
class Gemma3Args(gemma3_text.ModelArgs):  # type: ignore[misc]  # mlx_lm has no types
    """Arguments of mlx-lm's class, and two that it lacks."""

    tie_word_embeddings: bool = True
    """Whether the embedding also makes the logits."""

    final_logit_softcapping: float | None = None
    """The c in c tanh(logits / c); None leaves the logits as they are."""


class Gemma3(gemma3_text.Model):  # type: ignore[misc]
    """Gemma 3 with tied or separate output weights, and a soft cap on the logits.

    mlx-lm's class finds out whether weights are tied only while it loads them.
    """

    def __init__(self, args: Gemma3Args) -> None:
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


@dataclass
class GPT2Args(gpt2.ModelArgs):  # type: ignore[misc]
    """Arguments of mlx-lm's class, and whether the embedding also makes the logits."""

    tie_word_embeddings: bool = True


class GPT2(gpt2.Model):  # type: ignore[misc]
    """GPT-2 with separate output weights, which files of early conversions have.

    They are a copy of the embedding, often in a wider type. mlx-lm's class knows the embedding
    only.
    """

    def __init__(self, args: GPT2Args) -> None:
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


class MiniCPM3(minicpm3.Model):  # type: ignore[misc]
    """MiniCPM 3 with scaled logits also where the embedding makes them.

    mlx-lm's class scales only the logits of a separate head.
    """

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        """Return logits [batch, length, vocabulary]."""
        hidden = self.model(inputs, None, cache)
        hidden = hidden / (self.args.hidden_size / self.args.dim_model_base)
        logits: mx.array = (
            self.model.embed_tokens.as_linear(hidden)
            if self.args.tie_word_embeddings
            else self.lm_head(hidden)
        )
        return logits
