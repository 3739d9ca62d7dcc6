"""mlx-lm's own loops as arms, over a model that akunu has loaded."""

import contextlib
from collections.abc import Generator
from importlib.metadata import version

from akunu_py.bench.reply import MeasuredReply, Recorder
from akunu_py.bench.runner import Item
from akunu_py.cpu.blas import fix_threads
from akunu_py.engine.engine import Engine
from akunu_py.models.mlx_lm_loop import LoopPass, PlainLoop, drafted_passes, peak_memory_bytes
from akunu_py.system.errors import ConfigError


class MlxLmArm:
    """Greedy replies of one of mlx-lm's loops.

    Args:
        name: of the arm.
        engine: lends its model for each reply.
        max_tokens: tokens of a reply, if it does not end before.
        end_ids: ids that end one; None: those of the engine's tokenizer.
        plain: name of the arm that decodes plainly.
        about: weights and settings, for people.
        num_draft_tokens: tokens that the engine's draft model drafts for a pass of
            `speculative_generate_step`; 0 is plain `generate_step`.
        keeps_prompt: whether rows of the last plain reply's prompt stay.
        num_threads: threads of the CPU from now on; 0 leaves them to akunu.

    Raises ConfigError for an engine without the draft model that is to draft.
    """

    steady = True

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        max_tokens: int,
        plain: str,
        end_ids: frozenset[int] | None = None,
        about: str = "",
        num_draft_tokens: int = 0,
        keeps_prompt: bool = False,
        num_threads: int = 0,
    ) -> None:
        if num_draft_tokens and engine.draft_model is None:
            raise ConfigError("mlx-lm drafts with a model, and the engine has none; load one")
        if num_threads:
            fix_threads(num_threads)
        self.name, self.plain, self.about = name, plain, about
        self.version = f"mlx-lm {version('mlx-lm')}"
        self._engine, self._max_tokens = engine, max_tokens
        self._end_ids = engine.tokenizer.end_ids if end_ids is None else end_ids
        self._num_draft_tokens, self._keeps_prompt = num_draft_tokens, keeps_prompt
        self._loop: PlainLoop | None = None

    def forget(self) -> None:
        """Need nothing: its drafts come from a model alone."""

    def reply(self, item: Item) -> MeasuredReply:
        recorder = Recorder(self._max_tokens, self._end_ids)
        recorder.start()
        with contextlib.closing(self._passes(item)) as passes:
            for done in passes:
                if recorder.take(
                    done.token_ids, num_drafted=done.num_drafted, num_accepted=done.num_accepted
                ):
                    break
            peak = peak_memory_bytes()
        return recorder.reply(peak_memory_bytes=peak)

    def _passes(self, item: Item) -> Generator[LoopPass, None, None]:
        with self._engine.lend("this reply was ended by a measurement on the same engine") as lent:
            if self._num_draft_tokens and lent.draft_model is not None:
                yield from drafted_passes(
                    lent.model, lent.draft_model.model, item.prompt, self._max_tokens,
                    self._num_draft_tokens,
                )  # fmt: skip
                return
            self._loop = self._loop or PlainLoop(lent.model, keeps_prompt=self._keeps_prompt)
            yield from self._loop.passes(item.prompt, self._max_tokens, item.text)

    def close(self) -> None:
        """Need nothing: the engine is somebody else's."""
