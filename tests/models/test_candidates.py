"""What the session tells drafters of the target: every row it evaluates, and nothing where nobody asks.

Mutants, made by hand, that these tests kill: rows of the draft left out, or one too many; candidates of
the step in flight lost; the choices' own token among them by mistake; ties to the highest id; the
number kept beyond `begin`.
"""

import mlx.core as mx
import pytest
from family_models import build_family
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, adversary, generate, prompt_of, tiny

from akunu_py.decoding.loop import NUM_CANDIDATES, decode
from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.lab.drafting.recycling import RecyclingDrafter
from akunu_py.models.row_choices import top_candidates
from akunu_py.models.session import Session
from akunu_py.protocols import CandidateTarget
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import Draft, GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "sampled": GenerationConfig(temperature=0.9),
    "penalties": GenerationConfig(repetition_penalty=1.3, presence_penalty=0.4),
}


@pytest.fixture(scope="module")
def session():
    return Session(tiny(), context=600)


def best(logits, count):
    """The ids of the largest, the lowest first among equals."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:count]


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


def begin(session, prompt, config=CONFIGS["greedy"], max_tokens=60):
    chain = TransformChain.from_config(config, session.vocabulary_size)
    session.begin(prompt, Sampler(chain, 7, session.vocabulary_size), max_tokens)


def true_rows(session, context, fed):
    """The candidates after each of `fed`, which follow `context`, from passes of their own."""
    rows = session.logits([*context, *fed])[len(context) :]
    return [(token, best(row, NUM_CANDIDATES)) for token, row in zip(fed, rows, strict=True)]


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
    assert session._in_flight is None
    expected = true_rows(session, context, [last, plain[0], wrong, 5])
    assert session.candidates() == expected  # rejected rows too
    at += 2
    for _ in range(3):  # the first finds nothing in flight
        context, last, _ = step(at, [])
        assert session.candidates() == true_rows(session, context, [last])
        assert session._in_flight is not None
        at += 1
    context, last, choices = step(at, [(text[at + 1] + 1) % VOCABULARY, 3])
    assert choices == [text[at + 1], -1, -1]
    assert session.candidates() == true_rows(session, context, [last])
    assert session._in_flight is not None
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
    assert session._in_flight.told.shape == (1 + NUM_CANDIDATES,)
    queued = []
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: queued.append(arrays))
    first = int(session._in_flight.told[0].item())
    session.choose(first, Draft.empty())
    session.commit(())
    ((told, total),) = queued
    assert told is session._in_flight.told
    assert total is session._in_flight.choice.total


def test_nothing_is_looked_for_where_nobody_asks(session, monkeypatch):
    def never(*_arguments):
        raise AssertionError("candidates were looked for")

    monkeypatch.setattr("akunu_py.models.row_choices.top_candidates", never)
    prompt = prompt_of(20)
    for config in CONFIGS.values():
        for drafter in (PlainDrafter(), NgramDrafter()):
            generate(session, prompt, config, drafter)
            assert session.candidates() == []
    with pytest.raises(AssertionError, match="looked for"):
        generate(session, prompt, CONFIGS["greedy"], RecyclingDrafter())
    # Nor after a reply in which somebody did.
    session.reset()
    generate(session, prompt, CONFIGS["greedy"], PlainDrafter())


class Recorder:
    """Keeps what its drafter is told, and checks the order: candidates, then the output."""

    def __init__(self, drafter):
        self.drafter = drafter
        self.propose = drafter.propose
        self.rows = []
        self.passes = []

    def observe_candidates(self, rows):
        assert len(self.passes) == len(self.rows)
        self.rows.append(list(rows))
        if isinstance(self.drafter, RecyclingDrafter):
            self.drafter.observe_candidates(rows)

    def observe(self, tokens):
        if self.rows:
            self.passes.append(tuple(tokens))
        self.drafter.observe(tokens)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("reproducible", [False, True])
def test_recycling_changes_no_token_and_is_told_of_raw_logits(name, reproducible):
    model = tiny()
    session = Session(model, context=600, reproducible=reproducible)
    for size in (1, 20):
        prompt = prompt_of(size)
        plain = generate(session, prompt, CONFIGS[name], PlainDrafter(), max_tokens=30)
        drafter = Recorder(RecyclingDrafter())
        found = generate(session, prompt, CONFIGS[name], drafter, max_tokens=30)
        assert found == plain
        assert sum(map(len, drafter.passes)) == len(found)
        # What was committed lies behind the rows that were told.
        position = len(prompt) - 1
        text = [*prompt, *found]
        for rows, output in zip(drafter.rows, drafter.passes, strict=True):
            told = [token for token, _ in rows]
            assert told[: len(output)] == text[position : position + len(output)]
            context = text[: position + 1]
            assert rows[0] == true_rows(session, context[:-1], context[-1:])[0]
            position += len(output)


@pytest.mark.parametrize("name", ["mamba2", "qwen3_next"])
def test_carried_rows_are_told_once(name):
    """Rows that are fed again after a rejection were told of when they were fed first."""
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


def test_recycling_drafts_what_no_text_holds(session):
    """A cycle of a random model's own: after one round its candidates foretell the next ones."""
    accepted = drafted = 0
    for seed in range(3):
        prompt = prompt_of(5, seed)
        begin(session, prompt, max_tokens=200)
        drafter = RecyclingDrafter()
        drafter.observe(prompt)
        for step in decode(session, drafter, prompt[-1], num_draft_tokens=4, max_tokens=200):
            drafted += step.stats.num_draft_tokens
            accepted += step.stats.num_accepted_tokens
    assert drafted > 50
    assert accepted > 10


def test_fewer_tokens_than_candidates():
    session = Session(tiny(vocab_size=5), context=60)
    begin(session, [1, 2])
    session.track_candidates(NUM_CANDIDATES)
    session.choose(2, Draft.chain([3]))
    assert [sorted(ids) for _, ids in session.candidates()] == [[0, 1, 2, 3, 4]] * 2
    session.commit(())


def test_the_session_is_a_candidate_target(session):
    assert isinstance(session, CandidateTarget)
