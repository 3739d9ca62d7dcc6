"""What the session tells drafters of the target: every row it evaluates, and nothing where nobody asks.

Mutants, made by hand, that these tests kill: rows of the draft left out, or one too many; candidates of
the step in flight lost; the choices' own token among them by mistake; ties to the highest id; the
number kept beyond `begin`.
"""

from unittest.mock import Mock

import mlx.core as mx
import pytest
from candidate_rows import CONFIGS, Recorder, best, true_rows
from family_models import build_family
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, adversary, begin, generate, prompt_of, tiny

from akunu_py.decoding.loop import NUM_CANDIDATES
from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.row_choices import top_candidates
from akunu_py.models.session import Session
from akunu_py.values.types import Draft


@pytest.fixture(scope="module")
def session():
    return Session(tiny(), context=600)


@given(
    rows=st.lists(
        st.lists(st.integers(-3, 3), min_size=9, max_size=9), min_size=1, max_size=5
    ),
    count=st.integers(1, 9),
    kind=st.sampled_from([mx.float32, mx.bfloat16, mx.float16]),
)  # fmt: skip
def test_the_likeliest_come_first_and_the_lowest_id_among_equals(rows, count, kind):
    found = top_candidates(mx.array(rows).astype(kind), count).tolist()
    assert found == [best(row, count) for row in rows]


def test_every_row_of_every_kind_of_pass_is_told(session):
    """Cold with a draft, plain, in flight, in flight and refuted, in flight and right."""
    prompt = prompt_of(12)
    plain = generate(session, prompt, CONFIGS["greedy"], PlainDrafter(), max_tokens=30)
    text = [*prompt, *plain]
    begin(session, prompt)
    session.track_candidates(NUM_CANDIDATES)

    def step(at, draft):
        context, last = text[:at], text[at]
        choices = session.choose(last, Draft.chain(draft))
        right = 0
        while right < len(draft) and draft[right] == choices[right]:
            right += 1
        session.commit(tuple(range(right)))
        return context, last, choices

    at = len(prompt) - 1
    wrong = (plain[1] + 1) % VOCABULARY
    context, last, choices = step(at, [plain[0], wrong, 5])
    assert choices[:2] == plain[:2]
    assert not session.in_flight
    expected = true_rows(session, context, [last, plain[0], wrong, 5])
    assert session.candidates() == expected  # rejected rows too
    at += 2
    for _ in range(3):  # the first finds nothing in flight
        context, last, _ = step(at, [])
        assert session.candidates() == true_rows(session, context, [last])
        assert session.in_flight
        at += 1
    context, last, choices = step(at, [(text[at + 1] + 1) % VOCABULARY, 3])
    assert choices == [text[at + 1], -1, -1]
    assert session.candidates() == true_rows(session, context, [last])
    assert session.in_flight
    at += 1
    context, last, _ = step(at, [text[at + 1], text[at + 2], 1])
    assert session.candidates() == true_rows(session, context, [last, *text[at + 1 : at + 3], 1])


def test_rows_whose_distributions_are_asked_for_are_told_too(session):
    prompt = prompt_of(12)
    begin(session, prompt, CONFIGS["sampled"])
    session.track_candidates(NUM_CANDIDATES)
    session.distributions(prompt[-1], Draft.chain([4, 5, 6]))
    expected = true_rows(session, prompt[:-1], [prompt[-1], 4, 5, 6])
    assert session.candidates() == expected
    session.commit((0,))
    session.distributions(8, Draft.empty())
    assert session.candidates() == true_rows(session, [*prompt, 4], [8])


def test_they_are_waited_for_with_the_choice_and_the_next_step_is_under_way(session, monkeypatch):
    """What is queued before the choice is read, token and candidates and total, needs no second wait."""
    prompt = prompt_of(9)
    begin(session, prompt)
    session.track_candidates(NUM_CANDIDATES)
    session.choose(prompt[-1], Draft.empty())
    session.commit(())
    assert session._in_flight.to_read.shape == (2 + NUM_CANDIDATES,)
    queued = []
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: queued.append(arrays))
    session.choose(int(session._in_flight.to_read[0].item()), Draft.empty())
    session.commit(())
    ((to_read,),) = queued
    assert to_read is session._in_flight.to_read


def test_nothing_is_looked_for_where_nobody_asks(session, monkeypatch):
    never = Mock(side_effect=AssertionError("candidates were looked for"))
    monkeypatch.setattr("akunu_py.models.row_choices.top_candidates", never)
    prompt = prompt_of(20)
    for config in CONFIGS.values():
        for drafter in (PlainDrafter(), NgramDrafter()):
            generate(session, prompt, config, drafter)
            assert session.candidates() == []
    with pytest.raises(AssertionError, match="looked for"):
        generate(session, prompt, CONFIGS["greedy"], Recorder(PlainDrafter()))
    # Nor after a reply in which somebody did.
    session.reset()
    generate(session, prompt, CONFIGS["greedy"], PlainDrafter())


@pytest.mark.parametrize("name", ["mamba2", "qwen3_next"])
def test_rows_of_undone_passes_are_told_once(name):
    session, prompt = Session(build_family(name), context=600), prompt_of(12)
    plain = generate(session, prompt, CONFIGS["greedy"], PlainDrafter(), max_tokens=40)
    drafter = Recorder(adversary("half", prompt + plain, 3))
    assert generate(session, prompt, CONFIGS["greedy"], drafter, max_tokens=40) == plain
    position = len(prompt) - 1
    text = [*prompt, *plain]
    rejected = 0
    for rows, output in zip(drafter.rows, drafter.passes, strict=True):
        told = [token for token, _ in rows]
        assert told[: len(output)] == text[position : position + len(output)]
        # Greedy: the best candidate of a row is what was chosen after it.
        assert [ids[0] for _, ids in rows[: len(output)]] == list(output)
        rejected += len(told) - len(output)
        position += len(output)
    assert rejected > 0


def test_fewer_tokens_than_candidates():
    session = Session(tiny(vocab_size=5), context=60)
    begin(session, [1, 2])
    session.track_candidates(NUM_CANDIDATES)
    session.choose(2, Draft.chain([3]))
    assert [sorted(ids) for _, ids in session.candidates()] == [[0, 1, 2, 3, 4]] * 2
    session.commit(())
