"""Suffix decoding: the most frequent continuations of the text's suffixes, by suffix trees.

Oliaro et al., "SuffixDecoding" (2024), arXiv:2411.04975, as Arctic Inference ships it: one tree of
the request (prompt and response) and one of all earlier responses, of depth 64. For each matched
length p, up to p tokens (alpha = 1) that most often followed, each step's probability the child's
count over its parent's, while the path's probability is 0.1 or more; of all lengths and both
trees the draft whose probabilities sum highest. vLLM's "suffix" method takes the depth 24.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from akunu_py.bench.replay.baseline import Baseline
from akunu_py.lab.baselines.suffix_tree import Node, SuffixTree

_LEAST_PROBABILITY = 0.1


class SuffixDecoding(Baseline):
    """The request's tree and that of earlier responses; drafts are single paths.

    A draft and its match together are no longer than the tree is deep.
    """

    def __init__(self, name: str, *, depth: int, default_limit: int) -> None:
        self.name = name
        self.default_limit = default_limit
        self._depth = depth
        self.reset()
        self.begin()

    def begin(self) -> None:
        """Start a request with a tree of its own."""
        self._local = SuffixTree(self._depth)
        self._global_matched: list[Node] = []
        self._response: list[int] = []
        self._in_prompt = True

    def observe(self, tokens: Sequence[int]) -> None:
        """Grow the request's tree, and follow the text in that of earlier responses."""
        self._local.extend(tokens)
        for token in tokens[-self._depth :]:
            self._global_matched = self._global.step(self._global_matched, token)
        if self._in_prompt:
            self._in_prompt = False
        else:
            self._response += tokens

    def draft(self, limit: int) -> Sequence[int]:
        """Return the path with the highest score."""
        return self.drafts([limit])[0]

    def drafts(self, limits: Sequence[int]) -> list[Sequence[int]]:
        """Return the best path for each limit; a shorter limit may prefer another path."""
        paths = [
            *self._paths(self._local, self._local.matched, limits[-1]),
            *self._paths(self._global, self._global_matched, limits[-1]),
        ]
        best: list[Sequence[int]] = []
        for limit in limits:
            score = 0.0
            chosen: tuple[int, ...] = ()
            for tokens, scores in paths:
                size = min(limit, len(tokens))
                if size and scores[size - 1] > score:
                    score, chosen = scores[size - 1], tokens[:size]
            best.append(chosen)
        return best

    def _paths(
        self, tree: SuffixTree, matched: Sequence[Node], limit: int
    ) -> Iterable[tuple[tuple[int, ...], list[float]]]:
        """Yield paths and the sums of their probabilities, those of longer matches first.

        Suffixes that occurred equally often occurred at the same places, so of those the one that
        allows the longest draft stands for all.
        """
        longest: dict[int, tuple[int, Node]] = {}
        for length in range(min(len(matched), self._depth - 1), 0, -1):
            node = matched[length - 1]
            size = min(length, self._depth - length, limit)
            if size > longest.get(node.count, (0, node))[0]:
                longest[node.count] = (size, node)
        for size, node in longest.values():
            tokens: list[int] = []
            probabilities: list[float] = []
            for token, probability in tree.likeliest(node):
                if len(tokens) == size or probability < _LEAST_PROBABILITY:
                    break
                tokens.append(token)
                probabilities.append(probability)
            yield tuple(tokens), list(accumulate(probabilities))

    def end(self) -> None:
        """Add the response to the tree of responses."""
        self._global.extend(self._response)
        self._global.finish()
        self.begin()

    def reset(self) -> None:
        """Forget earlier responses."""
        self._global = SuffixTree(self._depth)
