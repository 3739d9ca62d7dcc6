"""How trees grow, and which part of one pays, against all parts by brute force.

Mutants that these tests kill, by hand: reach without the parent's; siblings not shared out; equal
siblings kept apart; the smaller confidence kept; nodes in the order they were added. Of the part that
pays: with a step in flight the first level counted as rows of the pass; a first token kept below
which nothing pays; the check's price left out or counted for each child; reach not taken relative to
the first token; a tree cut to the nodes that come first.
"""

from itertools import combinations

import pytest
from decoding.flight import UNIT_S, budget_of, known_state, observe, step
from drafted_trees import trees
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, generate, prompt_of, tiny

from akunu_lab.drafting.draft_trees import TreeBuilder, TreeDraft, reaches, scale_siblings
from akunu_py.api import Draft, TreePrices
from akunu_py.decoding.budget import Budget
from akunu_py.decoding.loop import decode
from akunu_py.drafting import PlainDrafter
from akunu_py.models.passes.tree_trials import Trees
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

TREE = Draft((5, 6, 7, 5, 8, 9), (-1, -1, 0, 0, 1, 4), "t", 3, (0.5, 0.4, 0.9, 0.1, 0.5, 0.5))
BUSHY = TreeDraft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 0, 1, 2), "", 0, (0.6, 0.35, 0.9, 0.05, 0.8, 0.9))


def closed_parts(draft):
    for size in range(len(draft) + 1):
        for nodes in combinations(range(len(draft)), size):
            if all(draft.parents[node] in (-1, *nodes) for node in nodes):
                yield nodes


def cut(draft, price, checking=None):
    """Return the nodes that the rule keeps of a tree of distinct tokens, and their gain."""
    whole = TreeDraft(tuple(range(len(draft))), draft.parents, "t", 0, draft.confidence)
    part, gain = whole.cut_tree(TreePrices(draft.confidence, price, checking))
    return part.tokens, gain


def test_reaches_and_siblings():
    assert reaches(TREE, TREE.confidence) == pytest.approx([0.5, 0.4, 0.45, 0.05, 0.2, 0.1])
    draft = Draft((1, 2, 3, 4), (-1, -1, 0, 0), "", 0, (0.9, 0.9, 0.3, 0.3))
    assert scale_siblings(draft, draft.confidence) == pytest.approx([0.5, 0.5, 0.3, 0.3])


@given(trees(), st.floats(0.0, 0.6), st.floats(0.5, 2.0))
def test_alone_it_is_the_best_of_all_parts(draft, slope, power):
    def price(rows):
        return slope * rows**power

    reach = reaches(draft, scale_siblings(draft, draft.confidence))

    def gain(nodes):
        return sum(reach[node] for node in nodes) - (price(len(nodes)) if nodes else 0.0)

    nodes, most = cut(draft, price)
    assert nodes in closed_parts(draft)
    assert most == pytest.approx(gain(nodes))
    assert most == pytest.approx(max(gain(nodes) for nodes in closed_parts(draft)))


@given(trees(7), st.floats(0.0, 0.6), st.floats(0.0, 0.3))
def test_in_flight_it_is_the_best_of_all_parts(draft, slope, checking):
    """The pass has the right first token's row, as a plain step has, and the nodes below it."""

    def price(rows):
        return slope * rows

    chances = scale_siblings(draft, draft.confidence)
    reach = reaches(draft, chances)

    def gain(nodes):
        if not nodes:
            return 0.0
        found = -checking
        for root in (node for node in nodes if draft.parents[node] < 0):
            below = [node for node in nodes if first_of(draft, node) == root != node]
            found += sum(reach[node] for node in below) - chances[root] * price(len(below))
        return found

    kept, most = cut(draft, price, checking)
    assert kept in closed_parts(draft)
    assert most == pytest.approx(gain(kept))
    assert most == pytest.approx(max(gain(nodes) for nodes in closed_parts(draft)))
    # What ends the pipeline brings more than that.
    for root in (node for node in kept if draft.parents[node] < 0):
        assert any(draft.parents[node] == root for node in kept)


def first_of(draft, node):
    while draft.parents[node] >= 0:
        node = draft.parents[node]
    return node


@pytest.mark.parametrize(
    ("slope", "expected"),
    [(0.02, (0, 1, 2, 3, 4, 5)), (0.3, (0, 1, 2, 5)), (0.4, (0, 2, 5)), (0.7, ())],
)
def test_the_dearer_a_row_the_narrower_the_tree(slope, expected):
    """Down to a chain, and to nothing."""
    assert cut(BUSHY, lambda rows: slope * rows)[0] == expected


def merged(drafts, limit=9):
    builder = TreeBuilder()
    for draft in drafts:
        builder.graft(draft, draft.confidence or (1.0,) * len(draft))
    return builder.draft(builder.best(limit), "tree")


def test_drafts_become_a_prefix_tree():
    drafts = [
        Draft.chain((1, 2, 3), "a", 4, (0.6, 0.9, 0.9)),
        Draft.chain((1, 4), "b", 2, (0.5, 0.05)),
        Draft.chain((5,), "c", 0, (0.3,)),
    ]
    tree = merged(drafts)
    assert dict(zip(paths(tree), tree.confidence, strict=True)) == pytest.approx(
        {(1,): 0.6, (1, 2): 0.9, (1, 2, 3): 0.9, (5,): 0.3, (1, 4): 0.05}
    )
    # The first nodes of the tree are the best tree of that size.
    assert paths(tree) == [(1,), (1, 2), (1, 2, 3), (5,), (1, 4)]
    assert merged(drafts, 2) == tree.first(2)
    assert merged([Draft.chain((1, 2)), Draft.chain((1, 3))]).confidence == (1.0, 0.5, 0.5)
    assert merged([]) == TreeDraft.empty("tree")
    assert merged(drafts, 0).tokens == ()


def paths(draft):
    found = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=5), st.integers(0, 12))
def test_a_merged_tree_holds_the_drafts_and_is_the_best_of_its_size(chains, limit):
    drafts = [Draft.chain(chain, "", 0, (0.7,) * len(chain)) for chain in chains]
    whole = merged(drafts, 99)
    expected = {tuple(chain[:end]) for chain in chains for end in range(1, len(chain) + 1)}
    assert set(paths(whole)) == expected
    best = merged(drafts, limit)
    assert len(best) == min(limit, len(whole))
    reach = reaches(whole, whole.confidence)
    most = max(
        sum(reach[node] for node in nodes)
        for nodes in closed_parts(whole)
        if len(nodes) == len(best)
    )
    assert sum(reaches(best, best.confidence)) == pytest.approx(most)


# In a budget.


@pytest.mark.parametrize(
    ("slope", "expected"), [(0.02, BUSHY.tokens), (0.3, (1, 2, 3, 6)), (0.4, (1, 3, 6)), (0.8, ())]
)
def test_the_budget_keeps_the_part_that_pays(slope, expected):
    budget = budget_of(known_state({1 + rows: 1 + slope * rows for rows in range(1, 9)}))
    budget.allowance = 0.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    assert budget.trim(BUSHY).tokens == expected


def test_with_a_step_in_flight_the_first_level_is_free_and_one_branch_is_paid_for():
    """At 0.4 a row the two below 1 (0.9 and 0.81) and that below 2 (0.8) pay; 4 (0.05) does not."""
    budget = budget_of(known_state({1 + rows: 1 + 0.4 * rows for rows in range(1, 9)}))
    budget.allowance = -100.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    observe(budget, step(0, 0, UNIT_S), (7,))
    assert budget.flight.in_flight
    assert budget.trim(BUSHY).tokens == (1, 2, 3, 5, 6)
    # The part gains 0.6 * (1.71 - 0.8) + 0.35 * (0.8 - 0.4) = 0.686 tokens, less the comparison.
    for price, kept in ((0.6, 5), (0.7, 0)):
        budget.costs.check_cost = lambda _, price=price: 1.0 + price
        assert len(budget.trim(BUSHY)) == kept


@pytest.mark.parametrize(("slope", "asked"), [(0.02, 6), (0.3, 4), (0.4, 0), (0.8, 0)])
@pytest.mark.parametrize("taken", [True, False])
def test_a_target_is_asked_of_what_pays_alone(slope, asked, taken):
    """Of a whole tree, of a narrower one, not at all of a chain or of nothing."""

    class Asked:
        sizes = ()

        def takes_tree(self, draft):
            self.sizes += (len(draft),)
            return taken

    target = Asked()
    state = known_state({1 + rows: 1 + slope * rows for rows in range(1, 9)})
    budget = Budget(state, context=10, target=target)
    budget._allowance = 0.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    found = budget.trim(BUSHY)
    assert target.sizes == ((asked,) if asked else ())
    if asked and not taken:
        assert found.is_chain
        assert found.tokens == (1, 3, 6)
    else:
        free = Budget(state, context=10)
        free._allowance = 0.0
        free._acceptance.probabilities = budget._acceptance.probabilities
        assert found.tokens == free.trim(BUSHY).tokens


@pytest.mark.parametrize(("slope", "tries"), [(0.05, 1), (4.0, 0)])
def test_no_pass_is_spent_on_a_try_where_no_tree_pays(monkeypatch, slope, tries):
    """Passes of a whole reply on a model: those of the steps, and those of a try if there is one."""
    size, prompt = 24, prompt_of(9)
    model = tiny()
    session = Session(model, context=200)
    plain = generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=size)
    wrong = [(token + 1) % VOCABULARY for token in plain]
    # Right token and wrong one at each place, three deep.
    forks = [
        TreeDraft(
            tuple(token for pair in zip(wrong[at : at + 3], plain[at : at + 3], strict=True)
                  for token in pair),
            (-1, -1, 1, 1, 3, 3), "fork", 0, (0.45, 0.5) * 3,
        )
        for at in range(size - 3)
    ]  # fmt: skip

    class Forks(PlainDrafter):
        seen = -len(prompt)

        def observe(self, tokens):
            self.seen += len(tokens)

        def propose(self, limit):
            return forks[self.seen] if limit >= 6 and self.seen < len(forks) else Draft.empty()

    tried = []
    whole = Trees._try
    monkeypatch.setattr(Trees, "_try", lambda self, *args: tried.append(1) or whole(self, *args))
    curve = {1 + rows: 1 + slope * rows for rows in range(1, 9)}
    sampler = Sampler(TransformChain.from_config(GenerationConfig(), VOCABULARY), 7, VOCABULARY)
    session.begin(prompt, sampler, size)
    budget = Budget(known_state(curve), context=len(prompt), target=session, pipelined=False)
    monkeypatch.setattr(budget, "_measure", lambda *_: 1.0)
    budget._allowance = -100.0
    drafter = Forks()
    drafter.observe(prompt)
    passes = []
    feed = session.feed
    monkeypatch.setattr(session, "feed", lambda rows: passes.append(1) or feed(rows))
    steps = list(
        decode(session, drafter, prompt[-1], num_draft_tokens=8, max_tokens=size, budget=budget)
    )
    assert [token for step in steps for token in step.token_ids] == plain
    assert len(tried) == tries
    if not tries:
        assert len(passes) == len(steps) == size
