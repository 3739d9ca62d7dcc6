"""Logits that are infinite or no numbers: the law of what is left, or an error that says so.

Mutants, made by hand, that these tests kill: +inf left to become NaN; the check left out of a draw,
of greedy choices, of distributions, or of the rows of a draft; ids that are none fed to the model.
"""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from pairwise import each_value
from tiny_models import VOCABULARY, begin, prompt_of, tiny
from toy_drafters import OracleDrafter

from akunu_py.decoding.loop import make_verifier
from akunu_py.drafting import PlainDrafter
from akunu_py.models.cached_rows import Passes
from akunu_py.models.session import Session
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.types import Draft, GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "sampled": GenerationConfig(temperature=0.8),
    "filters": GenerationConfig(temperature=1.3, top_k=20, top_p=0.9, min_p=0.02),
    "penalties": GenerationConfig(temperature=0.9, repetition_penalty=1.3, presence_penalty=0.4),
    "greedy penalties": GenerationConfig(repetition_penalty=1.3, frequency_penalty=0.2),
}
PROMPT = prompt_of(9)


class Odd(nn.Module):
    """A model whose logits [1, n, vocab] are what `change(logits, position)` makes of them.

    `position` is that of the first row's token in the text.
    """

    def __init__(self, change):
        super().__init__()
        self.inner = tiny()
        self.change = change

    @property
    def layers(self):
        return self.inner.layers

    def __call__(self, inputs, cache):
        start = cache[0].offset
        return self.change(self.inner(inputs, cache=cache), start)


def only(tokens, kind=mx.float32):
    """Leave the logits of some tokens; all others become -inf."""
    dropped = mx.array([token not in tokens for token in range(VOCABULARY)])
    return lambda logits, _: mx.where(dropped, -mx.inf, logits).astype(kind)


def overflowed(tokens):
    """Logits of float16, those of some tokens too large for it."""
    large = mx.array([1e6 if token in tokens else 0.0 for token in range(VOCABULARY)])
    return lambda logits, _: (logits + large).astype(mx.float16)


def no_numbers(at, value=mx.nan):
    """One logit, or for -inf all, of the row of the token at a position is no number."""

    def change(logits, start):
        row = at - start
        if 0 <= row < logits.shape[1]:
            logits = mx.array(logits)
            logits[0, row, slice(None) if value == -mx.inf else 5] = value
        return logits

    return change


RULES = pytest.mark.parametrize(
    "rule", ["coupled", pytest.param("rejection", marks=pytest.mark.lab)]
)


def text(session, config, drafter, *, rule="coupled", max_tokens=40):
    """Decode with drafts that are verified by a rule of `draft_sampling`."""
    begin(session, PROMPT, config, max_tokens)
    drafter.observe(PROMPT)
    by_rule = GenerationConfig(draft_options={"draft_sampling": rule})
    steps = make_verifier(by_rule, 3).decode(
        session, drafter, PROMPT[-1], num_draft_tokens=5, max_tokens=max_tokens,
        position=len(PROMPT),
    )  # fmt: skip
    return [token for step in steps for token in step.token_ids]


def oracle(tokens):
    """Drafts the tokens of `tokens` in turn."""
    return OracleDrafter(lambda context: tokens[len(context) % len(tokens)], 4)


@RULES
@pytest.mark.parametrize(
    ("config", "kind"), each_value(tuple(CONFIGS.values()), (mx.float32, mx.float16, mx.bfloat16))
)
def test_where_one_token_is_possible_it_is_said(config, kind, rule):
    session = Session(Odd(only({41}, kind)), context=300)
    for drafter in (PlainDrafter(), oracle([41]), oracle([41, 7, 41, 41])):
        assert text(session, config, drafter, rule=rule, max_tokens=20) == [41] * 20


@pytest.mark.fast_every(2)
@RULES
@pytest.mark.parametrize(
    ("config", "change"), each_value(tuple(CONFIGS.values()), (only, overflowed))
)
def test_impossible_tokens_are_never_said(config, change, rule):
    possible = {3, 50, 51}
    session = Session(Odd(change(possible)), context=300)
    plain = text(session, config, PlainDrafter(), max_tokens=24)
    assert set(plain) <= possible
    drawn = text(session, config, oracle([3, 51, 9]), rule=rule, max_tokens=24)
    assert set(drawn) <= possible
    if rule == "coupled":
        assert drawn == plain
    if config.temperature:
        assert len({*plain, *drawn}) > 1


def test_overflowed_logits_share_the_probability():
    session = Session(Odd(overflowed({3, 50})), context=600)
    config = CONFIGS["sampled"]
    begin(session, PROMPT, config)
    rows = session.distributions(PROMPT[-1], Draft.chain([3, 50]))
    expected = np.zeros((3, VOCABULARY))
    expected[:, [3, 50]] = 0.5
    assert rows.tolist() == expected.tolist()
    plain = text(session, config, PlainDrafter(), max_tokens=200)
    # A standard deviation is 7.
    assert abs(plain.count(3) - 100) < 28


@RULES
@pytest.mark.parametrize(
    ("config", "value"), each_value(tuple(CONFIGS.values()), (mx.nan, -mx.inf))
)
def test_logits_that_are_no_numbers_end_the_reply(config, value, rule):
    """Whether their row is the first, is in flight, or is that of a draft; then all is well."""
    fresh = text(Session(tiny(), context=300), config, PlainDrafter(), max_tokens=7)
    model = Odd(lambda logits, _: logits)
    session = Session(model, context=300)
    last = len(PROMPT) - 1
    for at in (last, last + 1, last + 4):
        for drafter in (PlainDrafter, lambda: oracle([*PROMPT, *fresh])):
            model.change = no_numbers(at, value)
            with pytest.raises(ModelFormatError, match="no token can be chosen"):
                text(session, config, drafter(), rule=rule, max_tokens=7)
        model.change = lambda logits, _: logits
        assert text(session, config, drafter(), max_tokens=7) == fresh


@RULES
@pytest.mark.parametrize("kind", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("config", [CONFIGS["greedy"], CONFIGS["sampled"]])
def test_float32_is_advised_where_it_is_not_taken_already(config, kind, rule):
    """A draw is made in float32, whatever the model computes in."""
    last = len(PROMPT) - 1
    change = no_numbers(last + 1)
    model = Odd(lambda logits, start: change(logits, start).astype(kind))
    session = Session(model, context=300)
    for drafter in (PlainDrafter(), oracle([*PROMPT, *range(12)])):
        with pytest.raises(ModelFormatError, match="no token can be chosen") as error:
            text(session, config, drafter, rule=rule, max_tokens=12)
        assert ("compute-type float32" in str(error.value)) == (kind != mx.float32)
        assert "file is damaged" in str(error.value)


def test_what_is_fed_behind_no_choice_is_an_id(monkeypatch):
    """The pass over a token that is being chosen is queued before it is known to be none."""
    session = Session(Odd(no_numbers(len(PROMPT) - 1)), context=300)
    begin(session, PROMPT, CONFIGS["sampled"], 12)
    fed, run = [], Passes.run
    monkeypatch.setattr(
        Passes, "run", lambda passes, rows: fed.append(rows.tokens) or run(passes, rows)
    )
    with pytest.raises(ModelFormatError):
        session.choose(PROMPT[-1], Draft.empty())
    assert len(fed) == 2
    assert all(0 <= token < VOCABULARY for rows in fed for token in rows.tolist())
