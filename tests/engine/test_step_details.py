"""Step details are put together where somebody asks for them, and are then what they were."""

import pytest
from engine_inside import factory_of

from akunu_py.decoding import loop
from akunu_py.values.types import Draft, LengthTrace

PROMPT = "def hello(world):\n    return world"
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
    line = stream.trace_line("model", "generate")
    assert len(made) == len(line.steps) == len(events)
    assert line.steps == tuple(event.step.detail for event in events)


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
