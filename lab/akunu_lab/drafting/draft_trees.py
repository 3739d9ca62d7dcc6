"""Trees of drafted tokens: how they grow, and the part of one that pays.

A node's *reach* is the probability that the target's own text passes through it: the product of the
probabilities on its path. The expected number of tokens gained by a tree is the sum of its nodes'
reaches. A child's reach is at most its parent's, so the k nodes of largest reach form the best
subtree of k nodes.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Self

from akunu_py.api import Draft, TreePrices


class TreeDraft(Draft):
    """A draft with the rule of `akunu_py`'s budget for trees.

    The nodes are taken in the order of their reach, as many as maximise E[tokens] - lambda cost.
    Often they all lie on one path, a chain.
    """

    __slots__ = ()

    def cut_tree(self, prices: TreePrices) -> tuple[Self, float]:
        """Return the part with the largest gain over a plain step, and the gain in tokens.

        With a step in flight a child of the root with nothing worth verifying below it is left out:
        it would only end the pipeline.
        """
        scaled = scale_siblings(self, prices.probabilities)
        reach = reaches(self, scaled)
        if prices.checking is None:
            nodes, gain = _best(range(len(self)), reach, prices.price)
            return self.part(nodes), gain
        # The nodes of each branch, by the child of the root that it begins with.
        branches: dict[int, list[int]] = {}
        branch_of: list[int] = []
        for node, parent in enumerate(self.parents):
            branch_of.append(node if parent < 0 else branch_of[parent])
            branches.setdefault(branch_of[node], []).append(node)
        kept: list[int] = []
        gain = -prices.checking
        for root, (_, *below) in branches.items():
            if scaled[root] > 0:
                likely = [reach[node] / scaled[root] for node in below]
                nodes, more = _best(below, likely, prices.price)
                if nodes:
                    kept += [root, *nodes]
                    gain += scaled[root] * more
        return (self.part(kept), gain) if gain > 0 else (self.first(0), 0.0)


def _best(
    nodes: Sequence[int], reach: Sequence[float], price: Callable[[int], float]
) -> tuple[list[int], float]:
    """Return the nodes whose tokens less their price are most, in order, and that gain."""
    # A node follows its parent: its reach is never larger, and the sort is stable.
    order = sorted(range(len(nodes)), key=lambda place: -reach[place])
    tokens, size, most = 0.0, 0, 0.0
    for count, place in enumerate(order, start=1):
        tokens += reach[place]
        gain = tokens - price(count)
        if gain > most:
            size, most = count, gain
    return sorted(nodes[place] for place in order[:size]), most


def reaches(draft: Draft, probabilities: Sequence[float]) -> list[float]:
    """Return each node's reach, from its probability if its parent is right."""
    found: list[float] = []
    for parent, probability in zip(draft.parents, probabilities, strict=True):
        found.append(probability * (1.0 if parent < 0 else found[parent]))
    return found


def scale_siblings(draft: Draft, probabilities: Sequence[float]) -> list[float]:
    """Return probabilities scaled so that siblings' sum to at most 1: at most one is right."""
    sums: dict[int, float] = {}
    for parent, probability in zip(draft.parents, probabilities, strict=True):
        sums[parent] = sums.get(parent, 0.0) + probability
    return [
        probability / max(1.0, sums[parent])
        for parent, probability in zip(draft.parents, probabilities, strict=True)
    ]


class TreeBuilder:
    """A tree that grows node by node; equal siblings become one."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        # Of each node, if its parent is right.
        self.confidence: list[float] = []
        self._nodes: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, confidence: float) -> int:
        """Return the node of a token after `parent`, new or old; keep the larger confidence."""
        node = self._nodes.get((parent, token))
        if node is None:
            node = self._nodes[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
            self.confidence.append(min(confidence, 1.0))
        else:
            self.confidence[node] = max(self.confidence[node], min(confidence, 1.0))
        return node

    def graft(self, draft: Draft, confidence: Sequence[float]) -> list[int]:
        """Add a draft's nodes, with a confidence for each; return their nodes in this tree."""
        places: list[int] = []
        for token, parent, value in zip(draft.tokens, draft.parents, confidence, strict=True):
            places.append(self.add(-1 if parent < 0 else places[parent], token, value))
        return places

    def best(self, limit: int, least: float = 0.0) -> list[int]:
        """Return at most `limit` nodes of at least the reach `least`, by falling reach.

        Among equals those added first win. A node comes before its children.
        """
        whole = self.draft(range(len(self)), "")
        reach = reaches(whole, whole.confidence)
        likely = (node for node in range(len(reach)) if reach[node] >= least)
        return heapq.nsmallest(limit, likely, key=lambda node: (-reach[node], node))

    def draft(self, nodes: Sequence[int], source: str, match_length: int = 0) -> TreeDraft:
        """Return the tree of these nodes, in this order; siblings' confidences sum to at most 1."""
        scaled = scale_siblings(Draft(tuple(self.tokens), tuple(self.parents)), self.confidence)
        places = {node: place for place, node in enumerate(nodes)}
        return TreeDraft(
            tuple(self.tokens[node] for node in nodes),
            tuple(places.get(self.parents[node], -1) for node in nodes),
            source,
            match_length,
            tuple(scaled[node] for node in nodes),
        )
