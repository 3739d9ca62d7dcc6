"""A model and its caches as the decode loop's Target."""

import contextlib
import gc
import io
import logging
from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.generate import wired_limit
from numpy.typing import NDArray

from akunu_py.errors import ContractError
from akunu_py.models.cache import UNLIMITED, drop_rows, make_caches, rollback_room
from akunu_py.sampling.sampler import Sampler
from akunu_py.types import Draft

_log = logging.getLogger(__name__)

PREFILL_CHUNK = 512
"""Rows of one prompt pass: large enough for full speed, small enough for progress and Ctrl-C."""

_CLEAR_EVERY = 256
"""Steps after which MLX's pool of freed buffers is emptied: the KV cache outgrows them."""

Progress = Callable[[int, int], None]
"""Called with prompt tokens done and prompt tokens in all."""


class Session:
    """One conversation's caches over a model; implements `akunu_py.types.Target`.

    While nothing is drafted, one step is kept in flight, as mlx-lm's plain loop does: the pass over
    the token being chosen is queued before that token is read back. A draft that arrives then
    loses nothing: its first token is checked against the step in flight, and the rest goes into
    the next pass. Penalties need the token on the host first, so with them nothing is in flight.
    """

    def __init__(self, model: nn.Module, *, context: int, kv_bits: int | None = None) -> None:
        self._model = model
        self._kv_bits = kv_bits
        self.context = context
        self._stream = mx.new_thread_local_stream(mx.default_device())
        self._caches = make_caches(model, kv_bits)
        probe = model(mx.zeros((1, 1), dtype=mx.int32), cache=make_caches(model, kv_bits))
        # Evaluated here, so that nothing of the model stays lazy on the loading thread's stream: a
        # later call may come from another thread.
        mx.eval(probe)
        self.vocabulary_size = int(probe.shape[-1])
        # Tokens whose rows the caches hold, in order.
        self._fed: list[int] = []
        self._settled = True
        self._end = context
        self._sampler: Sampler | None = None
        # The choice that follows the last row fed, computed but not read; see the class docstring.
        self._in_flight: mx.array | None = None
        # Draft tokens whose rows were fed by the last `choose` and await `commit`.
        self._pending: tuple[int, ...] = ()
        self._steps = 0
        self._warned = False

    def begin(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int,
        progress: Progress | None = None,
    ) -> int:
        """Prefill all but the last token of a prompt; return how many were cached already.

        The rows of the longest common prefix with what the caches hold are kept. At most
        `max_tokens` tokens will be asked for, so no row is computed for tokens beyond them.
        """
        self._sampler = sampler
        self._in_flight = None
        self._end = min(self.context, len(prompt) + max_tokens)
        rows = list(prompt[:-1])
        kept = self._keep_common_prefix(rows)
        total = len(prompt)
        if progress:
            progress(kept, total)
        with mx.stream(self._stream):
            for start in range(kept, len(rows), PREFILL_CHUNK):
                chunk = rows[start : start + PREFILL_CHUNK]
                self._settled = False
                self._forward(mx.array(chunk))
                # The chunk's logits are never needed, and so never computed.
                mx.eval([cache.state for cache in self._caches])
                self._fed += chunk
                self._settled = True
                mx.clear_cache()
                if progress:
                    progress(start + len(chunk), total)
        if progress:
            progress(total, total)
        return kept

    def _keep_common_prefix(self, rows: list[int]) -> int:
        kept = 0
        for ours, theirs in zip(self._fed, rows, strict=False):
            if ours != theirs:
                break
            kept += 1
        surplus = len(self._fed) - kept
        # After an interrupted pass nobody knows how many rows each layer's cache took in. A cache
        # that cannot roll back can be kept only whole.
        can_drop = surplus == 0 or min(map(rollback_room, self._caches), default=0) >= UNLIMITED
        if not self._settled or not can_drop:
            self.reset()
            return 0
        drop_rows(self._caches, surplus)
        del self._fed[kept:]
        return kept

    def reset(self) -> None:
        """Forget every row."""
        self._caches = make_caches(self._model, self._kv_bits)
        self._fed = []
        self._in_flight = None
        self._pending = ()
        self._settled = True

    def close(self) -> None:
        """Drop the model and give MLX's pool of freed buffers back to the system.

        The caller has let go of the model before, or its weights are freed only when it does.
        """
        self._caches = []
        self._model = None
        self._sampler = None
        self._in_flight = None
        # Modules may refer to each other in circles; uncollected they would fill the pool later.
        gc.collect()
        mx.clear_cache()

    def max_draft_tokens(self) -> int:
        """Return what the caches can roll back and the context still holds."""
        room = min(map(rollback_room, self._caches), default=0)
        in_flight = self._in_flight is not None
        # Without a step in flight the last token's row is fed in the same pass.
        committed = len(self._fed) + (0 if in_flight else 1)
        return max(0, min(room - (0 if in_flight else 1), self._end - committed - 1))

    def choose(self, last: int, draft: Draft) -> list[int]:
        """Run one pass and return the target's choice after `last` and after each draft token.

        Raises ContractError for a draft that is a tree, or for a call before `begin`.
        """
        if not draft.is_chain:
            raise ContractError(
                f"the drafter {draft.source!r} drafted a tree; this target takes chains"
            )
        for token in (last, *draft.tokens):
            # The embedding would read beyond its memory.
            if not 0 <= token < self.vocabulary_size:
                raise ContractError(
                    f"the drafter {draft.source!r} drafted the token {token}; ids go from 0 to "
                    f"{self.vocabulary_size - 1}"
                )
        if self._pending:
            raise ContractError("choose was called twice without commit")
        self._settled = False
        with mx.stream(self._stream):
            if self._in_flight is not None:
                choices = self._choose_in_flight(self._in_flight, draft)
            elif draft.tokens:
                choices = self._choose_rows((last, *draft.tokens))
                self._fed.append(last)
                self._pending = draft.tokens
            else:
                choice = self._choose_row(self._forward(mx.array([last]))[:, 0], (last,))
                self._fed.append(last)
                choices = [self._read_and_look_ahead(choice)]
        return choices

    def commit(self, accepted: Sequence[int]) -> None:
        """Drop the rows of draft tokens that were not accepted."""
        drop_rows(self._caches, len(self._pending) - len(accepted))
        self._fed += self._pending[: len(accepted)]
        self._pending = ()
        self._settled = True
        self._steps += 1
        if self._steps % _CLEAR_EVERY == 0:
            mx.clear_cache()

    def _choose_in_flight(self, choice: mx.array, draft: Draft) -> list[int]:
        """Choose when the last token's row is fed and its choice is under way."""
        if not draft.tokens:
            return [self._read_and_look_ahead(choice)]
        first = _read(choice)
        if first != draft.tokens[0]:
            # Nothing of the draft can be accepted: the plain pipeline goes on.
            return [self._read_and_look_ahead(choice), *[-1] * len(draft)]
        self._in_flight = None
        choices = self._choose_rows(draft.tokens)
        self._pending = draft.tokens
        return [first, *choices]

    def _choose_rows(self, rows: tuple[int, ...]) -> list[int]:
        """Feed rows in one pass and return the choice after each."""
        logits = self._forward(mx.array(rows))
        choices = mx.concatenate(
            [self._choose_row(logits[:, index], rows[: index + 1]) for index in range(len(rows))]
        )
        ids: list[int] = choices.tolist()  # type: ignore[assignment]
        return ids

    def _read_and_look_ahead(self, choice: mx.array) -> int:
        """Read a choice back, its own pass queued first where its successor will be asked for."""
        self._in_flight = None
        position = len(self._fed)
        if position + 1 >= self._end or self._active_sampler.chain.needs_history:
            return _read(choice)
        self._in_flight = self._choose_row(self._forward(choice)[:, 0], (-1,))
        mx.async_eval(choice, self._in_flight)  # type: ignore[no-untyped-call]
        token = _read(choice)
        self._fed.append(token)
        return token

    def _choose_row(self, logits: mx.array, rows: tuple[int, ...]) -> mx.array:
        """Return the choice after `rows`, which follow the tokens fed before this pass."""
        sampler = self._active_sampler
        recent: tuple[int, ...] = ()
        if sampler.chain.needs_history:
            recent = (*self._fed[-sampler.chain.window :], *rows)
        return sampler.choose(logits, len(self._fed) + len(rows), recent)

    @property
    def _active_sampler(self) -> Sampler:
        if self._sampler is None:
            raise ContractError("choose was called before begin")
        return self._sampler

    def _forward(self, rows: mx.array) -> mx.array:
        logits: mx.array = self._model(rows[None], cache=self._caches)
        return logits

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Frame one reply: peak memory counts from here, and on Metal the model stays wired."""
        mx.reset_peak_memory()
        with contextlib.ExitStack() as stack:
            notices = io.StringIO()
            with contextlib.redirect_stdout(notices):
                stack.enter_context(wired_limit(self._model, [self._stream]))
            if notices.getvalue() and not self._warned:
                self._warned = True
                _log.warning("%s", notices.getvalue().strip())
            try:
                yield
            finally:
                # A pass may still be under way; MLX does not like its thread to end then.
                mx.synchronize(self._stream)

    def peak_memory_bytes(self) -> int:
        """Return the most memory MLX held since `measured` was entered."""
        return int(mx.get_peak_memory())

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after each token of a text, float32 [n, vocab]; caches of its own."""
        caches = make_caches(self._model, self._kv_bits)
        pieces: list[NDArray[np.float32]] = []
        with mx.stream(self._stream):
            for start in range(0, len(token_ids), PREFILL_CHUNK):
                chunk = mx.array(list(token_ids[start : start + PREFILL_CHUNK]))
                rows = self._model(chunk[None], cache=caches)[0].astype(mx.float32)
                pieces.append(np.array(rows))
        return np.concatenate(pieces)


def _read(choice: mx.array) -> int:
    """Wait for a choice and bring it to the host."""
    token: int = choice.item()  # type: ignore[assignment]
    return token
