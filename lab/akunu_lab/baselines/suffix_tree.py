"""A suffix tree of bounded depth with counts, grown token by token.

Every string of at most `depth` tokens that occurred at least twice has a node. A string that
occurred once is a leaf that points into the text, and becomes a node when it occurs again. So only
repeated text takes memory.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

_END = -1
"""Follower of the last token of a finished text."""


class Node:
    """A string, with the number of its occurrences and its followers.

    `best` is the child with the highest count, among equals the last one to get there. It is None
    for a leaf, whose only occurrence continues at `position` of the tree's text. `children` is set
    once there are two: most strings have one child and need no dict.
    """

    __slots__ = ("best", "children", "count", "position", "token")

    def __init__(self, token: int, position: int) -> None:
        self.token = token
        self.count = 1
        self.position = position
        self.best: Node | None = None
        self.children: dict[int, Node] | None = None


class SuffixTree:
    """A sequence of texts; the last one may still grow.

    `matched[p - 1]` is the node of the growing text's last p tokens, for every p for which they
    occurred before.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.text: list[int] = []
        self.root = Node(_END, 0)
        self.matched: list[Node] = []

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the growing text."""
        text, matched, most = self.text, self.matched, self.depth - 1
        for token in tokens:
            text.append(token)
            longer: list[Node] = []
            for parent in (self.root, *matched[:most]):
                best = parent.best
                if best is None:
                    parent.best = Node(token, len(text))
                    continue
                child = best
                if best.token != token:
                    if parent.children is None:
                        parent.children = {best.token: best}
                    known = parent.children.get(token)
                    if known is None:
                        new = parent.children[token] = Node(token, len(text))
                        if best.count == 1:
                            parent.best = new
                        continue
                    child = known
                if child.best is None:
                    self._expand(child)
                child.count += 1
                longer.append(child)
                if child.count >= best.count:
                    parent.best = child
            matched = longer
        self.matched = matched

    def finish(self) -> None:
        self.text.append(_END)
        self.matched = []

    def _expand(self, leaf: Node) -> None:
        """Give a leaf the follower of its only occurrence as a child."""
        if leaf.position < len(self.text) and self.text[leaf.position] != _END:
            leaf.best = Node(self.text[leaf.position], leaf.position + 1)

    def step(self, matched: Sequence[Node], token: int) -> list[Node]:
        """Return the nodes of another text's suffixes after `token`, without counting the token."""
        longer: list[Node] = []
        for parent in (self.root, *matched[: self.depth - 1]):
            if parent.best is None:
                self._expand(parent)
            child = parent.best
            if child is not None and child.token != token:
                child = None if parent.children is None else parent.children.get(token)
            if child is None:
                break
            longer.append(child)
        return longer

    def likeliest(self, node: Node) -> Iterator[tuple[int, float]]:
        """Yield the most frequent followers of a string in turn, with the path's probability."""
        probability = 1.0
        while (child := node.best) is not None:
            probability *= child.count / node.count
            yield child.token, probability
            node = child
        for token in islice(self.text, node.position, None):
            if token == _END:
                return
            yield token, probability
