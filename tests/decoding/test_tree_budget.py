"""Which part of a tree pays, against all its parts by brute force.

Mutants that these tests kill, by hand: with a step in flight the first level counted as rows of the
pass; a first token kept below which nothing pays; the check's price left out or counted for each
child; reach not taken relative to the first token; siblings not shared out; a tree cut to the
nodes that come first.

Of the budget: a tree's rows behind the step in flight counted as those of the whole; only the nodes
the target took counted as outcomes; a tree's outcomes taken at the first step; a depth taken for the
number of a node; a target asked of what is cut off; of the loop: a tree given to a target that does
not take it, or a target asked before the budget.
"""

from itertools import combinations

import pytest
from drafted_trees import trees
from flight import budget_of, observe
from hypothesis import given
from hypothesis import strategies as st
from test_budget_rule import UNIT_S, known_state, plain_step, step
from tiny_models import VOCABULARY, generate, prompt_of, tiny

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.decoding.tree_budget import paying_part
from akunu_py.drafting import PlainDrafter
from akunu_py.models.session import Session
from akunu_py.models.tree import Trees
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.testing import ScriptedDrafter, ToyTarget
from akunu_py.values.draft_trees import reaches, scale_siblings, subtree
from akunu_py.values.types import Draft, GenerationConfig

BUSHY = Draft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 0, 1, 2), "", 0, (0.6, 0.35, 0.9, 0.05, 0.8, 0.9))


def closed(draft):
    for size in range(len(draft) + 1):
        for nodes in combinations(range(len(draft)), size):
            if all(draft.parents[node] in (-1, *nodes) for node in nodes):
                yield nodes


@given(trees(), st.floats(0.0, 0.6), st.floats(0.5, 2.0))
def test_alone_it_is_the_best_of_all_parts(draft, slope, power):
    def price(rows):
        return slope * rows**power

    reach = reaches(draft, scale_siblings(draft, draft.confidence))

    def gain(nodes):
        return sum(reach[node] for node in nodes) - (price(len(nodes)) if nodes else 0.0)

    best = paying_part(draft, draft.confidence, price, in_flight=False)
    assert best.nodes in closed(draft)
    assert best.gain == pytest.approx(gain(best.nodes))
    assert best.gain == pytest.approx(max(gain(nodes) for nodes in closed(draft)))


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
            below = [node for node in subtree(draft, root)[1:] if node in nodes]
            found += sum(reach[node] for node in below) - chances[root] * price(len(below))
        return found

    best = paying_part(draft, draft.confidence, price, in_flight=True, checking=checking)
    assert best.nodes in closed(draft)
    assert best.gain == pytest.approx(gain(best.nodes))
    assert best.gain == pytest.approx(max(gain(nodes) for nodes in closed(draft)))
    # What ends the pipeline brings more than that.
    for root in (node for node in best.nodes if draft.parents[node] < 0):
        assert any(draft.parents[node] == root for node in best.nodes)


@pytest.mark.parametrize(
    ("slope", "expected"),
    [(0.02, (0, 1, 2, 3, 4, 5)), (0.3, (0, 1, 2, 5)), (0.4, (0, 2, 5)), (0.7, ())],
)
def test_the_dearer_a_row_the_narrower_the_tree(slope, expected):
    """Down to a chain, and to nothing."""
    best = paying_part(BUSHY, BUSHY.confidence, lambda rows: slope * rows, in_flight=False)
    assert best.nodes == expected


@pytest.mark.parametrize(
    ("slope", "expected"), [(0.02, BUSHY.tokens), (0.3, (1, 2, 3, 6)), (0.4, (1, 3, 6)), (0.8, ())]
)
def test_the_budget_keeps_the_part_that_pays(slope, expected):
    budget = budget_of(known_state({1 + rows: 1 + slope * rows for rows in range(1, 9)}))
    budget._allowance = 0.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    assert budget.trim(BUSHY).tokens == expected


def test_with_a_step_in_flight_the_first_level_is_free_and_one_branch_is_paid_for():
    """At 0.4 a row the two below 1 (0.9 and 0.81) and that below 2 (0.8) pay; 4 (0.05) does not."""
    budget = budget_of(known_state({1 + rows: 1 + 0.4 * rows for rows in range(1, 9)}))
    budget._allowance = -100.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    plain_step(budget)
    assert budget._in_flight
    assert budget.trim(BUSHY).tokens == (1, 2, 3, 5, 6)
    # The part gains 0.6 * (1.71 - 0.8) + 0.35 * (0.8 - 0.4) = 0.686 tokens, less the comparison.
    for price, kept in ((0.6, 5), (0.7, 0)):
        budget._costs.check_cost = lambda _, price=price: 1.0 + price
        assert len(budget.trim(BUSHY)) == kept


def test_where_no_part_pays_a_chain_probes():
    budget = budget_of(known_state({2: 1.9, 3: 2.9, 9: 8.9}))
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    cuts = {budget.trim(BUSHY).tokens for _ in range(20)}
    assert cuts == {(), (1, 3)}


def outcomes(acceptance):
    """By class of confidence, where there is one, and of depth."""
    return {
        (key[1], key[2]): tuple(cell)
        for key, cell in acceptance._tables[""].items()
        if len(key) == 4 and key[1] >= 0
    }


def test_all_children_of_an_accepted_node_are_outcomes():
    tree = Draft((1, 2, 3, 4), (-1, -1, 1, 1), "", 0, (0.9, 0.5, 0.7, 0.1))
    acceptance = Acceptance()
    acceptance.observe(tree, (2, 4))
    # By confidence, then depth: at the first level the second is right, at the next the last.
    assert outcomes(acceptance) == {
        (3, 0): (0.0, 1.0), (1, 0): (1.0, 1.0), (2, 1): (0.0, 1.0), (0, 1): (1.0, 1.0)
    }  # fmt: skip
    acceptance.observe(tree, (1, 4))
    assert outcomes(acceptance)[2, 1] == (0.0, 1.0)


def test_a_node_is_estimated_by_its_depth():
    acceptance = Acceptance()
    chain = Draft.chain((1, 2), "", 0, (0.5, 0.5))
    for _ in range(50):
        acceptance.recent = 0.5
        acceptance.observe(chain, (1, 9))
    acceptance.recent = 0.5
    first, second, below = acceptance.probabilities(
        Draft((1, 2, 3), (-1, -1, 0), "", 0, (0.5, 0.5, 0.5))
    )
    assert first == second > 0.8
    assert below < 0.2


@pytest.mark.parametrize(
    ("outputs", "seen"),
    [(((1, 3, 9),), (1, 3, 9)), (((1,), (3,), (6,)), (1, 3, 6)), (((1,), (9,)), (1, 9))],
)
def test_a_tree_not_verified_is_compared_with_what_came_instead(monkeypatch, outputs, seen):
    budget = budget_of(known_state({2: 9.0, 9: 90.0}))
    observed = []
    monkeypatch.setattr(
        Acceptance, "observe", lambda self, draft, chosen: observed.append((draft, tuple(chosen)))
    )
    assert not budget.trim(BUSHY).tokens
    for output in outputs:
        assert not observed
        observe(budget, step(0, 0, UNIT_S), output)
    assert observed == [(BUSHY, seen)]


class Choosy(ToyTarget):
    """Takes trees of an even number of nodes; counts what it was given."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.given = []

    def takes_tree(self, draft):
        assert not draft.is_chain
        return len(draft) % 2 == 0

    def choose(self, last, draft):
        self.given.append(draft)
        return super().choose(last, draft)


@pytest.mark.parametrize("budget", ["none", "cold", "eager"])
def test_a_target_is_given_no_tree_that_it_does_not_take(monkeypatch, budget):
    odd = Draft((0, 1, 2), (-1, -1, 1), "odd")
    even = Draft((0, 1), (-1, -1), "even")
    target = Choosy([1, 2], rule=lambda context: 1)
    eager = Budget(known_state({2: 1.0, 9: 1.0}), context=2, target=target)
    monkeypatch.setattr(eager, "_measure", lambda *_: 1.0)
    cold = Budget(BudgetState(), context=2, target=target)
    budget = {"none": None, "cold": cold, "eager": eager}[budget]
    drafter = ScriptedDrafter([odd, even, [1, 1], odd])
    tokens = [
        token
        for step in decode(target, drafter, 2, num_draft_tokens=4, max_tokens=12, budget=budget)
        for token in step.token_ids
    ]
    assert tokens == [1] * 12
    assert all(draft.is_chain or len(draft) % 2 == 0 for draft in target.given)
    if budget is eager:
        assert not all(draft.is_chain for draft in target.given)
        assert target.given[0].tokens == (1, 2)  # the path of `odd`
    if budget is None:
        assert target.given[:4] == [
            Draft.chain((1, 2), "scripted"), Draft(even.tokens, even.parents, "scripted"), Draft.chain((1, 1), "scripted"),
            Draft.chain((1, 2), "scripted"),
        ]  # fmt: skip


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
        Draft(
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
    feed = session._rows.feed
    monkeypatch.setattr(session._rows, "feed", lambda rows: passes.append(1) or feed(rows))
    steps = list(
        decode(session, drafter, prompt[-1], num_draft_tokens=8, max_tokens=size, budget=budget)
    )
    assert [token for step in steps for token in step.token_ids] == plain
    assert len(tried) == tries
    if not tries:
        assert len(passes) == len(steps) == size
