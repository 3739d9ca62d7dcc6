"""Logits processors and samplers of the caller's own, as mlx-lm has them."""

import operator
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from akunu_py.sampling.sampler import SampledToken, Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ContractError
from akunu_py.values.generation_config import LogitsProcessor, TokenSampler


class OwnSampler(Sampler):
    """Asks the caller's functions once for each position that plain decoding would ask for.

    They may keep state from call to call: drafts change neither how often nor in which order they
    are asked, nor what they are shown.
    """

    in_turn = True

    def __init__(
        self,
        chain: TransformChain,
        seed: int,
        vocabulary_size: int,
        processors: Sequence[LogitsProcessor],
        choose: TokenSampler | None,
    ) -> None:
        super().__init__(chain, seed, vocabulary_size)
        self._size = vocabulary_size
        self._processors = processors
        self._choose_own = choose

    def choice(
        self,
        logits: mx.array,
        position: int,
        recent: Sequence[int] = (),
        mask: mx.array | None = None,
    ) -> SampledToken:
        """Choose as `Sampler.choice` does; `recent` are all tokens before the choice."""
        if self._processors:
            tokens = mx.array(tuple(recent), dtype=mx.uint32)
        for process in self._processors:
            found = process(tokens, logits)
            if not isinstance(found, mx.array) or found.shape != logits.shape:
                raise ContractError(
                    f"the logits processor {process!r:.60} returned {found!r:.40}; return an MLX "
                    f"array of the shape {logits.shape}"
                )
            logits = found
        if self._choose_own is None:
            return super().choice(logits, position, recent, mask)
        row, total = self.chain.logprobs(logits, recent[-self.chain.window :], mask)
        return SampledToken(self._checked(self._choose_own(row)), total)

    def _checked(self, found: Any) -> mx.array:
        try:
            value: Any = found.item() if isinstance(found, mx.array) else found
            token = operator.index(value)
        except (TypeError, ValueError):
            token = -1
        if not 0 <= token < self._size:
            raise ContractError(
                f"the sampler returned {found!r:.40}; return an id from 0 to {self._size - 1}"
            )
        return mx.array([token], dtype=mx.uint32)
