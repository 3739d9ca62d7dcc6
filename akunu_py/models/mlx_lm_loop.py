"""mlx-lm's own decoding, ids to ids: the baseline of akunu's speed.

mlx-lm's `stream_generate` keeps the model wired on Metal while it decodes, as akunu does. So the
loops here also run inside a `ReplyFrame`; without it mlx-lm would be measured under worse
conditions.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from akunu_py.models.cache import Cache
from akunu_py.models.device import ReplyFrame
from akunu_py.models.whole_mlx_lm import (
    generate_step,
    generation_stream,
    speculative_generate_step,
)
from akunu_py.sampling.sampler import force_token

_PREFILL_CHUNK = 512

_frame = ReplyFrame(generation_stream)


@dataclass(frozen=True, slots=True)
class LoopPass:
    """Tokens of one pass of mlx-lm's loop, and how many tokens were drafted and accepted."""

    token_ids: tuple[int, ...]
    num_drafted: int = 0
    num_accepted: int = 0


class PlainLoop:
    """Greedy `mlx_lm.generate.generate_step` over one model.

    With `keeps_prompt` the rows of the last prompt stay, and a reply to it reads none of it again.
    """

    def __init__(self, model: nn.Module, *, keeps_prompt: bool = False) -> None:
        self._model = model
        self._keeps_prompt = keeps_prompt
        self._caches: list[Cache] = []
        self._prompt: tuple[int, ...] = ()

    def passes(
        self, prompt: Sequence[int], max_tokens: int, text: Sequence[int] | None = None
    ) -> Generator[LoopPass, None, None]:
        """Yield the passes of a reply: the tokens of `text` where given, else the model's own.

        The first comes after the prefill. Close the iterator to end a reply early.
        """
        if self._keeps_prompt:
            self._prefill(tuple(prompt))
            prompt = prompt[-1:]
        else:
            self._caches = make_prompt_cache(self._model)
        steps = generate_step(
            mx.array(list(prompt)),
            self._model,
            max_tokens=max_tokens,
            prompt_cache=self._caches,
            sampler=_greedy if text is None else _forced_by(text),
        )
        # The loop queues one pass that is not read.
        fed = 1
        with _frame(self._model):
            try:
                for token, _ in steps:
                    fed += 1
                    yield LoopPass((int(token),))
            finally:
                _settle(self._caches)
                if self._keeps_prompt:
                    self._rewind(fed)

    def _prefill(self, prompt: tuple[int, ...]) -> None:
        """Put all of a prompt but its last token into the caches, unless it is there already."""
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
        """Go back to the end of the prompt, or let the next reply prefill again."""
        if can_trim_prompt_cache(self._caches):
            trim_prompt_cache(self._caches, fed)
        else:
            self._caches = []


def drafted_passes(
    model: nn.Module,
    draft_model: nn.Module,
    prompt: Sequence[int],
    max_tokens: int,
    num_draft_tokens: int,
) -> Generator[LoopPass, None, None]:
    """Yield the passes of `mlx_lm.generate.speculative_generate_step`, as `PlainLoop` does.

    Both models must have the same vocabulary. Raises ValueError for a model whose caches cannot
    drop rows.
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

    def loop_pass(num_accepted: int) -> LoopPass:
        return LoopPass(tuple(token_ids), min(max_tokens - done, num_draft_tokens), num_accepted)

    with _frame(model):
        try:
            for token, _, drafted in steps:
                token_ids.append(int(token))
                # The last token of a pass is the model's own, unless `max_tokens` cut it off.
                if not drafted:
                    yield loop_pass(len(token_ids) - 1)
                    done += len(token_ids)
                    token_ids.clear()
            if token_ids:
                yield loop_pass(len(token_ids))
        finally:
            # Closing it rolls back the rejected rows.
            steps.close()
            _settle(caches)


def peak_memory_bytes() -> int:
    """Return the most memory MLX held since the passes of a reply began."""
    return int(mx.get_peak_memory())


def _settle(caches: Sequence[Cache]) -> None:
    """Wait for a queued pass that nobody reads: it must not overlap with what follows."""
    mx.synchronize()
    mx.eval([cache.state for cache in caches])


def _greedy(log_probabilities: mx.array) -> mx.array:
    return log_probabilities.argmax(axis=-1)


def _forced_by(text: Sequence[int]) -> Callable[[mx.array], mx.array]:
    left = iter(text)

    def choose(log_probabilities: mx.array) -> mx.array:
        own = _greedy(log_probabilities)
        token = next(left, None)
        return own if token is None else force_token(own, token)

    return choose
