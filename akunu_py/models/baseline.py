"""mlx-lm's own plain decoding, ids to ids: what akunu's speed is measured against."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from akunu_py.models.cache import Cache
from akunu_py.sampling.forced import forced

_PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """Tokens generated after the first, the seconds they took, and the memory MLX held at most."""

    token_ids: tuple[int, ...]
    decode_s: float
    peak_memory_bytes: int

    @property
    def num_timed_tokens(self) -> int:
        """The tokens in `decode_s`: all but the first."""
        return len(self.token_ids) - 1


class Baseline:
    """`mlx_lm.generate.generate_step` over one model, greedy; the last prompt's rows are kept."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._caches: list[Cache] = []
        self._prompt: tuple[int, ...] = ()

    def run(
        self, prompt: Sequence[int], max_tokens: int, text: Sequence[int] | None = None
    ) -> BaselineRun:
        """Decode `max_tokens` tokens, those of `text` instead of the model's own where given."""
        self._prefill(tuple(prompt))
        mx.reset_peak_memory()
        steps = generate_step(
            mx.array(list(prompt[-1:])),
            self._model,
            max_tokens=max_tokens,
            prompt_cache=self._caches,
            sampler=_greedy if text is None else _forced_by(text),
        )
        token_ids = [next(steps)[0]]
        started = time.perf_counter()
        token_ids += [token for token, _ in steps]
        decode_s = time.perf_counter() - started
        peak = int(mx.get_peak_memory())
        self._rewind(max_tokens + 1)
        return BaselineRun(tuple(token_ids), decode_s, peak)

    def _prefill(self, prompt: tuple[int, ...]) -> None:
        """Put all of a prompt but its last token into the caches, unless it is there."""
        if self._caches and prompt == self._prompt:
            return
        self._caches = make_prompt_cache(self._model)
        self._prompt = prompt
        for start in range(0, len(prompt) - 1, _PREFILL_CHUNK):
            chunk = prompt[start : min(start + _PREFILL_CHUNK, len(prompt) - 1)]
            self._model(mx.array(chunk)[None], cache=self._caches)
            mx.eval([cache.state for cache in self._caches])
        mx.clear_cache()

    def _rewind(self, fed: int) -> None:
        """Go back to the end of the prompt; where that cannot be, the next run prefills anew."""
        # One pass more than asked for is queued and not read; it must not run into the next run.
        mx.synchronize()
        mx.eval([cache.state for cache in self._caches])
        if can_trim_prompt_cache(self._caches):
            trim_prompt_cache(self._caches, fed)
        else:
            self._caches = []


def _greedy(log_probabilities: mx.array) -> mx.array:
    return log_probabilities.argmax(axis=-1)


def _forced_by(text: Sequence[int]) -> Callable[[mx.array], mx.array]:
    left = iter(text)

    def choose(log_probabilities: mx.array) -> mx.array:
        own = _greedy(log_probabilities)
        token = next(left, None)
        return own if token is None else forced(own, token)

    return choose
