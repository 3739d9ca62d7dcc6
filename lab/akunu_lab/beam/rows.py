"""Log-probabilities after several continuations of one prompt, as beam search needs them.

The caches of the model hold the common beginning of all continuations. Every pass feeds the rest
anew, as one tree. For a model that takes no trees, continuations are fed as chains, one pass each.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_lab.counts import CountModel
from akunu_lab.drafting.draft_trees import TreeBuilder
from akunu_py.api import ConfigError, ContractError, Draft, LentModel

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
    """A lent model over one prompt, asked for several continuations at once.

    `prompt` has at least one token. Rows are normalised over the ids that the model shares with the
    target; the other columns, up to `vocabulary_size`, are -inf. `check` is called before every
    pass and may raise; `progress` reports the prefill.

    Raises ConfigError for a model whose caches cannot go back.
    """

    def __init__(
        self,
        model: LentModel,
        prompt: Sequence[int],
        *,
        vocabulary_size: int,
        check: Callable[[], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if not model.can_go_back:
            raise ConfigError(
                "this model keeps its context in a cache that cannot go back, which beam search "
                "needs; generate without it"
            )
        self._model = model
        self._shared = min(model.shared, vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._prompt = [self._shared_id(token) for token in prompt]
        self._check = check or (lambda: None)
        self._progress = progress
        # One `BeamPass` for each call of `log_probabilities`.
        self.calls: list[BeamPass] = []
        # Whether the continuations of the last call were fed as a tree.
        self.trees = False
        self._begun, self._chains_only = False, False

    def prefill(self) -> None:
        """Feed the prompt except its last token; otherwise the first call does it."""
        self._model.read(self._prompt, self._report)
        self._begun = True

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        if not continuations:
            raise ContractError("log-probabilities were asked for after no continuation")
        if not all(0 <= token < self._vocabulary_size for text in continuations for token in text):
            raise ContractError(
                f"a continuation holds an id that is not 0 to {self._vocabulary_size - 1}"
            )
        texts = [[*self._prompt, *map(self._shared_id, text)] for text in continuations]
        common = _common_prefix(texts)
        tree, ends = _tree_of([text[len(common) :] for text in texts])
        if not self._begun:
            self.prefill()
        fed = 0
        if tree.is_chain or not self._chains_only:
            fed = self._read(common)
            self._chains_only |= not self._model.takes_tree(tree)
        passes = int(fed > 0)
        whole = tree.is_chain or not self._chains_only
        self.trees = whole and not tree.is_chain
        after: dict[int, NDArray[np.float64]] = {}
        for nodes in [[-1, *range(len(tree))]] if whole else _paths(tree):
            if not whole:
                # A pass begins with the last token read: the first of the path, unless that of the
                # common beginning ends a continuation.
                text = common
                if -1 not in ends:
                    nodes = nodes[1:]  # noqa: PLW2901
                    text = [*common, tree.tokens[nodes[0]]]
                read = self._read(text)
                fed, passes = fed + read, passes + (read > 0)
            self._check()
            rows = self._model.distributions(tree.part(nodes[1:]))
            after.update(zip(nodes, rows, strict=True))
            fed, passes = fed + len(rows), passes + 1
        self.calls.append(BeamPass(len(texts), fed, passes))
        found = np.full((len(texts), self._vocabulary_size), -np.inf)
        for row, end in zip(found, ends, strict=True):
            shared = after[end][: self._shared]
            # A probability may be 0 in 64 bits.
            with np.errstate(divide="ignore"):
                row[: self._shared] = np.log(shared / shared.sum())
        return found

    def _read(self, text: Sequence[int]) -> int:
        return self._model.read(text, lambda _done, _total: self._check())

    def _report(self, done: int, total: int) -> None:
        self._check()
        if self._progress:
            self._progress(done, total)

    def _shared_id(self, token: int) -> int:
        return token if token < self._shared else _SUBSTITUTE


def _paths(tree: Draft) -> list[list[int]]:
    """Return the nodes of each path to a leaf, with -1 for the root in front."""
    paths = {-1: [-1]}
    for node, parent in enumerate(tree.parents):
        paths[node] = [*paths[parent], node]
    return [path for node, path in paths.items() if node not in tree.parents]


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
    """Return the prefix tree of texts, and the node of each text's end: -1 of an empty one."""
    builder = TreeBuilder()
    ends: list[int] = []
    for text in texts:
        node = -1
        for token in text:
            node = builder.add(node, token, 1.0)
        ends.append(node)
    return Draft(tuple(builder.tokens), tuple(builder.parents)), ends
