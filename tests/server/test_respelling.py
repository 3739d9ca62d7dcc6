"""A text that comes back gets the ids that it was made of; the tree of ids that finds them."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from toy_engine import CONTROL, END, TEXTS, USER, ToyTokenizer

from akunu_py.server.respelling import Respelling
from akunu_py.server.token_trie import TokenTrie, common_length

TOKENIZER = ToyTokenizer()
A, B, C, D = (TEXTS.index(letter) for letter in "abcd")
AB, BC, CD = (TEXTS.index(pair) for pair in ("ab", "bc", "cd"))


def longest(prompt, *earlier):
    return Respelling(TOKENIZER).longest(prompt, earlier)


def test_equal_text_gets_its_earlier_ids():
    assert longest([USER, AB, CD, END, D], [USER, A, BC, D, END]) == (USER, A, BC, D, END, D)


def test_ids_go_on_where_both_texts_end_at_the_same_place():
    # "abc" against "abd": the b's of both end together, the third letters differ.
    assert longest([AB, C, D], [A, B, D]) == (A, B, C, D)
    assert longest([AB, C], [A, BC, D]) == (A, BC)


def test_a_text_that_ends_within_an_id_is_left_alone():
    assert longest([AB], [A]) == (AB,)
    assert longest([AB], [A, BC]) == (AB,)


def test_of_several_the_longest_wins():
    assert longest([AB, CD], [A, B], [A, B, C, D]) == (A, B, C, D)


def test_written_out_control_tokens_stay_text():
    class Writes(ToyTokenizer):
        def token_texts(self):
            return [*TEXTS[: len(CONTROL) - 1], "ab", *TEXTS[len(CONTROL) :]]

    # The vocabulary writes its end token as "ab", but that is no text.
    respelling = Respelling(Writes())
    assert respelling.longest([AB, C], [[END, C]]) == (AB, C)
    assert respelling.longest([END, C], [[AB, C]]) == (END, C)


def test_byte_tokens_equal_nothing_else():
    class Bytes(ToyTokenizer):
        def token_texts(self):
            return [*TEXTS[:A], "<0x0A>", *TEXTS[B:CD], "<0x0A>", *TEXTS[CD + 1 :]]

    assert Respelling(Bytes()).longest([A], [[CD]]) == (A,)


IDS = st.lists(st.sampled_from([USER, END, A, B, C, AB, BC]), max_size=12)


@given(IDS, IDS)
def test_the_text_never_changes(prompt, earlier):
    found = longest(prompt, earlier)
    written = TOKENIZER.decode(found, with_control=True)
    assert written == TOKENIZER.decode(prompt, with_control=True)
    assert [i for i in found if i < len(CONTROL)] == [i for i in prompt if i < len(CONTROL)]


@given(st.text("abcdefg .", max_size=30), st.randoms(use_true_random=False))
def test_any_spelling_of_the_same_text_is_found(text, random):
    spelled, place = [], 0
    while place < len(text):
        size = 2 if random.random() < 0.5 and text[place : place + 2] in TEXTS else 1
        spelled.append(TEXTS.index(text[place : place + size]))
        place += size
    assert longest(TOKENIZER.encode(text)[1:], spelled) == tuple(spelled)


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
