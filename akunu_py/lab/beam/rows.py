"""Log-probabilities after several continuations of one prompt, as beam search needs them.

The caches hold the common beginning of all continuations. Every pass feeds the rest anew, as one
tree (`akunu_py.models.tree`). For a model that takes no trees, continuations are fed as chains, one
pass each, and the caches are rolled back in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.lab.counts import CountModel
from akunu_py.models.cached_rows import CachedRows, Progress
from akunu_py.models.device import replies_stream
from akunu_py.models.rollback import Saved
from akunu_py.models.tree import Trees, keep_rows
from akunu_py.models.tree.rows import TreeRows
from akunu_py.system.errors import ConfigError, ContractError

_SUBSTITUTE = 0
"""Id that is fed in place of one that the draft model lacks."""


@dataclass(frozen=True, slots=True)
class BeamPass:
    """One call of `BeamRows.log_probabilities`.

    Attributes:
        continuations: number of continuations.
        rows: rows fed to the model, over all passes.
        passes: 1, or the number of chains if the model takes no trees.

    """

    continuations: int
    rows: int
    passes: int


class _Trie:
    """Texts as the rows of a pass; texts share the rows of a common beginning."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._rows: dict[tuple[int, int], int] = {}
        # The row of each text's last token.
        self.ends = [self._add(text) for text in texts]

    def _add(self, text: Sequence[int]) -> int:
        row = -1
        for token in text:
            child = self._rows.get((row, token))
            if child is None:
                child = self._rows[row, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(row)
            row = child
        return row

    def path(self, text: Sequence[int]) -> list[int]:
        """Return the rows of the longest known beginning of a text."""
        found: list[int] = []
        row = -1
        for token in text:
            child = self._rows.get((row, token))
            if child is None:
                break
            found.append(child)
            row = child
        return found


class BeamRows:
    """A model with its own caches over one prompt, asked for several continuations at once.

    `prompt` has at least one token. `context` is the model's limit. `common` is the number of ids
    that a draft model shares with the target (`vocabulary.common_ids`): rows are normalised
    over these, and the other columns, up to `vocabulary_size`, are -inf. `check` is called before
    every pass and may raise; `progress` reports the prefill.

    Raises ConfigError for a model whose caches cannot go back.

    Attributes:
        calls: one `BeamPass` for each call of `log_probabilities`.
        trees: whether the continuations of the last call were fed as a tree.

    """

    def __init__(
        self,
        model: nn.Module,
        prompt: Sequence[int],
        *,
        vocabulary_size: int,
        context: int,
        common: int | None = None,
        kv_bits: int | None = None,
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
        self._prompt = [self._known(token) for token in prompt]
        self._check = check or _nothing
        self._progress = progress
        self._tree_passes = Trees(model, context)
        self._stream = replies_stream()
        # The last pass, whose rows are still in the caches, and the caches' marks before it.
        self._last: tuple[_Trie, Saved] | None = None
        self.calls: list[BeamPass] = []
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
        texts = [[*self._prompt, *map(self._known, text)] for text in continuations]
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
        trie = _Trie([text[start:] for text in texts])
        rows = TreeRows(trie.parents)
        self.trees = not rows.is_chain and self._takes_trees(int(rows.depths.max()) + 1)
        if self.trees or rows.is_chain:
            logits = self._pass(trie, rows)
            after = {row: self._log_probabilities(logits[row : row + 1]) for row in trie.ends}
            self.calls.append(BeamPass(len(texts), len(rows), 1))
        else:
            after = self._passes_over_chains(trie, rows, shared[start:], len(texts))
        mx.eval(after)
        found = np.full((len(texts), self._vocabulary_size), -np.inf, np.float32)
        for place, row in enumerate(trie.ends):
            found[place, : self._common] = np.array(after[row][0])
        return found

    def _pass(self, trie: _Trie, rows: TreeRows) -> mx.array:
        """Feed all rows in one pass; they stay in the caches until the next call."""
        held = self._held
        self._check()
        before = held.rollback.save()
        with held.changing():
            if rows.is_chain:
                logits = held.feed(mx.array(trie.tokens))
            else:
                logits = self._tree_passes.forward(trie.tokens, rows, held.caches)
            mx.eval(logits)
            self._last = (trie, before)
        return logits[0]

    def _passes_over_chains(
        self, trie: _Trie, rows: TreeRows, shared: Sequence[int], asked: int
    ) -> dict[int, mx.array]:
        """Feed the common rows once, then each leaf's path, and roll the caches back after it.

        Returns log-probabilities [1, common] after the rows that are ends of texts.
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
        ends = set(trie.ends)
        after: dict[int, mx.array] = {}
        for leaf in rows.leaves():
            # The common rows come first on every path.
            path = rows.path(leaf)[len(shared) :]
            self._check()
            with held.changing():
                logits = held.feed(mx.array([trie.tokens[row] for row in path]))[0]
                for index, row in enumerate(path):
                    if row in ends and row not in after:
                        after[row] = self._log_probabilities(logits[index : index + 1])
                mx.eval(after)
                held.rollback.restore(before)
            fed += len(path)
            passes += 1
        self.calls.append(BeamPass(asked, fed, passes))
        return after

    def _hold_beginning_of(self, shared: list[int]) -> None:
        """Make the caches hold a beginning of `shared`, at least the prompt but its last token."""
        held = self._held
        if not held.settled:
            self._last = None
        if self._last is not None:
            with held.changing():
                self._keep_of_last(*self._last, shared)
                self._last = None
        common = len(_common_prefix([held.tokens, shared]))
        held.go_back(common)
        lead = self._prompt[:-1]
        if len(held.tokens) < len(lead):
            held.prefill(lead, self._prefilled)

    def _keep_of_last(self, trie: _Trie, before: Saved, shared: list[int]) -> None:
        """Keep the rows of the last pass that continue the held tokens along `shared`."""
        held = self._held
        rollback = held.rollback
        fed = len(trie.tokens)
        # Where `shared` differs from the held tokens the caller goes further back.
        path = trie.path(shared[len(held.tokens) :])
        in_front = path == list(range(len(path)))
        if in_front and path and rollback.can_drop(fed - len(path)):
            rollback.drop(fed - len(path))
        elif path and not in_front:
            keep_rows(held.caches, fed, path)
        else:
            rollback.restore(before)
            path = []
        held.tokens += (trie.tokens[row] for row in path)

    def _takes_trees(self, depth: int) -> bool:
        held = self._held
        # After an interrupted trial the content of the caches is unknown.
        with held.changing():
            return self._tree_passes.usable(held.caches, held.rollback, self._common, depth)

    def _log_probabilities(self, logits: mx.array) -> mx.array:
        row = logits[:, : self._common].astype(mx.float32)
        return row - mx.logsumexp(row, axis=-1, keepdims=True)

    def _prefilled(self, done: int, total: int) -> None:
        self._check()
        if self._progress:
            self._progress(done, total)

    def _known(self, token: int) -> int:
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
    """Return the longest common beginning."""
    # In sorted order the first and the last text differ soonest.
    first, last = min(texts), max(texts)
    size = 0
    for ours, theirs in zip(first, last, strict=False):
        if ours != theirs:
            break
        size += 1
    return first[:size]


def _nothing() -> None:
    """Check nothing."""
