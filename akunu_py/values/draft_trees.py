"""Trees of drafted tokens: their paths, their likeliest part, and one tree from several drafts.

A node's *reach* is the probability that the target's own text passes through it: the product of the
probabilities on its path. The expected number of tokens gained by a tree is the sum of its nodes'
reaches. A child's reach is at most its parent's, so the k nodes of largest reach form the best
subtree of k nodes.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence

from akunu_py.values.types import Draft


def depths(draft: Draft) -> list[int]:
    """Return the number of ancestors of each node."""
    found: list[int] = []
    for parent in draft.parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


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


def subtree(draft: Draft, root: int) -> list[int]:
    """Return a node and its descendants, in order."""
    inside = {root}
    for node in range(root + 1, len(draft)):
        if draft.parents[node] in inside:
            inside.add(node)
    return sorted(inside)


def walk(draft: Draft, chosen: Iterable[int]) -> Iterator[tuple[Sequence[int], int | None]]:
    """Follow tokens through a tree: yield the nodes drafted for each token, and the matching one.

    The match is None for a token that was not drafted there. Nothing is yielded after it, nor after
    a leaf.
    """
    if draft.is_chain:
        for node, (token, choice) in enumerate(zip(draft.tokens, chosen, strict=False)):
            yield (node,), node if token == choice else None
            if token != choice:
                return
        return
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.parents):
        children.setdefault(parent, []).append(node)
    here = -1
    for choice in chosen:
        siblings = children.get(here)
        if siblings is None:
            return
        taken = next((node for node in siblings if draft.tokens[node] == choice), None)
        yield siblings, taken
        if taken is None:
            return
        here = taken


def part(draft: Draft, nodes: Collection[int]) -> Draft:
    """Return the tree of these nodes, in order; nodes whose parent is missing become roots."""
    kept = sorted(nodes)
    if len(kept) == len(draft):
        return draft
    places = {node: place for place, node in enumerate(kept)}
    return Draft(
        tuple(draft.tokens[node] for node in kept),
        tuple(places.get(draft.parents[node], -1) for node in kept),
        draft.source,
        draft.match_length,
        tuple(draft.confidence[node] for node in kept) if draft.confidence else (),
        tuple(draft.origins[node] for node in kept) if draft.origins else (),
        places=tuple(draft.places[node] for node in kept) if draft.places else (),
        drawn=sum(node >= len(draft) - draft.drawn for node in kept),
    )


def best_chain(draft: Draft) -> Draft:
    """Return the root-to-leaf path with the most expected tokens by the draft's confidence.

    Without confidence that is the longest path. Among equals the one whose leaf comes first wins.
    """
    if draft.is_chain:
        return draft
    gathered: list[float] = []
    for parent, reach in zip(
        draft.parents, reaches(draft, draft.confidence or (1.0,) * len(draft)), strict=True
    ):
        gathered.append(reach + (0.0 if parent < 0 else gathered[parent]))
    node = gathered.index(max(gathered))
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = draft.parents[node]
    return part(draft, path)


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

    def draft(self, nodes: Sequence[int], source: str, match_length: int = 0) -> Draft:
        """Return the tree of these nodes, in this order; siblings' confidences sum to at most 1."""
        scaled = scale_siblings(Draft(tuple(self.tokens), tuple(self.parents)), self.confidence)
        places = {node: place for place, node in enumerate(nodes)}
        return Draft(
            tuple(self.tokens[node] for node in nodes),
            tuple(places.get(self.parents[node], -1) for node in nodes),
            source,
            match_length,
            tuple(scaled[node] for node in nodes),
        )


def merge(drafts: Iterable[Draft], limit: int, source: str) -> Draft:
    """Return the prefix tree of several drafts, cut to the `limit` nodes of largest reach.

    Every prefix of it is the best tree of its size. A draft without confidence counts as certain.
    """
    builder = TreeBuilder()
    longest = 0
    for draft in drafts:
        builder.graft(draft, draft.confidence or (1.0,) * len(draft))
        longest = max(longest, draft.match_length)
    return builder.draft(builder.best(limit), source, longest)
