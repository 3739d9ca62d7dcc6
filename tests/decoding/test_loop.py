"""The decode loop on toy targets.

Mutants of the loop, made by hand, that these tests kill (each was tried):

1. keep one row too many in the cache: ToyTarget.commit appends accepted + 1 nodes
2. keep one row too few (drop the last accepted node)
3. the bonus token dropped: output without next_token
4. the bonus token emitted twice
5. the drafter observes the draft instead of the output (a rejected token fed)
6. the drafter observes nothing of the recovered token
7. `last` not advanced: choose is called with the old token
8. limit without `remaining - 1`: more than max_tokens come out
9. end-of-generation ids looked for in the last token of a step alone
10. acceptance counted from the uncut path
11. verify stops one node early (accepts all but the last)
12. commit called before verify's path is known (accepts the whole draft)
13. the drafter told of accepted tokens beyond the end id
14. what is sure left to the budget, or drafted beyond the room
15. a partner's time added to another's; the drafter's time without `observe`
16. "length" said of a reply whose last token ends it; a step made for no tokens
17. candidates told behind the tokens
"""

import itertools
from fractions import Fraction

import pytest
from drafted_trees import bare_trees
from hypothesis import given
from hypothesis import strategies as st
from toy_drafters import OracleDrafter, ScriptedDrafter

from akunu_py.decoding.budget import VerifyAll
from akunu_py.decoding.loop import NUM_CANDIDATES, decode
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.decoding.stopping import REPEATED_TOKENS, LoopDetector
from akunu_py.drafting import PlainDrafter
from akunu_py.system.errors import ContractError
from akunu_py.testing import ToyTarget, hashed_choice
from akunu_py.values.types import Draft

PROMPT = [1, 2, 3, 1, 2]


def run(target, drafter, *, max_tokens=40, num_draft_tokens=8, end_ids=()):
    if not hasattr(drafter, "observed") or not drafter.observed:
        drafter.observe(PROMPT)
    steps = decode(
        target, drafter, PROMPT[-1],
        num_draft_tokens=num_draft_tokens, max_tokens=max_tokens, end_ids=end_ids,
    )  # fmt: skip
    # One step more than there can be, of a loop that never ends.
    steps = list(itertools.islice(steps, max_tokens + 1))
    return [token for step in steps for token in step.token_ids], steps


CHAINS = st.lists(st.integers(0, 3), max_size=6)


@given(st.lists(CHAINS | bare_trees(), max_size=40), st.integers(0, 50), st.integers(1, 60))
def test_no_drafter_changes_the_output(script, seed, max_tokens):
    target = ToyTarget(PROMPT, vocabulary_size=4, seed=seed)
    drafter = ScriptedDrafter(script)
    tokens, _ = run(target, drafter, max_tokens=max_tokens)
    assert tokens == target.plain(PROMPT, max_tokens)
    # The invariant: the cache holds every committed token except the last ...
    assert target.cache == [*PROMPT, *tokens][:-1]
    # ... and the drafter saw exactly what was committed.
    assert drafter.observed == [*PROMPT, *tokens]


@given(st.integers(0, 200), st.integers(0, 8), st.sampled_from([0, 1, 2]))
def test_right_wrong_and_half_right_drafters(seed, length, wrongness):
    target = ToyTarget(PROMPT, vocabulary_size=6, seed=seed)

    def rule(context):
        right = target.rule(context)
        return right if wrongness == 0 or (wrongness == 1 and len(context) % 2) else right + 1

    tokens, steps = run(target, OracleDrafter(rule, length), max_tokens=30)
    assert tokens == target.plain(PROMPT, 30)
    if wrongness == 0:
        assert all(step.stats.num_accepted_tokens == step.stats.num_draft_tokens for step in steps)
        assert len(steps) == -(-30 // (length + 1))
    if wrongness == 2:
        assert len(steps) == 30


def test_steps_and_statistics_of_a_known_case():
    target = ToyTarget(PROMPT, rule=lambda context: len(context))  # emits 5, 6, 7, ...
    script = [[5, 6], [8, 0], [], [99], [12, 13, 14, 15]]
    tokens, steps = run(target, ScriptedDrafter(script), max_tokens=11, num_draft_tokens=4)
    assert [step.token_ids for step in steps] == [
        (5, 6, 7), (8, 9), (10,), (11,), (12, 13, 14, 15),
    ]  # fmt: skip
    assert [step.stats.kind for step in steps] == [
        "bonus", "recovered", "bonus", "recovered", "bonus",
    ]  # fmt: skip
    assert [step.finish_reason for step in steps] == [None] * 4 + ["length"]
    recorder = StatsRecorder()
    for step in steps:
        recorder.add(step.stats)
    stats = recorder.stats
    assert (stats.steps, stats.steps_with_draft, stats.output_tokens) == (5, 4, 11)
    # The last draft was cut to three tokens: one less than remained.
    assert stats.drafted == stats.tested == 2 + 2 + 1 + 3
    assert stats.accepted == 2 + 1 + 3
    assert stats.drafted_per_position == (4, 3, 1)
    assert stats.accepted_per_position == (3, 2, 1)
    assert stats.hit_rate == 6 / 8
    assert stats.alpha == 6 / 8
    assert stats.tokens_per_pass == 11 / 5
    assert stats.fire_rate == 4 / 5


def test_an_end_id_inside_an_accepted_draft_ends_the_reply():
    target = ToyTarget(PROMPT, rule=lambda context: len(context))
    drafter = ScriptedDrafter([[5, 6, 7, 8]])
    tokens, steps = run(target, drafter, end_ids={6, 30})
    assert tokens == [5, 6]
    assert drafter.observed == [*PROMPT, 5, 6]
    assert steps[-1].finish_reason == "stop"
    assert steps[-1].stats.num_accepted_tokens == 2
    assert steps[-1].stats.num_tested_tokens == 2


@pytest.mark.parametrize("end", [5, 6, 7, 11])
def test_the_first_of_several_end_ids_counts(end):
    target = ToyTarget(PROMPT, rule=lambda context: len(context))
    tokens, _ = run(target, OracleDrafter(lambda c: len(c), 3), end_ids={end, 40})
    assert tokens == list(range(5, end + 1))


def test_a_last_token_that_ends_the_reply_is_no_limit():
    target = ToyTarget(PROMPT, rule=len)
    _, steps = run(target, PlainDrafter(), max_tokens=2, end_ids={6})
    assert [step.finish_reason for step in steps] == [None, "stop"]
    assert run(target, PlainDrafter(), max_tokens=0) == ([], [])


class SureDrafter(ScriptedDrafter):
    def num_sure(self):
        return 4


class NeverDrafting(VerifyAll):
    def limit(self, most):
        return 0


def test_what_is_sure_is_drafted_whatever_the_budget_says():
    """As far as there is room: three tokens remain for the second draft."""
    target = ToyTarget(PROMPT, rule=len)
    steps = decode(
        target, SureDrafter([[5, 6, 7, 8], [10, 11, 12, 13]]), PROMPT[-1],
        num_draft_tokens=8, max_tokens=8, budget=NeverDrafting(target),
    )  # fmt: skip
    found = [step.token_ids for step in itertools.islice(steps, 3)]
    assert found == [(5, 6, 7, 8, 9), (10, 11, 12)]


def test_each_partner_is_charged_its_own_time():
    target, drafter = ToyTarget(PROMPT), ScriptedDrafter([[1]])
    now = 0

    def slow(method, seconds):
        def call(*arguments):
            nonlocal now
            now += seconds
            return method(*arguments)

        return call

    drafter.propose, drafter.observe = slow(drafter.propose, 1), slow(drafter.observe, 2)
    target.choose, target.commit = slow(target.choose, 4), slow(target.commit, 8)
    steps = decode(
        target, drafter, PROMPT[-1], num_draft_tokens=4, max_tokens=4, clock=lambda: now
    )  # fmt: skip
    stats = next(steps).stats
    assert (stats.propose_s, stats.target_s, stats.commit_s) == (3, 4, 8)


def test_a_drafter_that_reads_candidates_gets_them_before_the_tokens():
    told = []

    class Reader(ScriptedDrafter):
        def observe_candidates(self, rows):
            told.append(rows)

        def observe(self, tokens):
            told.append(tuple(tokens))

    target = ToyTarget(PROMPT, rule=len)
    target.track_candidates = lambda count: told.append(count)
    target.candidates = lambda: [(2, [5, 4])]
    list(decode(target, Reader(), PROMPT[-1], num_draft_tokens=4, max_tokens=1))
    assert told == [NUM_CANDIDATES, [(2, [5, 4])], (5,)]


def test_a_target_that_cannot_roll_back_is_decoded_plainly():
    target = ToyTarget(PROMPT, max_draft_tokens=0)
    tokens, steps = run(target, ScriptedDrafter([[1]] * 50))
    assert tokens == target.plain(PROMPT, 40)
    assert all(step.stats.num_draft_tokens == 0 for step in steps)


def test_a_drafter_that_ignores_its_limit_is_named():
    class Greedy(ScriptedDrafter):
        def propose(self, limit):
            return Draft.chain(range(limit + 1), "greedy one")

    with pytest.raises(ContractError, match="greedy one"):
        run(ToyTarget(PROMPT), Greedy())


def test_closing_between_steps_leaves_what_was_yielded():
    target = ToyTarget(PROMPT)
    steps = decode(target, PlainDrafter(), PROMPT[-1], num_draft_tokens=4, max_tokens=10)
    first = next(steps)
    steps.close()
    assert target.cache == PROMPT
    assert list(first.token_ids) == target.plain(PROMPT, 1)


def test_exact_law_by_enumeration():
    """The output law equals the target's to 1e-12, for every chain and tree drafted.

    The target draws its token at (context, position) independently: all outcomes of all contexts
    that can occur are enumerated with their exact probabilities.
    """
    vocabulary, horizon = 2, 3
    contexts = [c for n in range(horizon) for c in itertools.product(range(vocabulary), repeat=n)]
    weight = {c: Fraction(1 + hashed_choice(7, 3)(c), 9) for c in contexts}  # p(0 | context)

    def law(drafts):
        outcome: dict[tuple[int, ...], Fraction] = {}
        for assignment in itertools.product(range(vocabulary), repeat=len(contexts)):
            table = dict(zip(contexts, assignment, strict=True))
            probability = Fraction(1)
            for context, token in table.items():
                probability *= weight[context] if token == 0 else 1 - weight[context]
            # Beyond the horizon the choices do not matter.
            target = ToyTarget([9], rule=lambda c, t=table: t.get(c[1:], 0))
            steps = decode(
                target, ScriptedDrafter(drafts), 9, num_draft_tokens=4, max_tokens=horizon
            )
            tokens = tuple(token for step in steps for token in step.token_ids)
            outcome[tokens] = outcome.get(tokens, Fraction(0)) + probability
        return outcome

    expected = {}
    for tokens in itertools.product(range(vocabulary), repeat=horizon):
        probability = Fraction(1)
        for index, token in enumerate(tokens):
            p = weight[tokens[:index]]
            probability *= p if token == 0 else 1 - p
        expected[tokens] = probability
    chains = [[], [[0, 0]], [[1, 0], [1]]]
    trees = [[Draft((0, 1, 0, 1), (-1, -1, 0, 0))], [Draft((1, 0), (-1, -1)), [0]]]
    scripts = chains + trees
    for drafts in scripts:
        found = law(drafts)
        assert sum(found.values()) == 1
        for tokens, probability in expected.items():
            assert abs(found.get(tokens, 0) - probability) < Fraction(1, 10**12)


@pytest.mark.parametrize("length", [0, 3, 8])
def test_a_loop_ends_the_reply_at_one_token_however_it_is_drafted(length):
    def rule(context):
        return len(context) % 3 if len(context) > 40 else hashed_choice(9, 0)(context)

    found, steps = None, []
    for drafter in (PlainDrafter(), OracleDrafter(rule, length)):
        drafter.observe(PROMPT)
        told = []
        observe = drafter.observe
        drafter.observe = lambda tokens, observe=observe, told=told: (
            told.extend(tokens), observe(tokens)
        )  # fmt: skip
        steps = list(
            decode(
                ToyTarget(PROMPT, rule=rule), drafter, PROMPT[-1], num_draft_tokens=8, max_tokens=900,
                loops=LoopDetector(),
            )
        )  # fmt: skip
        tokens = [token for step in steps for token in step.token_ids]
        assert steps[-1].finish_reason == "loop"
        assert told == tokens
        assert found in (None, tokens)
        found = tokens
    assert REPEATED_TOKENS < len(found) < REPEATED_TOKENS + 50
