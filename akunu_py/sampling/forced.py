"""Choices given in advance: a recorded text, decoded at the cost of a real model."""

from collections.abc import Sequence

import mlx.core as mx

from akunu_py.sampling.sampler import SampledToken, Sampler
from akunu_py.sampling.transforms import TransformChain


def force_token(choice: mx.array, token: int) -> mx.array:
    """Return a token in place of a choice, which is still computed; uint32 [1]."""
    return choice * 0 + mx.array(token, dtype=choice.dtype)


class ForcedSampler(Sampler):
    """Chooses the tokens of a text in turn, and the model's own tokens after its end.

    It serves measurements of speed, in which the text decides what is accepted. `start` is the
    position of the first token, counted from the beginning of the prompt.
    """

    def __init__(
        self, chain: TransformChain, start: int, tokens: Sequence[int], vocabulary_size: int
    ) -> None:
        super().__init__(chain, 0, vocabulary_size)
        self._start = start
        self._tokens = tuple(tokens)

    def choice(
        self,
        logits: mx.array,
        position: int,
        recent: Sequence[int] = (),
        mask: mx.array | None = None,
    ) -> SampledToken:
        """Return the text's token at a position, after the work of choosing one."""
        own = super().choice(logits, position, recent, mask)
        index = position - self._start
        if not 0 <= index < len(self._tokens):
            return own
        return SampledToken(force_token(own.token, self._tokens[index]), own.total)
