"""Log probabilities of a reply's tokens: those of the model's logits, however the token came about.

Mutants, made by hand, that these tests kill: the values after temperature or penalties; the rows of a
draft off by one; the first row of a tree's nodes taken for `last`; the tokens behind a stop text kept.
"""

import numpy as np
import pytest
from whole_replies import PROMPT, endless

from akunu_py.engine.drafter_factory import DrafterFactory
from akunu_py.values.types import Draft

OPTIONS = {
    "greedy": {},
    "sampled": {"temperature": 1.5, "seed": 3, "top_k": 40},
    "penalties": {"temperature": 1.2, "seed": 4, "presence_penalty": 0.5, "repetition_penalty": 2},
    "form": {"regex": "[a-z ]*"},
}
# The last one drafts trees.
DRAFTERS = ("none", "auto", "lookup", pytest.param("tree", marks=pytest.mark.lab))
NEAR = 2e-4


def expected(engine, result):
    """Log probabilities of every token after the prompt, float64 [n, vocab], by one pass."""
    prompt = engine.tokenizer.encode(PROMPT, parse_special=True)
    rows = engine.logits([*prompt, *result.token_ids])[len(prompt) - 1 : -1].astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_values_are_those_of_the_logits(engine, drafter, name):
    options = endless(engine, max_tokens=24, drafter=drafter, logprobs=3, **OPTIONS[name])
    if name == "form":
        del options["logit_bias"]
    stream = engine.stream(PROMPT, **options)
    found = [one for event in stream for one in event.logprobs]
    result = stream.result
    assert tuple(found) == result.logprobs
    assert [one.token for one in found] == list(result.token_ids)
    for one, row in zip(found, expected(engine, result), strict=True):
        assert one.logprob == pytest.approx(row[one.token], abs=NEAR)
        best = np.sort(row)[::-1][:3]
        assert [value for _, value in one.top] == pytest.approx(list(best), abs=NEAR)
        assert [row[token] for token, _ in one.top] == pytest.approx(list(best), abs=NEAR)


@pytest.mark.parametrize("drafter", DRAFTERS[1:])
def test_drafts_are_accepted_in_these_replies(engine, drafter):
    """Otherwise the rows of drafts would not be looked at."""
    options = endless(engine, max_tokens=24, drafter=drafter, logprobs=0)
    assert engine.generate(PROMPT, **options).stats.accepted


class _Turns:
    """Drafts the known text at every second step: behind a step in flight."""

    name = "turns"

    def __init__(self, text):
        self._text, self._done, self._step, self._prompt = text, 0, 0, True

    def propose(self, limit):
        self._step += 1
        ahead = self._text[self._done : self._done + min(limit, 3)]
        return Draft.empty() if self._step % 2 else Draft.chain(ahead)

    def observe(self, tokens):
        if not self._prompt:
            self._done += len(tokens)
        self._prompt = False


def test_draft_behind_a_step_in_flight(engine, monkeypatch):
    options = endless(engine, max_tokens=24, logprobs=2)
    # With a bias the host must know each token: nothing would be in flight.
    del options["logit_bias"]
    plain = engine.generate(PROMPT, drafter="none", **options)
    make = DrafterFactory.make
    monkeypatch.setattr(DrafterFactory, "make", lambda *_: _Turns(plain.token_ids))
    result = engine.generate(PROMPT, **options)
    monkeypatch.setattr(DrafterFactory, "make", make)
    assert result.stats.accepted >= 10
    assert result.token_ids == plain.token_ids
    for one, other in zip(result.logprobs, plain.logprobs, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=NEAR)
        assert one.top[0][0] == other.top[0][0]


def test_reply_is_the_same_with_and_without_them(engine):
    options = endless(engine, max_tokens=20, temperature=0.9, seed=5)
    plain = engine.generate(PROMPT, **options)
    told = engine.generate(PROMPT, logprobs=0, **options)
    assert plain.token_ids == told.token_ids
    assert plain.logprobs is None
    assert all(one.top == () for one in told.logprobs)


def test_stop_text_cuts_them_as_it_cuts_tokens(engine):
    options = endless(engine, max_tokens=30)
    text = engine.generate(PROMPT, **options).text
    stop = text[8:11]
    result = engine.generate(PROMPT, stop=("never", stop), logprobs=1, **options)
    assert result.stop_text == stop
    assert len(result.logprobs) == len(result.token_ids)
    assert result.text == text[: text.index(stop)]
