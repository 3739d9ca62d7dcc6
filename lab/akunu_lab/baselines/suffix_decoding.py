"""Suffix decoding: the most frequent continuations of the text's suffixes, by suffix trees.

Oliaro et al., "SuffixDecoding" (2024), arXiv:2411.04975, as in Arctic Inference: one tree of the
request (prompt and response) and one of all earlier responses, of depth 64. For each matched length
p the path of most frequent followers is taken, up to p tokens long (alpha = 1), as long as its
probability is at least 0.1; the probability of a step is the child's count over its parent's. Of
all lengths and both trees the path with the largest sum of probabilities wins. vLLM's "suffix"
method uses depth 24.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from akunu_lab.baselines.suffix_tree import Node, SuffixTree
from akunu_lab.replay.baseline import Baseline

_LEAST_PROBABILITY = 0.1


class SuffixDecoding(Baseline):
    """The trees of the request and of earlier responses; drafts are single paths.

    The length of a draft and its match together is at most the depth of the tree.
    """

    def __init__(self, name: str, *, depth: int, default_limit: int) -> None:
        self.name = name
        self.default_limit = default_limit
        self._depth = depth
        self.reset()
        self.begin()

    def begin(self) -> None:
        self._local = SuffixTree(self._depth)
        self._global_matched: list[Node] = []
        self._response: list[int] = []
        self._in_prompt = True

    def observe(self, tokens: Sequence[int]) -> None:
        """Extend the request's tree, and follow the text in the tree of earlier responses."""
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
        """Yield paths and the sums of their probabilities, longer matches first.

        Suffixes that occurred equally often occurred at the same places. Of these only the one that
        allows the longest draft is used.
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
        self._global = SuffixTree(self._depth)
