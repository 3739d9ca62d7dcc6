"""Log-probabilities after several continuations of one prompt: what beam search asks a model for.

The caches hold the beginning that all continuations share. What follows it is fed again with every
pass, as one tree (`akunu_py.models.tree`). Where a model takes no trees the continuations are fed
as chains, a pass each, and the caches go back in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.errors import ConfigError, ContractError
from akunu_py.models.cached_rows import CachedRows, Progress
from akunu_py.models.rollback import Saved
from akunu_py.models.tree import Trees, keep_rows
from akunu_py.models.tree.rows import TreeRows

_SUBSTITUTE = 0
"""Fed in place of an id that a draft model has not."""


@dataclass(frozen=True, slots=True)
class BeamPass:
    """One call of `BeamRows.log_probabilities`.

    Attributes:
        continuations: asked for.
        rows: fed to the model, in all of its passes.
        passes: 1, or one for each chain where the model takes no trees.

    """

    continuations: int
    rows: int
    passes: int


class _Trie:
    """Texts as the rows of a pass: beginnings that are alike are one row."""

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
        """Return the rows of the longest beginning of a text that is there."""
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
    """A model over one prompt, asked for several continuations at once; caches of its own.

    `prompt` has at least one token, and `context` is the model's. `common` is how many ids a draft
    model shares with the target (`tokenizers.vocabulary_match`): rows are normalised over these,
    the others have -inf, up to `vocabulary_size` columns. `check` is called before every pass, and
    may raise; `progress` is that of the prompt.

    Raises ConfigError for a model whose caches cannot go back.

    Attributes:
        calls: what each call of `log_probabilities` took.
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
        self._stream = mx.new_thread_local_stream(mx.default_device())
        # The last pass, whose rows are in the caches still, and what these were before it.
        self._last: tuple[_Trie, Saved] | None = None
        self.calls: list[BeamPass] = []
        self.trees = False

    def prefill(self) -> None:
        """Feed all but the last token of the prompt; the first call would, otherwise."""
        with mx.stream(self._stream):
            self._hold_beginning_of(self._prompt[:-1])

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        """Return the next token's log-probabilities after each, float32 [n, vocabulary].

        Computed row by row, so that a row does not depend on the others in its pass. Raises
        ContractError where there is no continuation, or an id is out of range.
        """
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
                # A pass may still be under way; MLX does not like its thread to end then.
                mx.synchronize(self._stream)

    def _rows_after(self, texts: list[list[int]]) -> NDArray[np.float32]:
        # The row of a text's last token is always fed: what follows it is asked for.
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
        """Feed all rows at once; they stay in the caches until the next call."""
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
        """Feed what all share for good, then each leaf's path, the caches going back after it.

        Returns log-probabilities [1, common] after the rows that are ends.
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
            # The rows that all share come first on every path.
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
        """Have the caches hold a beginning of `shared`, the prompt without its last at least."""
        held = self._held
        if not held.settled:
            self._last = None
        if self._last is not None:
            with held.changing():
                self._keep_of_last(shared)
                self._last = None
        common = len(_common_prefix([held.tokens, shared]))
        held.go_back(common)
        lead = self._prompt[:-1]
        if len(held.tokens) < len(lead):
            held.prefill(lead, self._prefilled)

    def _keep_of_last(self, shared: list[int]) -> None:
        """Keep of the last pass the rows that continue what is held along `shared`."""
        assert self._last is not None  # noqa: S101 - the caller looked
        trie, before = self._last
        held = self._held
        rollback = held.rollback
        fed = len(trie.tokens)
        # Where `shared` is not what is held, whoever called goes further back.
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
        # An interrupted try leaves it open what the caches hold.
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


def _common_prefix(texts: Sequence[list[int]]) -> list[int]:
    """Return the longest beginning that all share."""
    # Of all in order the first and the last differ soonest.
    first, last = min(texts), max(texts)
    size = 0
    for ours, theirs in zip(first, last, strict=False):
        if ours != theirs:
            break
        size += 1
    return first[:size]


def _nothing() -> None:
    """Check nothing."""
