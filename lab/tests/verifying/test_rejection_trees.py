"""Rejection sampling over trees: several draws at a node, merged siblings, the k likeliest tokens."""

import itertools
from collections import Counter

import numpy as np
import pytest
from decoding.flight import known_state
from enumeration import distance, enumerate_law, extended, laws, plain_law
from toy_drafters import ScriptedDrafter, ToyDistributions, hashed_law

from akunu_lab.verifying.chance import KeyedChance
from akunu_lab.verifying.draft_law import DraftLaw, certain, draft_law
from akunu_lab.verifying.law_loop import decode_by_law, law_budget
from akunu_lab.verifying.verifiers import RejectionVerifier
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft

EXACT = 1e-12


class Tree:
    """A prefix tree built draw by draw, remembering each draw's node and row."""

    def __init__(self):
        self.tokens, self.parents, self.draws, self.rows, self.paths = [], [], [], [], [()]

    def add(self, parent, token, row):
        siblings = list(zip(self.tokens, self.parents, strict=True))
        node = len(siblings)
        if (token, parent) in siblings:
            node = siblings.index((token, parent))
        else:
            self.tokens.append(token)
            self.parents.append(parent)
            self.paths.append((*self.paths[parent + 1], token))
        self.draws.append(node)
        self.rows.append(row)
        return node

    @property
    def draft(self):
        return Draft(tuple(self.tokens), tuple(self.parents))

    def ordered(self):
        pairs = tuple((node, row) for row, node in enumerate(self.draws))
        return DraftLaw(np.stack(self.rows), pairs, ordered=True)

    def counted(self):
        """What a drafter knows that merged equal siblings: how often, not in which order."""
        counts = Counter(self.draws)
        rows = np.stack([self.rows[self.draws.index(node)] for node in range(len(self.tokens))])
        pairs = [(node, node) for node in range(len(self.tokens)) for _ in range(counts[node])]
        # The worst order there is to try them in, were it not left to chance.
        pairs.sort(key=lambda pair: -rows[pair[1]][self.tokens[pair[0]]])
        return DraftLaw(rows, tuple(pairs), ordered=False)

    def verify(self, branch, p, law=None):
        rows = np.stack([p(path) for path in self.paths])
        verifier = RejectionVerifier(branch)
        verdict = verifier.verify(self.draft, law or self.ordered(), rows, 0)
        return verdict.output(self.draft)


def from_chains(branch, q, counts, depth):
    """A prefix tree from `counts` chains drawn independently from q."""
    tree = Tree()
    for _ in range(counts):
        node, path = -1, ()
        for _ in range(depth):
            row = q(path)
            token = branch.choose(row)
            node, path = tree.add(node, token, row), (*path, token)
    return tree


def assert_exact(run, p, length):
    found = enumerate_law(run)
    assert abs(sum(found.values()) - 1) < EXACT
    expected = plain_law(p, (), length)
    assert distance(extended(found, p, (), length), expected) < EXACT


@pytest.mark.parametrize("form", [Tree.ordered, Tree.counted])
@pytest.mark.parametrize(
    ("vocabulary", "chains", "depth"),
    [(2, 2, 1), (2, 3, 2), (2, 2, 3), (3, 2, 2), (3, 4, 1), (4, 3, 1)],
)
@pytest.mark.parametrize("seed", [1])
def test_chains_merged_into_a_tree(form, vocabulary, chains, depth, seed):
    p, q = hashed_law(vocabulary, seed), hashed_law(vocabulary, seed + 100)

    def run(branch):
        tree = from_chains(branch, q, chains, depth)
        assert len(tree.tokens) <= 6
        return tree.verify(branch, p, form(tree))

    assert_exact(run, p, depth + 1)


@pytest.mark.parametrize("form", [Tree.ordered, Tree.counted])
def test_edges_with_three_draws(form):
    for (first, p_row), (second, q_row) in itertools.product(laws(3).items(), repeat=2):

        def run(branch, p_row=p_row, q_row=q_row):
            tree = from_chains(branch, lambda _: q_row, 3, 1)
            return tree.verify(branch, lambda _: p_row, form(tree))

        assert_exact(run, lambda _, p_row=p_row: p_row, 2)
        if first == second:
            # Equal distributions: the first draw is always accepted.
            assert all(len(tokens) == 2 for tokens in enumerate_law(run))


def test_more_draws_accept_more():
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    p, q = (lambda _: rows[0]), (lambda _: rows[1])
    shares = []
    for draws in (1, 2, 3, 4):
        law = enumerate_law(lambda branch, n=draws: from_chains(branch, q, n, 1).verify(branch, p))
        shares.append(sum(weight for tokens, weight in law.items() if len(tokens) == 2))
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.05


@pytest.mark.parametrize(("vocabulary", "draws"), [(3, 2), (3, 3), (4, 3)])
def test_draws_without_replacement(vocabulary, draws):
    """Each draw's q leaves out the tokens drawn before; the order drawn is the order tried."""
    p, q = hashed_law(vocabulary, 2), hashed_law(vocabulary, 31)

    def run(branch):
        tree = Tree()
        row = q(()).copy()
        for _ in range(draws):
            if row.sum() <= 0:
                break
            row = row / row.sum()
            token = branch.choose(row)
            tree.add(-1, token, row)
            row = row.copy()
            row[token] = 0
        return tree.verify(branch, p)

    assert_exact(run, p, 2)


def test_draws_of_two_drafters():
    p = hashed_law(3, 8)
    first, second = hashed_law(3, 21)(()), hashed_law(3, 22)(())

    def run(branch):
        tree = Tree()
        for row in (first, second, first):
            tree.add(-1, branch.choose(row), row)
        return tree.verify(branch, p)

    assert_exact(run, p, 2)


def test_draws_until_two_differ():
    """How many draws there are may depend on those before, when they are tried in order."""
    p, q = hashed_law(3, 8), hashed_law(3, 22)(())

    def run(branch):
        tree = Tree()
        while len(tree.draws) < 4 and len(tree.tokens) < 2:
            tree.add(-1, branch.choose(q), q)
        return tree.verify(branch, p)

    assert_exact(run, p, 2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_likeliest_tokens_are_certain(count):
    """The k likeliest of q at each node, two levels: one-hot draws, in any order."""
    p, q = hashed_law(4, 3), hashed_law(4, 13)
    for order in (1, -1):

        def run(branch, order=order):
            tree = Tree()
            for token in np.argsort(-q(()), kind="stable")[:count][::order]:
                node = tree.add(-1, int(token), None)
                tree.add(node, int(q((int(token),)).argmax()), None)
            return tree.verify(branch, p, certain(tree.draft))

        assert_exact(run, p, 3)
        accepted = sum(weight for tokens, weight in enumerate_law(run).items() if len(tokens) > 1)
        children = np.argsort(-q(()), kind="stable")[:count]
        assert accepted == pytest.approx(p(())[children].sum())


# What biases the law: each of these must fail.


def bias(run, p, length):
    return distance(extended(enumerate_law(run), p, (), length), plain_law(p, (), length))


def test_merging_equal_siblings_without_counting_them_biases():
    p, q = np.array([0.5, 0.4, 0.1]), np.array([0.1, 0.2, 0.7])

    def run(branch):
        tree = from_chains(branch, lambda _: q, 3, 1)
        rows = np.stack([q] * len(tree.tokens))
        once = DraftLaw(rows, tuple((n, n) for n in range(len(tree.tokens))), ordered=True)
        return tree.verify(branch, lambda _: p, once)

    assert bias(run, lambda _: p, 2) > 1e-3


def test_trying_merged_siblings_in_the_order_of_their_probability_biases():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])

    def run(branch):
        tree = from_chains(branch, lambda _: q, 2, 1)
        law = tree.counted()
        sorted_draws = tuple(sorted(law.draws, key=lambda draw: -q[tree.tokens[draw[0]]]))
        return tree.verify(branch, lambda _: p, DraftLaw(law.rows, sorted_draws, ordered=True))

    assert bias(run, lambda _: p, 2) > 1e-3


def test_the_likeliest_tokens_taken_for_draws_bias():
    p, q = hashed_law(3, 3)(()), hashed_law(3, 13)(())

    def run(branch):
        tree = Tree()
        for token in np.argsort(-q)[:2]:
            tree.add(-1, int(token), q)
        return tree.verify(branch, lambda _: p)

    assert bias(run, lambda _: p, 2) > 1e-3


# What drafters say of their draws.


class Drawn(ScriptedDrafter):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def draft_probabilities(self):
        return self.rows


class Ordered(Drawn):
    order = (0, 1, 0)

    def draw_order(self):
        return self.order


class Counted(Drawn):
    counts = (2, 1)

    def draw_counts(self):
        return self.counts


SIBLINGS = Draft((1, 2), (-1, -1), "siblings")


def test_laws_of_drafters():
    rows = np.full((2, 3), 1 / 3)
    assert draft_law(ScriptedDrafter(), SIBLINGS) == certain(SIBLINGS)
    assert draft_law(Drawn(None), SIBLINGS) == certain(SIBLINGS)
    assert draft_law(Drawn(None), Draft.empty()).draws == ()
    plain = draft_law(Drawn(rows), SIBLINGS)
    assert (plain.draws, plain.ordered) == (((0, 0), (1, 1)), False)
    counted = draft_law(Counted(rows), SIBLINGS)
    assert draft_law(Drafter.of(Counted(rows)), SIBLINGS).draws == ((0, 0), (0, 0), (1, 1))
    assert (counted.draws, counted.ordered) == (((0, 0), (0, 0), (1, 1)), False)
    ordered = draft_law(Ordered(np.full((3, 3), 1 / 3)), SIBLINGS)
    assert (ordered.draws, ordered.ordered) == (((0, 0), (1, 1), (0, 2)), True)


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [
        (Drawn, 1, None),
        (Drawn, 3, None),
        (Ordered, 2, (0, 1, 0)),
        (Ordered, 2, (0, 0)),
        (Ordered, 3, (0, 1, 2)),
        (Counted, 2, (2, 0)),
        (Counted, 2, (2,)),
    ],
)
def test_draws_that_do_not_fit_are_named(kind, rows, said):
    drafter = kind(np.full((rows, 3), 1 / 3))
    drafter.order = drafter.counts = said
    with pytest.raises(ContractError, match="siblings"):
        draft_law(drafter, SIBLINGS)


def test_a_tree_drawn_for_rejection_is_verified_whole():
    """How much is drawn is decided before."""

    class Certain(ScriptedDrafter):
        def draft_probabilities(self):
            return None

    class Trees(ToyDistributions):
        def takes_tree(self, _draft):
            return True

    target = Trees([1, 2], lambda _: np.full(8, 1 / 8))
    drafter = Certain([Draft((1, 2), (-1, -1), "x")])
    rule = RejectionVerifier(KeyedChance(1))
    budget = law_budget(
        known_state({2: 1.0, 9: 1.0}), context=2, target=target, drafter=drafter, rule=rule
    )
    (step, *_) = decode_by_law(
        target, drafter, 2, num_draft_tokens=2, max_tokens=4, budget=budget, rule=rule, position=2
    )
    assert (step.draft.tokens, step.draft.parents) == ((1, 2), (-1, -1))
