"""A DSpark head: a DFlash head whose guesses know the token before, and how likely they stay.

Cheng et al. 2026, DSpark (arXiv:2607.05147); what it computes was read in the authors' DeepSpec.

- Every row guesses the token after its place.
- Markov head: the token before adds a bias to a row's logits, of low rank, by one of three forms.
- Confidence head: the chance that a token is accepted if those before it are, from the row's state
  and the token before.
"""

from collections.abc import Sequence
from typing import Literal

import mlx.core as mx
from mlx import nn
from mlx_lm.models.qwen3 import ModelArgs

from akunu_py.models.heads.dflash import BlockForm, DFlashHead
from akunu_py.models.heads.head import DraftOutput, SharedLayers, WalkStep, spread

MarkovForm = Literal["vanilla", "gated", "rnn"]


class DSparkHead(DFlashHead):
    """A DSpark head; a further token depends on those before it."""

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: Sequence[int],
        form: BlockForm,
        *,
        rank: int,
        markov: MarkovForm = "vanilla",
        confidence: int = 0,
        vocabulary: int,
        guessed: int,
    ) -> None:
        """Make a head without weights.

        The Markov head has vectors of `rank` numbers for the `vocabulary`, and a bias for each
        token of those that are `guessed`; the confidence head takes `confidence` numbers. There is
        none of either where the number is 0.
        """
        super().__init__(args, shared, layers, form)
        width = args.hidden_size
        if rank:
            self.markov_head = MarkovHead(width, vocabulary, guessed, rank, markov)
        if confidence:
            self.confidence_head = nn.Module()
            self.confidence_head.proj = nn.Linear(confidence, 1)
        self._confidence = confidence

    def walk(self, hidden: mx.array, count: int | None = None) -> WalkStep:
        normed = self.norm(hidden[:, :count])
        logits = self.logits_of_normed(normed)
        markov = self.get("markov_head")
        memory, places = None, iter(range(normed.shape[1]))

        def step(token: mx.array) -> tuple[mx.array, mx.array | None]:
            nonlocal memory
            place = next(places)
            found, state = logits[:, place : place + 1], normed[:, place]
            before = None
            if markov is not None:
                before = markov.markov_w1(token)
                bias, memory = markov(before, state, memory)
                found = found + self._in_vocabulary(bias)[:, None]
            return found, self._chance(state, before)

        return step

    def _in_vocabulary(self, bias: mx.array) -> mx.array:
        """Return a bias [1, guessed] for all tokens, [1, vocab]; -inf for those not guessed."""
        output = self.get("lm_head")
        if not isinstance(output, DraftOutput):
            return bias
        return spread(bias, output.ids, output.vocabulary)

    def _chance(self, state: mx.array, before: mx.array | None) -> mx.array | None:
        """Return the chance [1] that a token stays, for its row's state and the vector before."""
        if "confidence_head" not in self:
            return None
        joined = state
        if before is not None and self._confidence > state.shape[-1]:
            joined = mx.concatenate([state, before], axis=-1)
        score = self.confidence_head.proj(joined).astype(mx.float32)
        # Never 0, which would mean that nothing could be drawn.
        chance: mx.array = mx.maximum(mx.sigmoid(score)[:, 0], 1e-6)
        return chance


class MarkovHead(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """A bias of the logits by the token before."""

    def __init__(
        self, width: int, vocabulary: int, guessed: int, rank: int, form: MarkovForm
    ) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, guessed, bias=False)
        if form == "gated":
            self.gate_proj = nn.Linear(width + rank, rank)
        elif form == "rnn":
            self.joint_proj = nn.Linear(2 * rank + width, 3 * rank)

    def __call__(
        self, before: mx.array, state: mx.array, memory: mx.array | None
    ) -> tuple[mx.array, mx.array | None]:
        """Return the bias [1, guessed] and a new memory [1, R].

        For the vector [1, R] of the token before, the row's state [1, H], and the memory, None at
        first.
        """
        if "gate_proj" in self:
            gate = self.gate_proj(mx.concatenate([state, before], axis=-1))
            before = mx.sigmoid(gate) * before
        elif "joint_proj" in self:
            memory = mx.zeros_like(before) if memory is None else memory
            joined = self.joint_proj(mx.concatenate([memory, before, state], axis=-1))
            gate, new, output = mx.split(joined, 3, axis=-1)
            kept = mx.sigmoid(gate)
            memory = kept * memory + (1 - kept) * mx.tanh(new)
            before = mx.tanh(output)
        bias: mx.array = self.markov_w2(before)
        return bias, memory
