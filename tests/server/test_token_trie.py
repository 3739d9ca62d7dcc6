"""The tree of token ids does what a plain dictionary does, and finds what is nearest."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from akunu_py.server.token_trie import TokenTrie, common_length

KEYS = st.lists(st.integers(0, 2), max_size=7).map(tuple)


class AgainstADictionary(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.trie = TokenTrie()
        self.plain = {}
        self.count = 0

    @rule(key=KEYS)
    def put(self, key):
        self.count += 1
        assert self.trie.put(key, self.count) == self.plain.get(key)
        self.plain[key] = self.count

    @rule(key=KEYS)
    def pop(self, key):
        assert self.trie.pop(key) == self.plain.pop(key, None)

    @rule(key=KEYS)
    def get(self, key):
        assert self.trie.get(key) == self.plain.get(key)

    @rule(key=KEYS)
    def nearest(self, key):
        found = list(self.trie.nearest(key))
        expected = [(common_length(kept, key), value) for kept, value in self.plain.items()]
        assert sorted(found) == sorted(expected)
        lengths = [length for length, _ in found]
        assert lengths == sorted(lengths, reverse=True)

    @invariant()
    def every_node_is_needed(self):
        nodes = list(self.trie._root.children.values())
        while nodes:
            node = nodes.pop()
            assert node.edge
            assert node.value is not None or len(node.children) > 1
            assert all(first == child.edge[0] for first, child in node.children.items())
            nodes += node.children.values()


TestAgainstADictionary = AgainstADictionary.TestCase
