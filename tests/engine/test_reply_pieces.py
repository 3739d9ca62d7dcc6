"""Pieces of a reply's events, with every drafter: their texts are the reply, their sources its drafts."""

import itertools

import pytest

from akunu_py.decoding.loop import decode
from akunu_py.drafting.registry import DrafterKind

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
