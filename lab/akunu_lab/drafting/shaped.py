"""A draft model's drafts with a temperature, a rule of length and guesses of their own."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from akunu_lab.drafting.adaptive_length import AfterDraws
from akunu_py.api import ConfigError, Draft, DraftModelDrafter, GenerationConfig, LengthTrace

_NOTHING = Draft.empty()


class Guesses(Protocol):
    """Guesses the draft model's tokens, so that one of its passes can yield several."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens."""

    def guess(self, drawn: Sequence[int], limit: int) -> Sequence[int]:
        """Return at most `limit` tokens, possibly none, that may follow the text and `drawn`."""


class ShapedDrafter(DraftModelDrafter):
    """A `DraftModelDrafter` whose draws have a temperature of their own.

    `length` may end a draft before its limit.

    Raises ConfigError as `DraftModelDrafter` does, and for a draft temperature out of range.
    """

    def __init__(
        self,
        *model: Any,
        draft_temperature: float | None = None,
        length: AfterDraws | None = None,
        guesses: Guesses | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*model, **settings)
        self._draft_temperature = draft_temperature
        try:
            self._tempered(GenerationConfig())
        except ConfigError as error:
            raise ConfigError(f"draft_{error}") from None
        self._length = length
        self._guesses = guesses
        if guesses is not None:
            self._guess = guesses.guess

    def _tempered(self, config: GenerationConfig) -> GenerationConfig:
        """Return the configuration with the draft's own temperature, if it has one."""
        if self._draft_temperature is None:
            return config
        # Options of verification depend on the reply's own temperature.
        return dataclasses.replace(config, temperature=self._draft_temperature, draft_options={})

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draw with these transforms and this seed; `check` may raise while the prompt is fed."""
        super().begin_reply(self._tempered(config), seed, check)
        if self._sampling is not None and self._length is not None:
            self._sampling = dataclasses.replace(self._sampling, entropy=True)

    def observe(self, tokens: Sequence[int]) -> None:
        if tokens and self._prompt_taken and self._guesses is not None:
            self._guesses.observe(tokens)
        super().observe(tokens)

    def reading(self, prompt: Sequence[int]) -> Iterator[None]:
        if self._guesses is not None:
            self._guesses.observe(prompt)
        yield from super().reading(prompt)

    def extend(self, before: Draft, limit: int) -> Draft:
        return dataclasses.replace(super().extend(before, limit), length=self._length_trace)

    @property
    def _length_trace(self) -> LengthTrace | None:
        """Explanation of the latest draft's length; None without a rule that has one."""
        return None if self._length is None else self._length.trace

    def _goes_on(self, limit: int, before: Draft) -> Callable[[Sequence[Any]], bool] | None:
        pays, length = super()._goes_on(limit, before), self._length
        if length is None:
            return pays
        return lambda drawn: length(drawn) and (pays is None or pays(drawn))

    def _drawn(self, limit: int, before: Draft = _NOTHING) -> Sequence[Any]:
        drawn = super()._drawn(limit, before)
        if limit > 0 and self._length is not None:
            drawn = drawn[: self._length.length(drawn)]
            self._num_drawn = len(drawn)
        return drawn
