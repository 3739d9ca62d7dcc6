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

from akunu_py.draft_trees import depths
from akunu_py.errors import ContractError
from akunu_py.models.cache import make_caches
from akunu_py.models.rollback import RollbackCaches, Saved
from akunu_py.models.tree import ArrangedTree, Trees, keep_rows
from akunu_py.sampling.candidates import top_candidates
from akunu_py.sampling.probabilities import probabilities
from akunu_py.sampling.sampler import Sampler
from akunu_py.types import Draft

_log = logging.getLogger(__name__)

PREFILL_CHUNK = 512
"""Rows of one prompt pass: large enough for full speed, small enough for progress and Ctrl-C."""

_CLEAR_EVERY = 256
"""Steps after which MLX's pool of freed buffers is emptied: the KV cache outgrows them."""

_MAX_CARRIED = 8
"""Rows carried over rejections before one pass goes without a draft: see `Session`."""

Progress = Callable[[int, int], None]
"""Called with prompt tokens done and prompt tokens in all."""


class Session:
    """One conversation's caches over a model; a `Target`, `CandidateTarget` and `Carrying`.

    While nothing is drafted, one step is kept in flight, as mlx-lm's plain loop does: the pass over
    the token being chosen is queued before that token is read back. A draft that arrives then
    loses nothing: its first token is checked against the step in flight, and the rest goes into
    the next pass. Penalties need the token on the host first, so with them nothing is in flight.

    Recurrent states cannot drop the rows of rejected tokens. They go back to what they were before
    the pass, and the rows that stay are *carried*: fed again in front of the next pass, which reads
    the weights anyway. So that repeated rejections do not feed a growing number of rows again and
    again, nothing is drafted once `_MAX_CARRIED` are carried, or sooner where the budget finds that
    to cost less; the plain step takes them in for good. It costs hardly more than a pass of their
    own would, and brings a token.
    """

    def __init__(self, model: nn.Module, *, context: int, kv_bits: int | None = None) -> None:
        self._model = model
        self._kv_bits = kv_bits
        self.context = context
        self._stream = mx.new_thread_local_stream(mx.default_device())
        self._caches = make_caches(model, kv_bits)
        self._rollback = RollbackCaches(self._caches)
        probe = model(mx.zeros((1, 1), dtype=mx.int32), cache=make_caches(model, kv_bits))
        # Evaluated here, so that nothing of the model stays lazy on the loading thread's stream: a
        # later call may come from another thread.
        mx.eval(probe)
        self.vocabulary_size = int(probe.shape[-1])
        # Tokens whose rows the caches hold, in order.
        self._fed: list[int] = []
        # Committed tokens between those and the last one, whose rows the next pass feeds again.
        self._carried: tuple[int, ...] = ()
        # What the caches were after the last prompt, and how many of `_fed` they held then.
        self._prompt_end: tuple[int, Saved] | None = None
        self._settled = True
        self._end = context
        self._sampler: Sampler | None = None
        # How many candidates of each row are looked for, and those of the last pass.
        self._num_candidates = 0
        self._candidates: list[tuple[int, list[int]]] = []
        # The choice that follows the last row fed, computed but not read, and behind it the
        # candidates of that row, if they are tracked; see the class docstring.
        self._in_flight: mx.array | None = None
        # Tokens of the last pass that await `commit`, where among them the draft begins, and what
        # the caches were before the pass, where that is needed.
        self._pass: tuple[int, ...] = ()
        self._draft_start = 0
        self._before_pass: Saved | None = None
        # How a tree was arranged in that pass.
        self._tree: ArrangedTree | None = None
        self._trees: Trees | None = None
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

        The rows of the longest common prefix with what the caches hold are kept, as far as the
        caches can go back to it. At most `max_tokens` tokens will be asked for, so no row is
        computed for tokens beyond them.
        """
        self._sampler = sampler
        self._in_flight = None
        self._num_candidates = 0
        self._carried = ()
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
        if rows and self._rollback.supported and not self._rollback.by_length:
            self._prompt_end = (len(rows), self._rollback.save())
        if progress:
            progress(total, total)
        return kept

    def _keep_common_prefix(self, rows: list[int]) -> int:
        """Go back to the longest beginning of `rows` that the caches can; return its length."""
        kept = 0
        for ours, theirs in zip(self._fed, rows, strict=False):
            if ours != theirs:
                break
            kept += 1
        surplus = len(self._fed) - kept
        # After an interrupted pass nobody knows how many rows each layer's cache took in.
        if not self._settled or kept == 0:
            self.reset()
        elif self._rollback.can_drop(surplus):
            self._rollback.drop(surplus)
            del self._fed[kept:]
        elif self._prompt_end is not None and self._prompt_end[0] <= kept:
            # The last prompt again, or one that goes on from it: often without what was replied.
            length, saved = self._prompt_end
            self._rollback.restore(saved)
            del self._fed[length:]
        else:
            self.reset()
        if self._prompt_end is not None and self._prompt_end[0] > len(self._fed):
            self._prompt_end = None
        return len(self._fed)

    def reset(self) -> None:
        """Forget every row."""
        self._caches = make_caches(self._model, self._kv_bits)
        self._rollback = RollbackCaches(self._caches)
        self._fed = []
        self._carried = ()
        self._prompt_end = None
        self._in_flight = None
        self._pass = ()
        self._before_pass = None
        self._tree = None
        self._settled = True

    def close(self) -> None:
        """Drop the model and give MLX's pool of freed buffers back to the system.

        The caller has let go of the model before, or its weights are freed only when it does.
        """
        self._caches = []
        self._rollback = RollbackCaches([])
        self._prompt_end = None
        self._before_pass = None
        self._model = None
        self._trees = None
        self._sampler = None
        self._in_flight = None
        # Modules may refer to each other in circles; uncollected they would fill the pool later.
        gc.collect()
        mx.clear_cache()

    @property
    def model(self) -> nn.Module:
        """Return the model, for passes over other caches."""
        return self._model

    def max_draft_tokens(self) -> int:
        """Return how many tokens can be drafted now: 0 where the caches cannot roll back."""
        if not self._rollback.supported or len(self._carried) >= _MAX_CARRIED:
            return 0
        # Without a step in flight the last token's row is fed in the same pass.
        committed = len(self._fed) + len(self._carried) + (0 if self._in_flight is not None else 1)
        return max(0, self._end - committed - 1)

    @property
    def carried_rows(self) -> int:
        """How many rows the next pass feeds again, before those of the last token and a draft."""
        return len(self._carried)

    def replay_rows(self, num_accepted: int = 0) -> int:
        """Return how many rows are fed again if the next draft is rejected.

        That is after `num_accepted` of its tokens; 0 for caches that drop rows. A budget for drafts
        adds them to the cost of a rejection; the pass that feeds them again is needed anyway.
        """
        if not self._rollback.replays:
            return 0
        # The row of the last token is in the pass of the draft, unless it was in flight. Then the
        # pass is run for drafts whose first token is right.
        last = 1 if self._in_flight is None else 0
        return len(self._carried) + last + num_accepted

    def takes_tree(self, draft: Draft) -> bool:
        """Return whether a tree can be verified now; `akunu_py.models.tree.trees` says how."""
        if self._carried:
            return False
        if self._trees is None:
            self._trees = Trees(self._model)
        # An interrupted try leaves it open what the caches hold.
        settled, self._settled = self._settled, False
        with mx.stream(self._stream):
            depth = 1 + max(depths(draft), default=0)
            usable = self._trees.usable(self._caches, self._rollback, self.vocabulary_size, depth)
        self._settled = settled
        return usable

    def track_candidates(self, count: int) -> None:
        """Look for the `count` likeliest ids after every row, until the next `begin`.

        They come to the host with the choices, in the same transfer.
        """
        self._num_candidates = min(count, self.vocabulary_size)

    def candidates(self) -> list[tuple[int, list[int]]]:
        """Return those of the last `choose`: (token fed, ids by their raw logits, best first)."""
        return self._candidates

    def choose(self, last: int, draft: Draft) -> list[int]:
        """Run one pass and return the target's choice after `last` and after each draft token.

        Raises ContractError for a tree where `takes_tree` says no, or for a call before `begin`.
        """
        self._begin_pass(last, draft)
        with mx.stream(self._stream):
            if self._in_flight is not None:
                choices = self._choose_in_flight(self._in_flight, last, draft)
            elif not draft.is_chain:
                tree = ArrangedTree(draft, range(len(draft)), last)
                found = self._verify(tree.tokens, 1, tree)
                choices = [found[0], *tree.choices(found)]
            elif draft.tokens:
                rows = (*self._carried, last, *draft.tokens)
                choices = self._verify(rows, len(self._carried) + 1)
            else:
                rows = (*self._carried, last)
                row = self._evaluated(self._forward(mx.array(rows))[:, -1], rows)
                self._fed += rows
                self._carried = ()
                choices = [self._read_and_look_ahead(row, last)]
        return choices

    def distributions(self, last: int, draft: Draft) -> NDArray[np.float64]:
        """Run one pass and return what the target would draw from, [len(draft) + 1, vocab].

        After `last` and after each drafted token, all transforms done; from the numbers that
        `choose` would draw from, in float64. No step is in flight beside it.

        Raises ContractError for a tree where `takes_tree` says no, or where `choose` was called in
        the same reply.
        """
        if self._in_flight is not None:
            raise ContractError("distributions are asked for in every step of a reply, or in none")
        self._begin_pass(last, draft)
        tree = None if draft.is_chain else ArrangedTree(draft, range(len(draft)), last)
        rows = (*self._carried, last, *draft.tokens)
        start = len(self._carried)
        found = np.zeros((len(draft) + 1, self.vocabulary_size))
        with mx.stream(self._stream):
            self._begin_verify(rows, start + 1, tree)
            logits, paths = self._feed(rows, start)
            sampler = self._active_sampler
            for place, path in enumerate(paths):
                recent = self._recent(path)
                row = sampler.chain.log_probabilities(logits[:, start + place], recent)[0]
                found[place] = probabilities(row, greedy=sampler.chain.greedy)
        return found

    def _begin_pass(self, last: int, draft: Draft) -> None:
        """Check that a pass over these tokens can begin."""
        if not draft.is_chain and not self.takes_tree(draft):
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
        if self._pass:
            raise ContractError("choose was called twice without commit")
        self._settled = False
        self._candidates = []

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep the rows of accepted draft tokens, drop those of the others.

        Where rows cannot be dropped, the rows of the whole pass are, and those to keep carried.
        """
        kept = self._pass[: self._draft_start + len(accepted)]
        rejected = len(self._pass) - len(kept)
        if self._tree is not None:
            path = self._tree.kept(accepted)
            keep_rows(self._caches, len(self._pass), path)
            self._fed += (self._pass[row] for row in path)
            self._tree = None
        elif rejected and self._before_pass is not None:
            self._rollback.restore(self._before_pass)
            self._carried = kept
        else:
            self._rollback.drop(rejected)
            self._fed += kept
        self._pass = ()
        self._before_pass = None
        self._settled = True
        self._steps += 1
        if self._steps % _CLEAR_EVERY == 0:
            mx.clear_cache()

    def _choose_in_flight(self, row: mx.array, last: int, draft: Draft) -> list[int]:
        """Choose when the last token's row is fed and its choice is under way."""
        if not draft.tokens:
            return [self._read_and_look_ahead(row, last)]
        first = self._read(row, last)
        tree = ArrangedTree.below(draft, first)
        if tree is None:
            # Nothing of the draft can be accepted: the plain pipeline goes on.
            return [self._read_and_look_ahead(row, last), *[-1] * len(draft)]
        self._in_flight = None
        found = self._verify(tree.tokens, 0, None if tree.rows.is_chain else tree)
        return [first, *tree.choices(found)]

    def _verify(
        self, rows: tuple[int, ...], draft_start: int, tree: ArrangedTree | None = None
    ) -> list[int]:
        """Feed rows of which those from `draft_start` on are drafted.

        Returns the choice after the row before these, if it is there, and after each of them.
        """
        self._begin_verify(rows, draft_start, tree)
        return self._choose_rows(rows, max(0, draft_start - 1))

    def _begin_verify(
        self, rows: tuple[int, ...], draft_start: int, tree: ArrangedTree | None
    ) -> None:
        """Remember what a pass feeds, for `commit`."""
        self._pass = rows
        self._draft_start = draft_start
        self._carried = ()
        self._tree = tree
        if self._rollback.replays:
            self._before_pass = self._rollback.save()

    def _feed(self, rows: tuple[int, ...], start: int) -> tuple[mx.array, list[tuple[int, ...]]]:
        """Feed rows in one pass: their logits, and of each from `start` on its path in the pass."""
        tree = self._tree
        if tree is None or self._trees is None:
            logits = self._forward(mx.array(rows))
            return logits, [rows[: index + 1] for index in range(start, len(rows))]
        logits = self._trees.forward(rows, tree.rows, self._caches)
        return logits, [tree.tokens_along(row) for row in range(len(rows))]

    def _choose_rows(self, rows: tuple[int, ...], start: int = 0) -> list[int]:
        """Feed rows in one pass and return the choice after each from `start` on."""
        logits, paths = self._feed(rows, start)
        asked = rows[start:]
        results = [
            self._choose_row(logits[:, index], path) for index, path in enumerate(paths, start)
        ]
        width = self._num_candidates
        if width:
            results.append(top_candidates(logits[0, start:], width).flatten())
        ids: list[int] = mx.concatenate(results).tolist()  # type: ignore[assignment]
        if width:
            self._candidates += [
                (token, ids[first : first + width])
                for token, first in zip(asked, range(len(asked), len(ids), width), strict=True)
            ]
        return ids[: len(asked)]

    def _read_and_look_ahead(self, row: mx.array, last: int) -> int:
        """Read a choice back, its own pass queued first where its successor will be asked for."""
        self._in_flight = None
        position = len(self._fed)
        if position + 1 >= self._end or self._active_sampler.chain.needs_history:
            return self._read(row, last)
        choice = row[:1] if self._num_candidates else row
        self._in_flight = self._evaluated(self._forward(choice)[:, 0], (-1,))
        mx.async_eval(row, self._in_flight)  # type: ignore[no-untyped-call]
        token = self._read(row, last)
        self._fed.append(token)
        return token

    def _evaluated(self, logits: mx.array, rows: tuple[int, ...]) -> mx.array:
        """Return the choice after `rows` and the row's candidates, if they are tracked, in one."""
        choice = self._choose_row(logits, rows)
        if not self._num_candidates:
            return choice
        return mx.concatenate([choice, top_candidates(logits, self._num_candidates)[0]])

    def _read(self, row: mx.array, last: int) -> int:
        """Bring a choice to the host, and the candidates after `last` with it."""
        if not self._num_candidates:
            token: int = row.item()  # type: ignore[assignment]
            return token
        ids: list[int] = row.tolist()  # type: ignore[assignment]
        self._candidates = [(last, ids[1:])]
        return ids[0]

    def _choose_row(self, logits: mx.array, rows: tuple[int, ...]) -> mx.array:
        """Return the choice after `rows`, which follow the tokens fed before this pass."""
        recent = self._recent(rows)
        return self._active_sampler.choose(logits, len(self._fed) + len(rows), recent)

    def _recent(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens that penalties look at, up to `rows`, where there are penalties."""
        chain = self._active_sampler.chain
        return (*self._fed[-chain.window :], *rows)[-chain.window :] if chain.needs_history else ()

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
