"""mlx-lm's own loop with a draft model."""

import contextlib
from collections.abc import Generator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import mlx.core as mx
from mlx_lm.generate import speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache

from akunu_lab.compare.recorder import Recorder
from akunu_py.api import ConfigError, Engine, Item, MeasuredReply


class LoopPass(NamedTuple):
    """Tokens of one pass, and how many tokens were drafted and accepted."""

    token_ids: tuple[int, ...]
    num_drafted: int
    num_accepted: int


class DraftedArm:
    """Greedy replies of `speculative_generate_step`, with the draft model of an engine."""

    steady = True

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        max_tokens: int,
        end_ids: frozenset[int],
        plain: str,
        about: str,
        num_draft_tokens: int,
    ) -> None:
        self.name, self.plain, self.about = name, plain, about
        self.version = f"mlx-lm {version('mlx-lm')}"
        self._engine, self._num_draft_tokens = engine, num_draft_tokens
        self._max_tokens, self._end_ids = max_tokens, end_ids

    def forget(self) -> None:
        """Need nothing: its drafts come from a model alone."""

    def reply(self, item: Item) -> MeasuredReply:
        recorder = Recorder(self._max_tokens, self._end_ids)
        recorder.start()
        with self._engine.lend("this reply was ended by a measurement on the same engine") as lent:
            if lent.draft_model is None:
                raise ConfigError("mlx-lm drafts with a model, and the engine has none; load one")
            passes = drafted_passes(
                lent.model, lent.draft_model.model, item.prompt, self._max_tokens,
                self._num_draft_tokens,
            )  # fmt: skip
            with contextlib.closing(passes):
                for done in passes:
                    if recorder.take(
                        done.token_ids, num_drafted=done.num_drafted, num_accepted=done.num_accepted
                    ):
                        break
                peak = int(mx.get_peak_memory())
        return recorder.reply(peak_memory_bytes=peak)

    def close(self) -> None:
        """Need nothing: the engine is somebody else's."""


def drafted_passes(
    model: Any, draft_model: Any, prompt: Sequence[int], max_tokens: int, num_draft_tokens: int
) -> Generator[LoopPass, None, None]:
    """Yield the passes of a reply; the first comes after the prefill.

    Both models must have the same vocabulary. Raises ValueError for a model whose caches cannot
    drop rows.
    """
    caches = [*make_prompt_cache(model), *make_prompt_cache(draft_model)]
    steps = speculative_generate_step(
        mx.array(list(prompt)), model, draft_model, num_draft_tokens=num_draft_tokens,
        max_tokens=max_tokens, prompt_cache=caches, sampler=lambda rows: rows.argmax(axis=-1),
    )  # fmt: skip
    done = 0
    token_ids: list[int] = []

    def loop_pass(num_accepted: int) -> LoopPass:
        return LoopPass(tuple(token_ids), min(max_tokens - done, num_draft_tokens), num_accepted)

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
        # Closing it rolls back the rejected rows. A queued pass that nobody reads must not overlap
        # with what follows.
        steps.close()
        mx.synchronize()
        mx.eval([cache.state for cache in caches])
