"""Pieces of a reply's events, with every drafter: their texts are the reply, their sources its drafts."""

import pytest

from akunu_py.drafting.registry import BUILT_IN

PROMPT = "def hello(world):\n    return world"


@pytest.mark.parametrize("drafter", BUILT_IN)
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
    plain = engine.generate(PROMPT, max_tokens=30, drafter="none")
    assert plain.estimated_plain_s is None
    budgeted = engine.generate(PROMPT, max_tokens=120, temperature=1.0, seed=2)
    assert (budgeted.estimated_plain_s is None) == (not budgeted.stats.drafted)
    assert budgeted.estimated_plain_s is None or budgeted.estimated_plain_s > 0


def test_what_plain_decoding_would_have_taken_is_estimated_for_longer_replies(engine):
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    options = {"max_tokens": 60, "logit_bias": never, "temperature": 0.9, "seed": 5}
    for _ in range(3):
        result = engine.generate(PROMPT, **options)
    assert result.stats.drafted
    assert 0.1 < result.estimated_plain_s / result.decode_s < 10
    assert engine.generate(PROMPT, **options | {"max_tokens": 20}).estimated_plain_s is None
