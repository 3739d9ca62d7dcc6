"""The drafter `auto`: bounds, determinism, identity of the output, and what it learns from."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akunu_py.decoding.loop import decode
from akunu_py.drafting import AutoDrafter, AutoState, Memory
from akunu_py.drafting.auto import calibration, features, vote
from akunu_py.drafting.auto.drafter import _origins
from akunu_py.drafting.auto.vote import Chain, Situation
from akunu_py.testing import ToyTarget
from akunu_py.values.cost_curve import CostCurve

TOKENS = st.lists(st.integers(0, 4), min_size=1, max_size=60)
FREE = CostCurve({1: 1.0, 64: 1.0})  # drafting costs nothing
CURVES = st.sampled_from(
    [FREE, CostCurve({1: 1.0, 2: 1.05, 21: 2.0}), CostCurve({1: 1.0, 2: 2.0, 3: 3.0})]
)


class OpenDrafter(AutoDrafter):
    """`auto` with what tests set and read of its inside."""

    index = property(lambda self: self._index)
    at = property(lambda self: self._at)
    chain = property(lambda self: self._chain)

    def hold(self, chain, at, drafted=0):
        """Stand there, behind a prompt, having proposed `drafted` tokens of a chain."""
        at.prompt_end = len(self._index)
        self._chain, self._at, self._num_drafted = chain, at, drafted


def play(drafter, prompt, reply, limit=32):
    """Let the drafter draft a known reply; return its drafts."""
    drafter.observe(prompt)
    drafts, position = [], 0
    while position < len(reply):
        draft = drafter.propose(limit)
        drafts.append(draft)
        right = 0
        for token, said in zip(draft.tokens, reply[position:], strict=False):
            if token != said:
                break
            right += 1
        output = reply[position : position + right + 1]
        drafter.observe(output)
        position += len(output)
    return drafts


def everything(drafter):
    """All that later drafts depend on."""
    state = drafter.state
    known = state.calibration
    tables = known.by_token, known.by_previous, known.by_pair
    outcomes = [dict(table) for table in tables]
    return (
        drafter.index.tokens, drafter.index.same_pair, drafter.at, state.calibration.weights,
        outcomes, (state.pace.tokens, state.pace.cost), state.memory.texts(),
    )  # fmt: skip


@given(TOKENS, TOKENS, CURVES, st.integers(-1, 40), st.integers(0, 40))
def test_never_more_than_asked_for(prompt, reply, curve, limit, most):
    for draft in play(OpenDrafter(curve=curve, max_length=most), prompt, reply, limit):
        assert len(draft) <= max(0, min(limit, most))
        assert draft.is_chain
        assert draft.source == "auto"
        assert len(draft.confidence) == len(draft)
        assert all(0 < p <= 1 for p in draft.confidence)
        assert all(token >= 0 for token in draft.tokens)
        # Behind a new token copies begin without a match.
        assert len(draft) or not draft.match_length


@given(st.lists(TOKENS, min_size=2, max_size=6), CURVES)
def test_it_is_deterministic(texts, curve):
    states = AutoState(), AutoState()
    for prompt, reply in itertools.pairwise(texts):
        drafters = [OpenDrafter(curve=curve, state=state) for state in states]
        first, second = (play(drafter, prompt, reply) for drafter in drafters)
        assert first == second
        assert everything(drafters[0]) == everything(drafters[1])


@given(TOKENS, TOKENS, CURVES)
def test_proposing_changes_nothing(prompt, reply, curve):
    drafter = OpenDrafter(curve=curve)
    play(drafter, prompt, reply)
    draft = drafter.propose(20)
    before = everything(drafter)
    assert drafter.propose(20) == draft
    assert everything(drafter) == before


@given(TOKENS, TOKENS, st.lists(st.integers(0, 60), max_size=6))
def test_the_chunks_of_a_reply_do_not_matter(prompt, reply, cuts):
    whole, chunked = OpenDrafter(), OpenDrafter()
    for drafter in (whole, chunked):
        drafter.observe(prompt)
    whole.observe(reply)
    bounds = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
    for begin, end in itertools.pairwise(bounds):
        chunked.observe(tuple(reply[begin:end]))
    assert everything(chunked) == everything(whole)
    assert chunked.propose(9) == whole.propose(9)
    # The index takes in a reply with the next draft.
    assert everything(chunked) == everything(whole)
    assert list(reply) == whole.index.tokens[whole.at.prompt_end :]
    for drafter in (whole, chunked):
        drafter.state.finish()
    assert chunked.state.memory.texts() == whole.state.memory.texts() == [reply] * bool(reply)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 9), CURVES)
def test_the_output_is_that_of_plain_decoding(prompt, seed, curve):
    state = AutoState()
    for number in range(3):  # with a memory of the same text, too
        target = ToyTarget(prompt, vocabulary_size=3, seed=seed)
        drafter = OpenDrafter(curve=curve, state=state)
        drafter.observe(prompt)
        steps = list(decode(target, drafter, prompt[-1], num_draft_tokens=32, max_tokens=40))
        output = [token for step in steps for token in step.token_ids]
        assert output == target.plain(prompt, 40)
        if number == 2 and curve is FREE:
            assert len(steps) < 40


def test_a_copy_is_drafted_further_and_further_up_to_the_limit():
    text = list(range(100, 400))
    drafts = play(OpenDrafter(curve=CostCurve({1: 1.0, 2: 1.05, 21: 2.0})), [1, *text, 2], text, 32)
    assert [len(draft) for draft in drafts[:1]] == [0]
    assert max(map(len, drafts)) == 32
    assert len(drafts) < 40


def test_what_never_holds_is_not_drafted_for_long():
    rng = random.Random(0)
    drafter = OpenDrafter()
    reply = [rng.randrange(50) for _ in range(3000)]  # tokens repeat, what follows them does not
    drafts = play(drafter, [1], reply)
    late = drafts[len(drafts) // 2 :]
    assert sum(len(draft) > 0 for draft in late) < 0.02 * len(late)


def test_nothing_is_drafted_where_rows_cost_too_much():
    text = list(range(50)) * 4
    drafter = OpenDrafter(curve=CostCurve({1: 1.0, 2: 2.1, 3: 3.2}))
    assert all(len(draft) == 0 for draft in play(drafter, text, text))
    drafter.use_curve(FREE)
    assert len(drafter.propose(9)) == 9


def test_a_memory_given_is_used():
    memory = Memory()
    memory.add([5, 6, 7, 8, 9])
    drafter = OpenDrafter(curve=FREE, memory=memory)
    drafter.observe([5, 6, 7])
    assert drafter.propose(5).tokens[:2] == (8, 9)
    assert drafter.state.memory is memory


def test_two_drafters_of_one_state_do_not_mix_their_replies():
    state = AutoState()
    older, newer = OpenDrafter(state=state), OpenDrafter(state=state)
    for drafter in (older, newer):
        drafter.observe([1])
    older.observe([2, 3])
    newer.observe([4, 5])
    state.finish()
    assert state.memory.texts() == [[4, 5]]


def test_the_prompt_is_not_remembered():
    state = AutoState()
    OpenDrafter(state=state).observe([1, 2, 3])
    state.finish()
    assert state.memory.texts() == []


def streams():
    """Texts made to be expensive: many occurrences, long matches, votes that always split."""
    rng = random.Random(1)
    yield "one token", [7] * 4000
    yield "two tokens", [7, 8] * 2000
    yield "long period", list(range(40)) * 100
    yield "random of two", [rng.randrange(2) for _ in range(4000)]
    yield "growing matches", [t for n in range(88) for t in (*range(n), 999)]
    yield "all new", list(range(4000))
    yield "split votes", [t for n in range(1000) for t in (1, 2, 3, 4 + n % 50)]


@pytest.mark.parametrize(
    ("name", "text"), list(streams()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_adversarial_streams_cost_a_bounded_number_of_looks(name, text, monkeypatch):
    looks = 0
    proposals = vote.proposals

    def counted(*arguments):
        nonlocal looks
        looks += 1
        return proposals(*arguments)

    monkeypatch.setattr(vote, "proposals", counted)
    drafter = OpenDrafter(curve=FREE)
    drafter.observe(text)
    found = drafter.index.occurrences(
        vote.MAX_OCCURRENCES, features.MAX_MATCH, enough=vote.LONG_MATCH, further=vote.FURTHER_OCCURRENCES
    )  # fmt: skip
    assert len(found) <= vote.MAX_OCCURRENCES
    assert all(length <= features.MAX_MATCH for length, _ in found)
    for _ in range(50):
        looks = 0
        drafter.propose(32)
        assert looks <= 33
        assert len(drafter.chain.tokens) <= 33
        drafter.observe([text[-1]])


def test_the_state_is_bounded(monkeypatch):
    monkeypatch.setattr(calibration, "MAX_OUTCOMES", 50)
    state = AutoState(Memory(max_tokens=400))
    rng = random.Random(3)
    for _ in range(12):
        text = [rng.randrange(30) for _ in range(120)]
        play(OpenDrafter(curve=FREE, state=state), text, text)
        known = state.calibration
        assert len(known.by_pair) <= 50
        assert len(known.by_token) <= 50
        assert len(state.memory) <= 400


def drafter_with_chain(tokens, *, drafted=0, **at):
    """A drafter that has taken in a prompt of 10 tokens and proposed a chain."""
    drafter = OpenDrafter(curve=CostCurve({1: 1.0, 2: 1.5}), max_length=8)
    drafter.observe(list(range(100, 110)))
    size = len(tokens)
    chain = Chain(list(tokens), [0.5] * size, [(0,)] * size, list(range(20, 20 + size)), 3)
    drafter.hold(chain, Situation(**at), drafted)
    return drafter


@pytest.mark.parametrize(
    ("output", "streak", "outcome"),
    [
        ((1, 2, 3, 4), 7 + 3, 0),  # all right, and one more token of the target's own
        ((1, 2), 7 + 2, 0),  # right as far as it was decided
        ((1, 9), 0, 1),  # broke at the second
        ((9,), 0, 2),  # wrong at once
    ],
)
def test_what_becomes_of_a_chain_is_remembered(output, streak, outcome):
    drafter = drafter_with_chain((1, 2, 3), streak=7, last_outcome=1)
    drafter.observe(output)
    at = drafter.at
    assert (at.streak, at.last_outcome) == (streak, outcome)
    assert drafter.chain is None


def test_a_pass_is_counted_with_what_was_drafted():
    drafter = drafter_with_chain((1, 2, 3), drafted=2)
    pace = drafter.state.pace
    tokens, cost = pace.tokens, pace.cost
    drafter.observe((1, 2, 7))
    assert pace.tokens == pytest.approx(tokens * 0.99 + 3)
    assert pace.cost == pytest.approx(cost * 0.99 + 2.0)
    drafter.observe((8,))  # nothing was asked of it for this pass
    assert pace.cost == pytest.approx(cost * 0.99 + 2.0)


def test_memory_and_prompt_are_not_one_text():
    memory = Memory()
    memory.add([5, 1])
    memory.add([5, 1, 2, 3])
    drafter = OpenDrafter(curve=FREE, memory=memory)
    drafter.observe([1])
    # Matched is the 1 alone: what stands before it in the memory is not what stands here.
    assert drafter.propose(4).match_length in {0, 1}


def test_tokens_have_the_text_they_are_copied_from_as_origin():
    memory = Memory()
    memory.add([*range(100, 120)])
    drafter = OpenDrafter(curve=FREE, memory=memory)
    drafter.observe([*range(200, 220), 1])
    found = {}
    for start in (200, 100):
        drafter.observe([*range(start, start + 6)])
        found[start] = drafter.propose(4)
    drafter.observe([7, *range(300, 310), 8, *range(300, 306)])
    found[300] = drafter.propose(4)
    origins = {start: set(draft.origins) for start, draft in found.items()}
    assert origins == {200: {"prompt"}, 100: {"memory"}, 300: {"reply"}}
    for start, draft in found.items():
        assert draft.tokens[0] == start + 6
        assert draft.source == "auto"
        assert len(draft.origins) == len(draft.tokens)


def test_a_copy_that_leaves_the_prompt_comes_from_the_reply_then():
    chain = Chain([1, 2, 3, 4, 5], [0.9] * 5, [(0,)] * 5, [8, 9, 10, 11, 12])
    at = Situation(memory_end=4, prompt_end=10)
    assert _origins(chain, 4, at) == (("prompt", "prompt", "reply", "reply"), (4, 5, -1, -1))
    assert _origins(chain, 1, at) == (("prompt",), (4,))
