"""A model and its caches as the decode loop's Target."""

import contextlib
import gc
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.models.cached_rows import (
    NO_CHECKPOINTS,
    PREFILL_CHUNK,
    CachedRows,
    MakePasses,
    Passes,
)
from akunu_py.models.device import ReplyFrame, replies_stream
from akunu_py.models.hidden_states import HandedStates, SessionRows
from akunu_py.models.load_steps import Steps, model_digest
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.passes.trees import DraftRows, TreeRows
from akunu_py.models.row_bits import rows_bit_equal
from akunu_py.models.row_choices import ConstrainedChoices, PendingChoices, RowChoices, Scoring
from akunu_py.models.row_file import Layout, describe_rows, read_rows
from akunu_py.protocols import Drafter, ReplyMasks, Target
from akunu_py.sampling.probabilities import probabilities
from akunu_py.sampling.sampler import Sampler
from akunu_py.system.errors import ContractError
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import Draft, PassReport, TokenLogprob

if TYPE_CHECKING:
    from akunu_py.models.embedding import EmbeddingSteps
    from akunu_py.models.passes.tree_trials import Trees
    from akunu_py.models.pooling import Kind

_CLEAR_EVERY = 256
"""Steps after which MLX's pool of freed buffers is emptied: the KV cache outgrows them."""

Choosing = Generator[PassRows | None, mx.array | None, list[int]]
"""A choice whose passes somebody else runs; see `Session.choosing`."""


class Session(Target):
    """One conversation's caches over a model; a `Target` that can do everything.

    While nothing is drafted, one step is kept in flight, as in mlx-lm's plain loop: the pass over
    the token being chosen is queued before that token is read back. A draft that then arrives loses
    nothing: its first token is checked against the step in flight, and the rest goes into the next
    pass. Penalties and constraints need each token on the host first, so with them nothing is in
    flight.

    `largest_pass` is the number of rows of the reply's largest pass with a draft, or with positions
    of other replies.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        context: int,
        kv_bits: KVBits | None = None,
        reproducible: bool = False,
        make_passes: MakePasses = Passes,
        wired: bool = True,
    ) -> None:
        self._kv_bits = kv_bits
        self._make_passes = make_passes
        self.context = context
        self.stream = replies_stream()
        self._reproducible = reproducible
        self._rows = self._new_rows(model)
        probe = self._rows.empty().feed(mx.zeros((1,), dtype=mx.int32))
        # Evaluated here so that no array stays lazy on the loading thread's stream: later calls may
        # come from another thread.
        mx.eval(probe)
        self.vocabulary_size = int(probe.shape[-1])
        del probe
        mx.clear_cache()
        self._end = context
        self._choices: RowChoices | None = None
        # The choice that follows the last row fed, queued but not read; see the class docstring.
        self._in_flight: PendingChoices | None = None
        self.look_ahead = True
        self.last_pass = PassReport(0)
        # The rows of the last pass with a draft, None after a plain step.
        self._drafted: DraftRows | None = None
        # Whether they await `commit`.
        self._undecided = False
        self.largest_pass = 1
        self._trees: Trees | None = None
        # Hands the reply's hidden states to its drafter, if that reads them.
        self._states: HandedStates | None = None
        self._steps = 0
        self._frame = ReplyFrame(self.stream, wired=wired)

    def begin(
        self, prompt: Sequence[int], sampler: Sampler, max_tokens: int, **options: Any
    ) -> int:
        """Prefill as `beginning` does, without pauses; return how many rows were cached already."""
        held, *_ = self.beginning(prompt, sampler, max_tokens, **options)
        return held

    def beginning(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int,
        checkpoints: Mapping[str, int] = NO_CHECKPOINTS,
        *,
        allowed: ReplyMasks | None = None,
        states: Drafter | None = None,
        scored: int | None = None,
        ends: Collection[int] = (),
    ) -> Generator[int, None, None]:
        """Prefill all but the last token of a prompt, with pauses in which the caller may act.

        The longest common prefix with the cached rows is kept, as far as the caches can go back to
        it. At most `max_tokens` tokens will be asked for; no row is computed for tokens beyond.
        `allowed` gives the tokens among which the reply's are chosen; by default, all. `states`
        gets the hidden states of the reply's rows, and may read their keys and values.

        Yields the number of rows held, first of those that were cached already, as
        `CachedRows.prefilling` does. `checkpoints` are places in the prompt to which caches should
        be able to go back, by name. With `scored` the tokens of the prompt are scored, and as many
        of the likeliest at each place: see `prompt_logprobs`. `ends` are the tokens that end the
        reply.
        """
        if allowed is None:
            self._choices = RowChoices(sampler, self.vocabulary_size, ends)
        else:
            size = self.vocabulary_size
            self._choices = ConstrainedChoices(sampler, size, ends, allowed, len(prompt))
        self._forget_pass()
        self._end = min(self.context, len(prompt) + max_tokens)
        self.largest_pass = 1
        if states is not None:
            self._states = HandedStates(self._rows.model, states, prompt)
            states.use_rows(SessionRows(lambda: self._rows))
        scoring = None if scored is None else Scoring(prompt, min(scored, self.vocabulary_size))
        prefilling = self._rows.prefilling(prompt[:-1], checkpoints, scoring)
        with contextlib.closing(prefilling) as steps:
            while True:
                # Not around the `yield`: other work of this thread has streams of its own.
                with mx.stream(self.stream), self._listening():
                    held = next(steps, None)
                    if held is None:
                        return
                    if self._states is not None:
                        # At a pause within a pass these are the rows before it.
                        self._states.prefilled(len(self._rows.tokens))
                yield held

    def prompt_logprobs(self) -> tuple[TokenLogprob, ...]:
        """Return the log probabilities of a scored prompt, once it is read; the first has none."""
        return self._rows.scores.read()

    @property
    def rows(self) -> CachedRows:
        """Return the rows held now; while they are settled they can be copied."""
        return self._rows

    @property
    def joins(self) -> bool:
        """Whether passes of the reply may be joined with those of others.

        Reproducible ones have a shape of their own, and those of several machines more to do.
        """
        return not self._reproducible and self._rows.passes.joins

    def exchange(self, rows: CachedRows | None) -> CachedRows:
        """Hand the rows over, and go on with others of this model; None for empty ones.

        Not within a reply. Nothing else may use the rows that are given.
        """
        mx.synchronize(self.stream)
        self._forget_pass()
        held, self._rows = self._rows, self._rows.empty() if rows is None else rows
        with mx.stream(self.stream):
            held.rest()
        return held

    def copy(self, rows: CachedRows, length: int) -> CachedRows:
        """Return a copy of the first `length` rows, or of fewer; see `CachedRows.copy`."""
        with mx.stream(self.stream):
            return rows.copy(length)

    def describe_rows(self, rows: CachedRows) -> tuple[Layout, dict[str, mx.array]]:
        """Return what is written of rows to a file; see `row_file.describe_rows`."""
        with mx.stream(self.stream):
            return describe_rows(rows)

    def read_rows(self, path: Path, layout: Layout, tokens: Sequence[int]) -> CachedRows:
        """Return the rows of a file; raises as `row_file.read_rows`."""
        rows = self._rows.empty()
        with mx.stream(self.stream):
            read_rows(path, layout, tokens, rows)
        return rows

    def digest(self) -> Steps[str]:
        """Return a name for the model and its caches, in steps; see `model_digest`."""
        return model_digest(
            self._rows.model, kv_bits=self._kv_bits, reproducible=self._reproducible
        )

    def reset(self) -> None:
        self._rows.reset()
        self._forget_pass()

    def _forget_pass(self) -> None:
        self._states = None
        self._in_flight = None
        self.look_ahead = True
        self._undecided = False

    def close(self) -> None:
        """Drop the model and give MLX's pool of freed buffers back to the system.

        The weights are freed once the caller has dropped the model as well.
        """
        self._rows.close()
        self._trees = None
        self._choices = None
        self._in_flight = None
        # Modules may form reference cycles; collected later, they would fill the pool again.
        gc.collect()
        mx.clear_cache()

    def max_draft_tokens(self) -> int:
        if not self._rows.rollback.supported:
            return 0
        # Without a step in flight the pass also feeds the last token's row.
        last = 1 if self._in_flight is None else 0
        committed = len(self._rows.tokens) + last
        return max(0, min(self._end - committed - 1, self._rows.room - last))

    @property
    def pipelined(self) -> bool:
        return self._choices is not None and not self._choices.needs_tokens

    @property
    def in_flight(self) -> bool:
        return self._in_flight is not None

    def wait_in_flight(self) -> float:
        started = time.perf_counter()
        if self._in_flight is not None:
            mx.eval(self._in_flight.to_read)
        return time.perf_counter() - started

    def takes_tree(self, draft: Draft) -> bool:
        """Return whether a tree can be verified now; see `Trees`."""
        # Trees use other kernels, even at the same number of rows.
        if self._reproducible or not self._rows.passes.takes_trees:
            return False
        if self._trees is None:
            from akunu_py.models.passes.tree_trials import Trees  # a chat needs none at its start

            self._trees = Trees(self._rows.model, self.context)
        depth = 1 + max(draft.depths(), default=0)
        # After an interrupted try the content of the caches is unknown.
        with mx.stream(self.stream), self._rows.changing():
            return self._trees.usable(
                self._rows.caches, self._rows.rollback, self.vocabulary_size, depth
            )

    def track_candidates(self, count: int) -> None:
        self._choosing.track(count)

    def candidates(self) -> list[tuple[int, list[int]]]:
        return self._choosing.found

    def hold_end(self, end_ids: Collection[int], until: float) -> None:
        """Keep the reply from its end before a position: see `RowChoices.hold_end`."""
        self._choosing.hold_end(end_ids, until)

    def report_logprobs(self, count: int) -> None:
        """Report log probabilities of choices and of the `count` likeliest tokens, until `begin`.

        They come to the host together with the choices.
        """
        self._choosing.report(count)

    def logprobs(self) -> Sequence[TokenLogprob | None]:
        """Return the log probabilities of the last pass: of its choice after each node.

        The order is that of `choose`. None stands for a node without logits.
        """
        found = self._choosing.logprobs
        if self._drafted is None or not found:
            return found
        # The first is of the step in flight, or of the last token's row.
        rows = found[1 - self._drafted.start :]
        return [found[0], *self._drafted.by_node(rows, None)]

    def choose(self, last: int, draft: Draft) -> list[int]:
        """Run one pass and return the target's choice after `last` and after each draft token.

        Raises ContractError for a tree that `takes_tree` refuses or a call before `begin`,
        ModelFormatError for logits that are not numbers.
        """
        with mx.stream(self.stream):
            return run_alone(self.choosing(last, draft), self.feed)

    def choosing(self, last: int, draft: Draft) -> Choosing:
        """Choose as `choose` does, with passes that the caller runs, in `self.stream`.

        Yields the rows of a pass and is sent their logits [1, n, vocab], and yields None before the
        host waits for what was queued.
        """
        self._begin_pass(last, draft)
        was_in_flight = self.in_flight
        if self._in_flight is not None:
            choices = yield from self._choose_in_flight(self._in_flight, last, draft)
            fed = 0 if self._drafted is None else len(self._drafted.tokens)
        elif draft.tokens:
            rows = DraftRows(draft, range(len(draft)), last)
            found = yield from self._verify(rows)
            choices = [found[0], *rows.by_node(found, -1)]
            fed = len(rows.tokens)
        else:
            logits = yield self._planned(mx.array([last]))
            pending = self._choosing.pending(_sent(logits), self._rows.tokens, [(last,)])
            # Queued before the next pass is built, so that the device has work meanwhile.
            pending.queue()
            self._in_flight = pending
            self._rows.tokens.append(last)
            choices = yield from self._choose_in_flight(pending, last, draft)
            fed = 1
        self.last_pass = PassReport(fed, was_in_flight, self.in_flight)
        return choices

    def distributions(self, last: int, draft: Draft) -> NDArray[np.float64]:
        """Run one pass and return the target's distributions, float64 [len(draft) + 1, vocab].

        They follow `last` and each drafted token, after all transforms, and are those that `choose`
        would draw from. No step is kept in flight.

        Raises as `choose` does, and ContractError after a `choose` in the same reply.
        """
        if self._in_flight is not None:
            raise ContractError("ask for distributions in every step of a reply, or in none")
        self._begin_pass(last, draft)
        rows = DraftRows(draft, range(len(draft)), last)
        paths = rows.paths()
        found = np.zeros((len(draft) + 1, self.vocabulary_size))
        with mx.stream(self.stream):
            logits = self.feed(self._plan(rows))
            self.last_pass = PassReport(len(rows.tokens))
            self._choosing.find_candidates(logits, paths)
            chain = self._choosing.sampler.chain
            masks = self._choosing.masks(logits, self._rows.tokens, paths)
            for place, (path, mask) in enumerate(zip(paths, masks, strict=True)):
                recent = self._choosing.recent(self._rows.tokens, path)
                row = chain.log_probabilities(logits[:, place], recent, mask)[0]
                found[place] = probabilities(row, greedy=chain.greedy, kind=logits.dtype)
        return found

    def _begin_pass(self, last: int, draft: Draft) -> None:
        """Check that a pass over these tokens can begin."""
        if not draft.is_chain and not self.takes_tree(draft):
            raise ContractError(
                f"the drafter {draft.source!r} drafted a tree; this target takes chains"
            )
        for token in (last, *draft.tokens):
            # The embedding would read outside its memory.
            if not 0 <= token < self.vocabulary_size:
                raise ContractError(
                    f"the drafter {draft.source!r} drafted the token {token}; ids go from 0 to "
                    f"{self.vocabulary_size - 1}"
                )
        if self._undecided:
            raise ContractError("choose was called twice without commit")
        self._rows.settled = False
        self._choosing.found = []
        self._choosing.logprobs = []
        self._drafted = None

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep the rows of accepted draft tokens, drop the others."""
        # In the stream of the passes, which would otherwise wait for each array of another one.
        with mx.stream(self.stream):
            if self._drafted is not None and self._undecided:
                path = self._drafted.rows_of(accepted)
                self._rows.keep(self._drafted.tokens, path)
                if self._states is not None and self._drafted.tree is not None:
                    self._states.keep(path)
            self._undecided = False
            self._rows.settled = True
            self._hand_states()
        self._steps += 1
        if self._steps % _CLEAR_EVERY == 0:
            mx.clear_cache()

    def _choose_in_flight(self, pending: PendingChoices, last: int, draft: Draft) -> Choosing:
        """Choose after a step in flight: the last token's row is fed, its choice is queued."""
        first = None
        if draft.tokens:
            (first,) = self._choosing.read(pending, (last,), 1)
            self._in_flight = None
            rows = DraftRows.below(draft, first)
            if rows is not None:
                found = yield from self._verify(rows)
                return [first, *rows.by_node(found, -1)]
            # No token of the draft can be accepted: the plain pipeline continues.
        yield from self._look_ahead(pending)
        if first is None:
            yield None
            (first,) = self._choosing.read(pending, (last,), 1)
        if self._in_flight is not None:
            self._rows.tokens.append(first)
        return [first, *[-1] * len(draft)]

    def _verify(self, rows: DraftRows) -> Choosing:
        """Feed rows in one pass; return the choice after each."""
        logits = yield self._plan(rows)
        pending = self._choosing.pending(_sent(logits), self._rows.tokens, rows.paths())
        pending.queue()
        yield None
        return self._choosing.read(pending, rows.tokens, rows.start)

    def _plan(self, rows: DraftRows) -> PassRows:
        """Return a pass over rows, and remember them for `commit`."""
        self._drafted, self._undecided = rows, True
        self.largest_pass = max(self.largest_pass, len(rows.tokens))
        return self._planned(mx.array(rows.tokens), rows.tree)

    def _planned(self, tokens: mx.array, tree: TreeRows | None = None) -> PassRows:
        rows = self._rows.planned(tokens, tree)
        rows.idle = self._in_flight is None
        return rows

    def feed(self, rows: PassRows) -> mx.array:
        """Run a pass that `choosing` asks for; return the logits of its rows [1, n, vocab]."""
        with self.building():
            return self._rows.passes.run(rows)

    @contextlib.contextmanager
    def building(self, rows: slice = slice(None)) -> Iterator[None]:
        """Frame the building of a pass, whose `rows` are this session's, and keep their states."""
        # A plain step queues the next pass before `commit`.
        self._hand_states()
        with self._listening():
            yield
        if self._states is not None:
            self._states.built(self._rows.first_fed, rows)

    def _listening(self) -> contextlib.AbstractContextManager[None]:
        """Keep the hidden states of passes that are built inside, if somebody reads them."""
        return contextlib.nullcontext() if self._states is None else self._states.listening()

    def _hand_states(self) -> None:
        """Hand over the hidden states of rows that are sure to stay, if somebody reads them."""
        if self._states is not None:
            self._states.hand(len(self._rows.tokens))

    def _look_ahead(
        self, pending: PendingChoices
    ) -> Generator[PassRows | None, mx.array | None, None]:
        """Queue the pass over a choice if a further token is needed."""
        choosing = self._choosing
        if len(self._rows.tokens) + 1 >= self._end or choosing.needs_tokens or not self.look_ahead:
            self._in_flight = None
            return
        # The host may not know the token yet; only penalties and constraints would need it.
        logits = yield self._planned(pending.tokens[0])
        self._in_flight = choosing.pending(_sent(logits), self._rows.tokens, [(-1,)])
        self._in_flight.queue()

    @property
    def _choosing(self) -> RowChoices:
        if self._choices is None:
            raise ContractError("choose was called before begin")
        return self._choices

    def measured(self) -> contextlib.AbstractContextManager[None]:
        """Frame one reply, whose peak memory counts from here: see `ReplyFrame`."""
        return self._frame(self._rows.model)

    def peak_memory_bytes(self) -> int:
        """Return the most memory MLX held since `measured` was entered."""
        return int(mx.get_peak_memory())

    def wait(self) -> None:
        """Wait until nothing that was queued is under way."""
        mx.synchronize(self.stream)

    def bit_equal_to(self, most: int) -> int:
        """Return the context up to which rows were found bit-equal, 0 if some row is not.

        Passes of up to `most` positions are compared with rows fed alone, behind no text and behind
        the rows held now (at the end of the context, behind fewer). What is held stays as it is.

        Reproducible passes are compared behind no text alone: all of them have one shape.
        """
        most = min(most, self.context)
        rows, size = self._rows, self.vocabulary_size
        with mx.stream(self.stream):
            if not rows_bit_equal(lambda: self._new_rows(rows.model), size, most):
                return 0
            if self._reproducible:
                return self.context
            held = rows.reach(self.context - most) if rows.rollback.supported else 0
            if held and not rows_bit_equal(lambda: rows.copy(held), size, most):
                return 0
        return held + most

    def logits(self, token_ids: Sequence[int], start: int = 0) -> NDArray[np.float32]:
        """Return the logits after each token from `start` on, float32 [n - start, vocab].

        With `start` 0 it uses separate caches. Otherwise it uses the conversation's, which then
        hold this text: a cached beginning is not fed again, and no logits are computed before
        `start`.
        """
        with mx.stream(self.stream):
            if start == 0:
                rows = self._new_rows(self._rows.model)
            else:
                rows = self._rows
                self._forget_pass()
                rows.prefill(token_ids[:start])
            pieces: list[NDArray[np.float32]] = []
            while start < len(token_ids):
                chunk = token_ids[start : start + min(PREFILL_CHUNK, rows.room)]
                with rows.changing():
                    logits = rows.feed(mx.array(list(chunk)))
                    pieces.append(np.array(logits[0].astype(mx.float32)))
                    rows.tokens += chunk
                start += len(chunk)
        return np.concatenate(pieces)

    def embedding(self, texts: Sequence[Sequence[int]], pooling: "Kind") -> "EmbeddingSteps":
        """Return embeddings of texts in steps; the conversation's caches stay as they are."""
        from akunu_py.models.embedding import embed_texts  # most sessions make none

        return embed_texts(self._rows.model, texts, pooling, self.stream)

    def _new_rows(self, model: nn.Module) -> CachedRows:
        """Return empty rows."""
        kind = CachedRows
        if self._reproducible:
            from akunu_py.models.aligned_rows import AlignedRows  # for these alone

            kind = AlignedRows
        return kind(model, self._kv_bits, self._make_passes)


def run_alone(work: Choosing, run: Callable[[PassRows], mx.array]) -> list[int]:
    """Run what `Session.choosing` yields pass by pass, with `run` from rows to logits."""
    logits = None
    while True:
        try:
            rows = work.send(logits)
        except StopIteration as end:
            result: list[int] = end.value
            return result
        logits = None if rows is None else run(rows)


def _sent(logits: mx.array | None) -> mx.array:
    assert logits is not None  # noqa: S101 - of whoever runs the pass
    return logits
