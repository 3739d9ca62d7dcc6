"""Pieces of a reply's events, and details of its steps, with every drafter."""

import itertools

import pytest
from engine_inside import factory_of

from akunu_py.decoding import loop
from akunu_py.decoding.loop import decode
from akunu_py.drafting.registry import DrafterKind
from akunu_py.values.types import Draft, LengthTrace

PROMPT = "def hello(world):\n    return world"


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("drafter", DrafterKind.names("text", "candidates"))
@pytest.mark.parametrize("options", [{}, {"stop": ("e", "lo w")}, {"max_tokens": 7}], ids=str)
def test_pieces_joined_are_the_text(engine, drafter, options):
    options = {"max_tokens": 40, "temperature": 1.2, "seed": 4, **options}
    stream = engine.stream(PROMPT, drafter=drafter, draft_budget="always", **options)
    events = list(stream)
    for event in events:
        assert "".join(piece.text for piece in event.pieces) == event.text
        sources = {piece.source for piece in event.pieces} - {""}
        assert len(sources) <= event.step.num_accepted_tokens
    assert "".join(piece.text for event in events for piece in event.pieces) == stream.result.text
    if drafter == "none":
        assert not any(piece.source for event in events for piece in event.pieces)


def test_accepted_drafts_have_their_drafters_name(engine):
    engine.forget()
    options = {"max_tokens": 60, "temperature": 1.5, "seed": 5, "draft_budget": "always"}
    engine.generate(PROMPT, **options)
    events = list(engine.stream(PROMPT, **options))
    named = {piece.source for event in events for piece in event.pieces} - {""}
    assert named
    told = set()
    for event in events:
        detail = event.step.detail
        told |= {token.source or detail.source for token in detail.drafted if token.accepted}
    assert named <= told


def test_times_of_a_reply(engine):
    result = engine.generate(PROMPT, max_tokens=30, draft_budget="always", drafter="ngram")
    assert result.prefill_s < result.time_to_first_token_s < result.prefill_s + result.decode_s


def test_what_drafting_saved_is_told_once_enough_drafts_were_timed(engine, monkeypatch):
    # Of a step's five looks at this clock, the third is behind its pass: 0.02 s for any number of
    # rows, so that drafts pay.
    now = itertools.accumulate(itertools.cycle((1e-6, 1e-6, 0.02, 1e-6, 1e-6)))
    monkeypatch.setitem(decode.__kwdefaults__, "clock", lambda: next(now))
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    options = {"max_tokens": 90, "logit_bias": never, "temperature": 0.9, "seed": 5}
    for _ in range(8):
        result = engine.generate(PROMPT, **options)
        if result.time_saved is not None:
            break
    assert result.stats.drafted
    low, high = result.time_saved
    assert low <= high <= 1 - 1 / result.stats.tokens_per_pass + 1e-9
    assert engine.generate(PROMPT, **options, drafter="none").time_saved is None
    assert engine.generate(PROMPT, **options, draft_budget="always").time_saved is None


def test_a_copy_of_the_prompt_says_of_which_token(engine):
    engine.forget()
    prompt = engine.tokenizer.encode(f"{PROMPT}\n{PROMPT}\n{PROMPT}")
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    found = 0
    for event in engine.stream(prompt, max_tokens=60, draft_budget="always", logit_bias=never):
        for drafted in event.step.detail.drafted:
            from_prompt = (drafted.source or event.step.source) == "prompt"
            assert (drafted.place is not None) == from_prompt
            # A run of copies may go on behind the prompt, in the reply.
            if from_prompt and drafted.place < len(prompt):
                found += 1
                assert prompt[drafted.place] == drafted.token
        assert all("place" not in token for token in event.step.detail.to_dict()["drafted"])
        for piece in event.pieces:
            assert (piece.place >= 0) == (piece.source == "prompt")
    assert found > 5


OPTIONS = {"max_tokens": 40, "temperature": 1.2, "seed": 4, "drafter": "ngram"}


@pytest.fixture
def made(monkeypatch):
    """The positions of the steps whose details were put together, in order."""
    positions = []
    put_together = loop.step_detail

    def counted(draft, verification, position, *rest):
        positions.append(position)
        return put_together(draft, verification, position, *rest)

    monkeypatch.setattr(loop, "step_detail", counted)
    return positions


def test_nothing_is_put_together_for_a_reply_that_nobody_traces(engine, made):
    engine.generate(PROMPT, **OPTIONS, draft_budget="always")
    for event in engine.stream(PROMPT, **OPTIONS, draft_budget="always"):
        assert event.step.num_output_tokens
    assert made == []


def test_a_step_is_put_together_when_asked_for(engine, made):
    events = list(engine.stream(PROMPT, **OPTIONS, draft_budget="always"))
    detail = events[3].step.detail
    assert made == [detail.position]
    assert detail.token == events[3].token_ids[-1]


def test_details_asked_for_late_are_those_of_their_steps(engine):
    """Also where the text of the reply ended within a step."""
    options = {**OPTIONS, "draft_budget": "always", "stop": ("ld",)}
    at_once = [event.step.detail for event in engine.stream(PROMPT, **options)]
    events = list(engine.stream(PROMPT, **options))
    assert [event.step.detail for event in events] == at_once
    assert any(detail.drafted for detail in at_once)


def test_a_trace_has_every_step(engine, made):
    stream = engine.stream(PROMPT, **OPTIONS, draft_budget="always")
    events = list(stream)
    steps = stream.trace_record("model", "generate", None, None, "")["steps"]
    assert len(made) == len(steps) == len(events)
    assert steps == [event.step.detail.to_dict() for event in events]


def test_a_length_is_that_of_its_own_step(engine, monkeypatch):
    """What a drafter says of its latest draft is asked while that is the latest."""

    class Teller:
        drafts = 0

        def observe(self, tokens):
            pass

        def propose(self, limit):
            self.drafts += 1
            length = LengthTrace(0.5, 0.5, self.drafts)
            return Draft.chain(range(min(limit, 2)), "teller", length=length)

    monkeypatch.setattr(type(factory_of(engine)), "make", lambda *_: Teller())
    events = list(engine.stream(PROMPT, **OPTIONS, draft_budget="always"))
    gammas = [event.step.detail.gamma for event in events if event.step.num_draft_tokens]
    assert gammas == list(range(1, len(gammas) + 1))
    assert len(gammas) > 5
