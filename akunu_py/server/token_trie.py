"""A radix tree over token ids: which kept sequences share the longest beginning with a new one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Value = TypeVar("_Value")
_Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Node(Generic[_Value]):
    """A place in the tree; `edge` leads to it from its parent, and is empty only at the root."""

    edge: _Tokens
    value: _Value | None = None
    children: "dict[int, _Node[_Value]]" = field(default_factory=dict)

    def values(self) -> Iterator[_Value]:
        """Yield the values here and below."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                yield node.value
            nodes += node.children.values()


class TokenTrie(Generic[_Value]):
    """Values by sequences of token ids; a beginning that several keys share is kept once.

    None is not a value.
    """

    def __init__(self) -> None:
        self._root: _Node[_Value] = _Node(())

    def put(self, tokens: Sequence[int], value: _Value) -> _Value | None:
        """Set the value of a key; return the one it had, or None."""
        key = tuple(tokens)
        node, depth = self._walk(key)[-1]
        if depth < len(key):
            child = node.children.get(key[depth])
            if child is not None:
                # The key leaves the edge to this child, or ends on it.
                shared = common_length(child.edge, key[depth:])
                middle: _Node[_Value] = _Node(child.edge[:shared])
                child.edge = child.edge[shared:]
                middle.children[child.edge[0]] = child
                node.children[key[depth]] = middle
                node, depth = middle, depth + shared
            if depth < len(key):
                leaf: _Node[_Value] = _Node(key[depth:])
                node.children[key[depth]] = leaf
                node = leaf
        before, node.value = node.value, value
        return before

    def get(self, tokens: Sequence[int]) -> _Value | None:
        """Return the value of a key, or None if there is none."""
        key = tuple(tokens)
        node, depth = self._walk(key)[-1]
        return node.value if depth == len(key) else None

    def pop(self, tokens: Sequence[int]) -> _Value | None:
        """Remove a key; return its value, or None if there is none."""
        key = tuple(tokens)
        nodes = self._walk(key)
        node, depth = nodes.pop()
        if depth < len(key) or node.value is None:
            return None
        value, node.value = node.value, None
        if nodes and not node.children:
            parent = nodes.pop()[0]
            del parent.children[node.edge[0]]
            node = parent
        if node is not self._root and node.value is None and len(node.children) == 1:
            # Nothing branches here any more.
            (child,) = node.children.values()
            node.edge += child.edge
            node.value, node.children = child.value, child.children
        return value

    def nearest(self, tokens: Sequence[int]) -> Iterator[tuple[int, _Value]]:
        """Yield each value with the number of tokens that its key shares with the beginning.

        The largest numbers come first. The tree must not change meanwhile.
        """
        key = tuple(tokens)
        nodes = self._walk(key)
        node, depth = nodes[-1]
        done = node.children.get(key[depth]) if depth < len(key) else None
        if done is not None:
            shared = depth + common_length(done.edge, key[depth:])
            yield from ((shared, value) for value in done.values())
        for node, depth in reversed(nodes):
            if node.value is not None:
                yield depth, node.value
            for child in node.children.values():
                if child is not done:
                    yield from ((depth, value) for value in child.values())
            done = node

    def _walk(self, key: _Tokens) -> list[tuple[_Node[_Value], int]]:
        """Return the nodes on the way of a key, from the root, with the tokens up to each."""
        node, depth = self._root, 0
        found = [(node, depth)]
        while depth < len(key):
            child = node.children.get(key[depth])
            if child is None or key[depth : depth + len(child.edge)] != child.edge:
                break
            node, depth = child, depth + len(child.edge)
            found.append((node, depth))
        return found


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences share at their beginning."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
