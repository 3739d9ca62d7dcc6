"""Rejection sampling of one draft: the law by enumeration, edges, lenience, and what breaks it.

Mutants of `rejection.py` and `verifiers.py`, made by hand, that these tests and those of
`test_rejection_trees.py` kill (each was tried):

1. the residual without max(0, ...): |p - q|
2. the residual not normalised
3. no residual: p drawn from after a rejection
4. the residual of several draws computed from p each time
5. accept with min(1, q / p)
6. a rejection that goes on with the next token of the chain
7. an acceptance that ends the step
8. the row of the node before the one tried (p shifted by one)
9. the last token drawn from the root's row
10. a token with q = 0 accepted, or p changed by it
11. equal draws tried once
12. counted draws tried in the order of their nodes
13. one-hot q: the token left in the residual
14. one uniform number for all draws at a position, or for all positions
"""

import itertools

import numpy as np
import pytest
from enumeration import (
    Branch,
    distance,
    enumerate_law,
    extended,
    laws,
    pairs_of_laws,
    plain_law,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from toy_drafters import hashed_law

from akunu_lab.theory import acceptance
from akunu_lab.verifying.draft_law import DraftLaw, certain
from akunu_lab.verifying.rejection import (
    accept_probability,
    distribution,
    residual,
    residual_without,
    softmax,
)
from akunu_lab.verifying.verifiers import LenientGreedyVerifier, RejectionVerifier
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft

EXACT = 1e-12


def chain_law(rows):
    return DraftLaw(np.stack(rows), tuple((i, i) for i in range(len(rows))), ordered=True)


def one_step(p, q, length, **options):
    """Return the law of a step's output when `length` tokens are drawn from q and verified by p."""

    def run(branch):
        tokens, rows = [], []
        for _ in range(length):
            rows.append(q(tuple(tokens)))
            tokens.append(branch.choose(rows[-1]))
        draft = Draft.chain(tokens)
        target = np.stack([p(tuple(tokens[:i])) for i in range(length + 1)])
        law = chain_law(rows) if rows else certain(draft)
        verdict = RejectionVerifier(branch, **options).verify(draft, law, target, 0)
        return verdict.output(draft)

    return enumerate_law(run)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    ("vocabulary", "length", "seed"),
    [(v, n, s) for v in (2, 3) for n in range(4) for s in range(3)] + [(4, 1, 7), (4, 2, 7), (4, 3, 7)],
)  # fmt: skip
def test_what_a_step_emits_follows_the_target(vocabulary, length, seed):
    p, q = hashed_law(vocabulary, seed), hashed_law(vocabulary, seed + 100)
    found = one_step(p, q, length)
    assert abs(sum(found.values()) - 1) < EXACT
    assert {len(tokens) for tokens in found} <= set(range(1, length + 2))
    expected = plain_law(p, (), length + 1)
    assert distance(extended(found, p, (), length + 1), expected) < EXACT


@pytest.mark.parametrize("vocabulary", [2, 3, 4])
def test_edges_keep_the_law(vocabulary):
    """Equal, one-hot, disjoint and vanishing probabilities, in all pairs, over two tokens."""
    for first, second in pairs_of_laws(vocabulary):
        even = laws(vocabulary)["even"]

        def p(context, first=first, even=even):
            return first if len(context) % 2 == 0 else even

        def q(context, second=second, even=even):
            return second if len(context) % 2 == 0 else even

        found = extended(one_step(p, q, 2), p, (), 3)
        assert distance(found, plain_law(p, (), 3)) < EXACT


@st.composite
def distributions(draw, size):
    weights = draw(
        st.lists(st.sampled_from([0, 5e-324, 1e-200, 1e-16, 0.3, 1.0, 7.0]), min_size=size, max_size=size)
    )  # fmt: skip
    assume(sum(weights) > 0)
    return np.array(weights) / sum(weights)


@given(st.integers(2, 4).flatmap(lambda size: st.tuples(distributions(size), distributions(size))))
def test_any_pair_keeps_the_law(pair):
    p, q = pair
    found = one_step(lambda _: p, lambda _: q, 1)
    assert distance(extended(found, lambda _: p, (), 2), plain_law(lambda _: p, (), 2)) < EXACT
    # The first token is accepted as often as theorem 3.5 says.
    accepted = sum(probability for tokens, probability in found.items() if len(tokens) == 2)
    assert accepted == pytest.approx(acceptance(p, q), abs=1e-12)


def test_equal_distributions_accept_everything():
    p = hashed_law(4, 5)
    assert {len(tokens) for tokens in one_step(p, p, 3)} == {4}


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_rows_of_narrow_logits_with_infinities(width):
    """An overflowed float16 is +inf, a filtered token -inf: what their softmax says is kept."""
    inf = np.inf
    rows = np.array([[1, inf, -inf], [inf, inf, 0], [-inf, 2, 2], [65504, 1, -65504]], dtype=width)
    distributions = [softmax(row) for row in rows]
    assert [list(row) for row in distributions] == [[0, 1, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [1, 0, 0]]  # fmt: skip
    for p, q in itertools.product(distributions, repeat=2):
        found = one_step(lambda _, p=p: p, lambda _, q=q: q, 2)
        assert distance(extended(found, lambda _, p=p: p, (), 3), plain_law(lambda _, p=p: p, (), 3)) < EXACT  # fmt: skip


def test_rows_that_float32_rounded_are_made_whole():
    """A target's float32 row and the same from a drafter: no residual of rounding errors."""
    row = softmax(np.linspace(-8, 3, 1000)).astype(np.float32)
    assert row.sum(dtype=np.float64) != 1
    p, q = distribution(row, "the target"), distribution(row * np.float32(1.5), "the draft")
    assert abs(p.sum() - 1) < 1e-15
    np.testing.assert_allclose(p, q, rtol=1e-6)


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [-0.1, 1.1]])
def test_rows_that_are_no_distributions_are_named(row):
    with pytest.raises(ContractError, match="the draft"):
        distribution(np.array(row), "the draft")


@pytest.mark.parametrize("logits", [[-np.inf, -np.inf], [np.nan, 1.0]])
def test_logits_without_a_choice_are_named(logits):
    with pytest.raises(ContractError, match="no token can be chosen"):
        softmax(np.array(logits, dtype=np.float16))


def test_rules_by_hand():
    assert accept_probability(0.2, 0.4) == 0.5
    assert accept_probability(0.2, 0.4, 0.5) == 1.0
    assert accept_probability(0.4, 0.2) == 1.0
    assert accept_probability(0.3, 0.0) == 0.0
    assert accept_probability(0.3, 5e-324) == 1.0
    assert accept_probability(0.0, 0.3) == 0.0
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3])
    assert list(residual(p, q)) == [1, 0, 0]
    np.testing.assert_allclose(residual(p, q[::-1]), [2 / 3, 0, 1 / 3])
    assert residual(p, p) is p
    np.testing.assert_allclose(residual_without(p, 0), [0, 0.6, 0.4])
    assert list(residual_without(np.array([0.0, 1.0]), 1)) == [0, 1]


def test_a_token_that_q_cannot_draw_is_rejected_and_p_kept():
    """A drafter that draws from something else now and then: its other draws keep their law."""
    p, q = np.array([0.3, 0.5, 0.2]), np.array([0.0, 0.4, 0.6])
    stray = 0.25

    def run(branch):
        strays = branch.choose([stray, 1 - stray]) == 0
        token = 0 if strays else branch.choose(q)
        draft = Draft.chain([token])
        verdict = RejectionVerifier(branch).verify(draft, chain_law([q]), np.stack([p, p]), 0)
        if strays:
            assert not verdict.trials[0].accepted
            assert verdict.trials[0].ratio is None
            assert verdict.origin == "target"
        return verdict.output(draft)

    found = extended(enumerate_law(run), lambda _: p, (), 2)
    assert distance(found, plain_law(lambda _: p, (), 2)) < EXACT


def test_certain_drafts_need_no_rows():
    """What is a function of the history has a one-hot q: the law is kept, and p(x) accepted."""
    p = hashed_law(4, 11)
    for token in range(4):

        def run(branch, token=token):
            draft = Draft.chain([token, 2])
            rows = np.stack([p(()), p((token,)), p((token, 2))])
            return RejectionVerifier(branch).verify(draft, certain(draft), rows, 0).output(draft)  # fmt: skip

        found = enumerate_law(run)
        assert distance(extended(found, p, (), 3), plain_law(p, (), 3)) < EXACT
        assert sum(w for t, w in found.items() if len(t) > 1) == pytest.approx(p(())[token])


# Lenience


@pytest.mark.parametrize("lenience", [0.75, 0.5, 0.3, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_lenience_bounds_every_token(lenience, seed):
    p, q = hashed_law(4, seed)(()), hashed_law(4, seed + 50)(())
    found = one_step(lambda _: p, lambda _: q, 1, lenience=lenience)
    first = np.zeros(4)
    for tokens, probability in found.items():
        first[tokens[0]] += probability
    assert (first <= p / lenience + 1e-12).all()
    accepted = sum(probability for tokens, probability in found.items() if len(tokens) == 2)
    assert accepted == pytest.approx(acceptance(p, q, lenience), abs=1e-12)
    # An overlap of 1 - alpha or more would leave nothing to be lenient with.
    assert accepted > acceptance(p, q) + 1e-3


def test_lenience_is_no_law_of_the_target_and_says_so():
    p, q = hashed_law(3, 1), hashed_law(3, 2)
    found = extended(one_step(p, q, 1, lenience=0.5), p, (), 2)
    assert distance(found, plain_law(p, (), 2)) > 0.01
    lenient = RejectionVerifier(Branch(), lenience=0.5)
    assert (lenient.name, lenient.exact) == ("lenient", False)


def test_without_the_residual_the_law_breaks():
    p, q = hashed_law(3, 1), hashed_law(3, 2)
    found = extended(one_step(p, q, 1, adjust=False), p, (), 2)
    assert distance(found, plain_law(p, (), 2)) > 0.01
    study = RejectionVerifier(Branch(), adjust=False)
    assert (study.name, study.exact) == ("rejection-unadjusted", False)
    assert (RejectionVerifier(Branch()).name, RejectionVerifier(Branch()).exact) == ("rejection", True)  # fmt: skip


@pytest.mark.parametrize(
    ("lenience", "accepted", "ending", "kind"),
    [
        (1.0, (), 1, "recovered"),
        (0.8, (0,), 2, "recovered"),
        (0.5, (0, 1), 0, "bonus"),
    ],
)
def test_lenient_greedy(lenience, accepted, ending, kind):
    draft = Draft.chain([0, 1])
    rows = np.array([[0.4, 0.5, 0.1], [0.1, 0.3, 0.6], [0.8, 0.1, 0.1]])
    verifier = LenientGreedyVerifier(lenience)
    verdict = verifier.verify(draft, certain(draft), rows, 10)
    assert verdict.accepted == accepted
    assert verdict.next_token == ending
    assert verdict.kind == kind
    assert verifier.exact == (lenience == 1)
    assert [trial.position for trial in verdict.trials] == list(range(10, 10 + len(verdict.trials)))


def test_lenient_greedy_takes_the_likeliest_sibling():
    draft = Draft((0, 2, 1), (-1, -1, 1))
    rows = np.array([[0.3, 0.3, 0.4], [1.0, 0, 0], [0.2, 0.7, 0.1], [0.0, 1.0, 0.0]])
    verdict = LenientGreedyVerifier(0.5).verify(draft, certain(draft), rows, 0)
    assert verdict.output(draft) == (2, 1, 1)


# What is traced, and contracts


def test_trials_tell_how_it_went():
    p = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    q = np.array([[0.25, 0.25, 0.5], [0.1, 0.8, 0.1]])
    draft = Draft.chain([1, 1])
    branch = Branch([0, 1, 0])  # accept, reject, the only token left (2 has p > q, 0 has p = q)
    verdict = RejectionVerifier(branch).verify(draft, chain_law(list(q)), p, 40)
    first, second = verdict.trials
    assert (first.node, first.token, first.position, first.accepted) == (0, 1, 40, True)
    assert (first.p, first.q, first.ratio) == (0.5, 0.25, 2.0)
    assert (second.node, second.position, second.accepted) == (1, 41, False)
    assert second.ratio == pytest.approx(0.25)
    assert second.uniform == pytest.approx(1.25 / 2)
    assert verdict.origin == "residual"
    assert verdict.kind == "recovered"


@pytest.mark.parametrize("lenience", [0, -1, 1.5, float("nan")])
def test_lenience_out_of_range(lenience):
    with pytest.raises(ConfigError, match="lenience"):
        RejectionVerifier(Branch(), lenience=lenience)
    with pytest.raises(ConfigError, match="lenience"):
        LenientGreedyVerifier(lenience)


def test_rows_must_fit_the_draft():
    draft, p = Draft.chain([1]), np.full((2, 3), 1 / 3)
    verifier = RejectionVerifier(Branch())
    with pytest.raises(ContractError, match="of shape"):
        verifier.verify(draft, certain(draft), p[:1], 0)
    with pytest.raises(ContractError, match="one vocabulary"):
        verifier.verify(draft, chain_law([np.array([0.5, 0.5])]), p, 0)
    outside = Draft.chain([3])
    for judge in (verifier, LenientGreedyVerifier(0.5)):
        with pytest.raises(ContractError, match="ids go from 0 to 2"):
            judge.verify(outside, certain(outside), p, 0)
