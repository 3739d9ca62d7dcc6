"""mlx-lm's own decoding, ids to ids: the baseline of akunu's speed.

mlx-lm's `stream_generate` keeps the model wired on Metal while it decodes, as akunu does. So the
loop here also runs inside a `ReplyFrame`; without it mlx-lm would be measured under worse
conditions.
"""

from collections.abc import Callable, Generator, Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from akunu_py.models.cache import Cache
from akunu_py.models.device import ReplyFrame
from akunu_py.models.whole_mlx_lm import generate_step, generation_stream
from akunu_py.sampling.sampler import force_token

_PREFILL_CHUNK = 512

_frame = ReplyFrame(generation_stream)


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
    ) -> Generator[int, None, None]:
        """Yield a reply's tokens, one a pass: those of `text` where given, else the model's own.

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
                    yield int(token)
            finally:
                # A queued pass that nobody reads must not overlap with what follows.
                mx.synchronize()
                mx.eval([cache.state for cache in self._caches])
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


def peak_memory_bytes() -> int:
    """Return the most memory MLX held since the passes of a reply began."""
    return int(mx.get_peak_memory())


def _greedy(log_probabilities: mx.array) -> mx.array:
    return log_probabilities.argmax(axis=-1)


def _forced_by(text: Sequence[int]) -> Callable[[mx.array], mx.array]:
    left = iter(text)

    def choose(log_probabilities: mx.array) -> mx.array:
        own = _greedy(log_probabilities)
        token = next(left, None)
        return own if token is None else force_token(own, token)

    return choose
