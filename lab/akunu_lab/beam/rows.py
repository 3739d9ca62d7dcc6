"""Log-probabilities after several continuations of one prompt, as beam search needs them.

The caches hold the common beginning of all continuations. Every pass feeds the rest anew, as one
tree (`akunu_py.models.tree`). For a model that takes no trees, continuations are fed as chains, one
pass each, and the caches are rolled back in between.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from akunu_py.values.draft_trees import TreeBuilder, walk
from mlx import nn
from numpy.typing import NDArray

from akunu_lab.counts import CountModel
from akunu_py.models.cached_rows import CachedRows, Progress
from akunu_py.models.device import replies_stream
from akunu_py.models.rollback.caches import Saved
from akunu_py.models.tree import Trees, keep_rows
from akunu_py.models.tree.rows import TreeRows
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import Draft

_SUBSTITUTE = 0
"""Id that is fed in place of one that the draft model lacks."""


@dataclass(frozen=True, slots=True)
class BeamPass:
    """One call of `BeamRows.log_probabilities`."""

    continuations: int
    rows: int
    passes: int
    """1, or the number of chains if the model takes no trees."""


class BeamRows:
    """A model with its own caches over one prompt, asked for several continuations at once.

    `prompt` has at least one token. `context` is the model's limit. `common` is the number of ids
    that a draft model shares with the target (`vocabulary.common_ids`): rows are normalised
    over these, and the other columns, up to `vocabulary_size`, are -inf. `check` is called before
    every pass and may raise; `progress` reports the prefill.

    Raises ConfigError for a model whose caches cannot go back.
    """

    def __init__(
        self,
        model: nn.Module,
        prompt: Sequence[int],
        *,
        vocabulary_size: int,
        context: int,
        common: int | None = None,
        kv_bits: KVBits | None = None,
        check: Callable[[], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._held = CachedRows(model, kv_bits)
        if not self._held.rollback.supported:
            raise ConfigError(
                "this model keeps its context in a cache that cannot go back, which beam search "
                "needs; generate without it"
            )
        self._common = vocabulary_size if common is None else min(common, vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._prompt = [self._shared_id(token) for token in prompt]
        self._check = check or _nothing
        self._progress = progress
        self._tree_passes = Trees(model, context)
        self._stream = replies_stream()
        # The last pass, whose rows are still in the caches, and the caches' marks before it.
        self._last: tuple[Draft, Saved] | None = None
        # One `BeamPass` for each call of `log_probabilities`.
        self.calls: list[BeamPass] = []
        # Whether the continuations of the last call were fed as a tree.
        self.trees = False

    def prefill(self) -> None:
        """Feed the prompt except its last token; otherwise the first call does it."""
        with mx.stream(self._stream):
            self._hold_beginning_of(self._prompt[:-1])

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        if not continuations:
            raise ContractError("log-probabilities were asked for after no continuation")
        if not all(0 <= token < self._vocabulary_size for text in continuations for token in text):
            raise ContractError(
                f"a continuation holds an id that is not 0 to {self._vocabulary_size - 1}"
            )
        texts = [[*self._prompt, *map(self._shared_id, text)] for text in continuations]
        with mx.stream(self._stream):
            try:
                return self._rows_after(texts)
            finally:
                # A pass may still be running; MLX does not tolerate the end of its thread then.
                mx.synchronize(self._stream)

    def _rows_after(self, texts: list[list[int]]) -> NDArray[np.float32]:
        # The row of a text's last token is always fed: its logits are needed.
        shared = _common_prefix(texts)[: min(map(len, texts)) - 1]
        self._hold_beginning_of(shared)
        start = len(self._held.tokens)
        tree, ends = _tree_of([text[start:] for text in texts])
        rows = TreeRows(tree.parents)
        self.trees = not rows.is_chain and self._takes_trees(int(rows.depths.max()) + 1)
        if self.trees or rows.is_chain:
            logits = self._pass(tree, rows)
            after = {row: self._log_probabilities(logits[row : row + 1]) for row in set(ends)}
            fed, passes = len(rows), 1
        else:
            after, fed, passes = self._passes_over_chains(tree, rows, set(ends), shared[start:])
        self.calls.append(BeamPass(len(texts), fed, passes))
        mx.eval(after)
        found = np.full((len(texts), self._vocabulary_size), -np.inf, np.float32)
        for place, row in enumerate(ends):
            found[place, : self._common] = np.array(after[row][0])
        return found

    def _pass(self, tree: Draft, rows: TreeRows) -> mx.array:
        """Feed all rows in one pass; they stay in the caches until the next call."""
        held = self._held
        self._check()
        before = held.rollback.save()
        with held.changing():
            if rows.is_chain:
                logits = held.feed(mx.array(tree.tokens))
            else:
                logits = self._tree_passes.forward(tree.tokens, rows, held.caches)
            mx.eval(logits)
            self._last = (tree, before)
        return logits[0]

    def _passes_over_chains(
        self, tree: Draft, rows: TreeRows, ends: set[int], shared: Sequence[int]
    ) -> tuple[dict[int, mx.array], int, int]:
        """Feed the common rows once, then each leaf's path, and roll the caches back after it.

        Returns log-probabilities [1, common] after the rows that are ends of texts, and the numbers
        of rows and of passes.
        """
        held = self._held
        fed = passes = 0
        if shared:
            self._check()
            with held.changing():
                held.feed_apart(shared)
            held.mark("shared")
            fed, passes = len(shared), 1
        before = held.rollback.save()
        after: dict[int, mx.array] = {}
        for leaf in rows.leaves():
            # The common rows come first on every path.
            path = rows.path(leaf)[len(shared) :]
            self._check()
            with held.changing():
                logits = held.feed(mx.array([tree.tokens[row] for row in path]))[0]
                for index, row in enumerate(path):
                    if row in ends and row not in after:
                        after[row] = self._log_probabilities(logits[index : index + 1])
                mx.eval(after)
                held.rollback.restore(before)
            fed += len(path)
            passes += 1
        return after, fed, passes

    def _hold_beginning_of(self, shared: list[int]) -> None:
        """Make the caches hold a beginning of `shared`, at least the prompt but its last token."""
        held = self._held
        if not held.settled:
            self._last = None
        if self._last is not None:
            with held.changing():
                self._keep_of_last(*self._last, shared)
                self._last = None
        held.go_back(len(_common_prefix([held.tokens, shared])))
        lead = self._prompt[:-1]
        if len(held.tokens) < len(lead):
            held.prefill(lead, self._report_prefill)

    def _keep_of_last(self, tree: Draft, before: Saved, shared: list[int]) -> None:
        """Keep the rows of the last pass that continue the held tokens along `shared`."""
        held = self._held
        rollback = held.rollback
        fed = len(tree)
        # Where `shared` differs from the held tokens the caller goes further back.
        walked = walk(tree, shared[len(held.tokens) :])
        path = [row for _, row in walked if row is not None]
        in_front = path == list(range(len(path)))
        if in_front and path and rollback.can_drop(fed - len(path)):
            rollback.drop(fed - len(path))
        elif path and not in_front:
            keep_rows(held.caches, fed, path)
        else:
            rollback.restore(before)
            path = []
        held.tokens += (tree.tokens[row] for row in path)

    def _takes_trees(self, depth: int) -> bool:
        held = self._held
        # After an interrupted trial the content of the caches is unknown.
        with held.changing():
            return self._tree_passes.usable(held.caches, held.rollback, self._common, depth)

    def _log_probabilities(self, logits: mx.array) -> mx.array:
        row = logits[:, : self._common].astype(mx.float32)
        return row - mx.logsumexp(row, axis=-1, keepdims=True)

    def _report_prefill(self, done: int, total: int) -> None:
        self._check()
        if self._progress:
            self._progress(done, total)

    def _shared_id(self, token: int) -> int:
        return token if token < self._common else _SUBSTITUTE


class CountRows:
    """A count model that has observed one prompt, asked for several continuations at once.

    Hypotheses are not counted, since none is final before the search ends.
    """

    def __init__(self, model: CountModel, prompt: Sequence[int]) -> None:
        self._model = model
        self._before = tuple(prompt[len(prompt) - min(len(prompt), model.order - 1) :])

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        found = np.empty((len(continuations), self._model.vocabulary_size))
        for row, tokens in zip(found, continuations, strict=True):
            self._model.distribution((*self._before, *tokens)).fill(row)
        # Without a discount a token may have probability 0.
        with np.errstate(divide="ignore"):
            return np.log(found, out=found)


def _common_prefix(texts: Sequence[list[int]]) -> list[int]:
    # In sorted order the first and the last text differ soonest.
    first, last = min(texts), max(texts)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return first[: len(list(same))]


def _tree_of(texts: Sequence[Sequence[int]]) -> tuple[Draft, list[int]]:
    """Return the prefix tree of texts, and the node of each text's last token."""
    builder = TreeBuilder()
    ends: list[int] = []
    for text in texts:
        node = -1
        for token in text:
            node = builder.add(node, token, 1.0)
        ends.append(node)
    return Draft(tuple(builder.tokens), tuple(builder.parents)), ends


def _nothing() -> None:
    """Check nothing."""
