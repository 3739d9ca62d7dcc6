"""mlx-lm's own decoding, ids to ids: what akunu's speed is measured against."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from akunu_py.models.cache import Cache
from akunu_py.models.whole_mlx_lm import generate_step, speculative_generate_step
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


@dataclass(frozen=True, slots=True)
class LoopPass:
    """The tokens that one pass of mlx-lm's loop gave, and of how many drafted ones it was told."""

    token_ids: tuple[int, ...]
    num_drafted: int = 0
    num_accepted: int = 0


def plain_passes(
    model: nn.Module, prompt: Sequence[int], max_tokens: int
) -> Generator[LoopPass, None, None]:
    """Yield the passes of `mlx_lm.generate.generate_step`, greedy, from empty caches.

    The first comes when the prompt is prefilled; close the iterator to end a reply sooner.
    """
    caches = make_prompt_cache(model)
    steps = generate_step(
        mx.array(list(prompt)), model, max_tokens=max_tokens, prompt_cache=caches, sampler=_greedy
    )
    try:
        for token, _ in steps:
            yield LoopPass((int(token),))
    finally:
        _settle(caches)


def drafted_passes(
    model: nn.Module,
    draft_model: nn.Module,
    prompt: Sequence[int],
    max_tokens: int,
    num_draft_tokens: int,
) -> Generator[LoopPass, None, None]:
    """Yield the passes of `mlx_lm.generate.speculative_generate_step`, as `plain_passes` does.

    Both models must have one vocabulary. Raises ValueError for a model whose caches cannot drop
    rows.
    """
    caches = [*make_prompt_cache(model), *make_prompt_cache(draft_model)]
    steps = speculative_generate_step(
        mx.array(list(prompt)),
        model,
        draft_model,
        num_draft_tokens=num_draft_tokens,
        max_tokens=max_tokens,
        prompt_cache=caches,
        sampler=_greedy,
    )
    done = 0
    token_ids: list[int] = []

    def passed(num_accepted: int) -> LoopPass:
        return LoopPass(tuple(token_ids), min(max_tokens - done, num_draft_tokens), num_accepted)

    try:
        for token, _, drafted in steps:
            token_ids.append(int(token))
            # The last token of a pass is the model's own, but where `max_tokens` cut it off.
            if not drafted:
                yield passed(len(token_ids) - 1)
                done += len(token_ids)
                token_ids.clear()
        if token_ids:
            yield passed(len(token_ids))
    finally:
        # It takes back what was rejected when it is closed.
        steps.close()
        _settle(caches)


def _settle(caches: Sequence[Cache]) -> None:
    """Wait for a pass that was queued and is not read: it must not run into what comes next."""
    mx.synchronize()
    mx.eval([cache.state for cache in caches])


def _greedy(log_probabilities: mx.array) -> mx.array:
    return log_probabilities.argmax(axis=-1)


def _forced_by(text: Sequence[int]) -> Callable[[mx.array], mx.array]:
    left = iter(text)

    def choose(log_probabilities: mx.array) -> mx.array:
        own = _greedy(log_probabilities)
        token = next(left, None)
        return own if token is None else forced(own, token)

    return choose
