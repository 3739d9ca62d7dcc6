"""Drafts of Gemma 4's assistant: right wherever they can be, and never a changed token.

`assistants` has targets whose next token is known, and assistants that know it by the last token,
by the target's state, or by the values of the row before, which their queries look for at its
distance. So a row too few or too many, a stale one or one of another text, a state or a place that
is off by one: each is a wrong guess.

Mutants, made by hand, that these tests and test_assistants.py kill (each was tried):

- of the model: the state of a row later or earlier; states of an earlier reply kept; all but the
  last state dropped; a row more or less; a place more or less, or one that grows with the draft;
  the target's state fed back in place of the assistant's own; rows kept between draws;
- of the rows read: the last rows of the cache whatever was asked for; a window in the order of its
  ring; a window of one row more, or of all; unsettled rows; a copy of the rows as the reply begins;
- of the assistant: the first layer of a kind in place of the last with keys; another layer's cache;
  an embedding that is not scaled; its own rotation; the state before the embedding; states from
  before the norm; the unlikeliest clusters, or others filled in above them.
"""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from assistants import (
    assistant_model,
    kept_rows,
    markov_gemma,
    matched_assistant,
    random_assistant,
    tiny_gemma,
)
from checked_drafts import (
    CheckedDrafter,
    check_conversations,
    check_tokens_after_another_drafters,
    interrupt_a_draw,
)
from markov_heads import SIZE, markov_target, reply, text_from
from mlx_lm.models.cache import QuantizedKVCache

from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter, RowReader
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.hidden_states import SessionRows
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import GenerationConfig

LOOKING = ["sliding_attention", "full_attention"]
READS = [
    pytest.param(reads, marks=() if reads in {"state", "full_attention"} else pytest.mark.slow)
    for reads in ("token", "state", *LOOKING)
]
SAMPLED = GenerationConfig(temperature=0.8)
NOISE = 0.05
"""Of logits of random assistants, from rounding in the target; a wrong row changes them by 1.4 or
more."""
PENALTIES = GenerationConfig(temperature=0.8, repetition_penalty=1.1, frequency_penalty=0.2)


@pytest.fixture(scope="module", params=["small", "large"])
def target(request):
    return markov_gemma(request.param)


@pytest.fixture(scope="module")
def large():
    return markov_gemma("large")


class Watched(CheckedDrafter):
    """Checks each draft against the text that must follow, and changes its length.

    It drops tokens, adds wrong ones and sometimes all, so that some or all rows are rejected. An
    assistant that looks back guesses one token.
    """

    def __init__(self, model, reads, *, spoils=True):
        super().__init__(
            model, silent=0.3 if spoils else 0, num_draft_tokens=1 if "attention" in reads else 4
        )
        self._spoils = spoils

    def checked(self, draft, limit):
        right = text_from(self.text[-1], 8)[1:]
        assert list(draft.tokens) == right[: len(draft)], self.text
        assert not self._model._kept
        if not draft.tokens:
            # The whole prompt was cached: the state that the first draft begins with is not known.
            assert self.num_steps == 0
            return draft
        return self.spoiled(right[:4], SIZE).first(limit) if self._spoils else draft


def drafted(target, reads, **options):
    return Watched(assistant_model(matched_assistant(target, reads=reads)), reads, **options)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("reads", [*READS, "full_attention, two rows back"])
def test_every_guess_of_a_matched_assistant_is_right(target, reads):
    """At each depth, after rejections, in flight or not, before and behind the end of a window."""
    session = Session(target, context=600)
    for spoils in (False, True):
        for size in (3, 21):
            drafter = drafted(target, reads, spoils=spoils)
            found, steps = reply(session, drafter, text_from(3, size), max_tokens=60)
            assert found == text_from(found[0], 60)
            accepted = [step.num_accepted_tokens for step in steps]
            if spoils:
                assert {0, 1, 2, 3} <= set(accepted)
            else:
                assert set(accepted) <= {drafter.num_draft_tokens, 0, 3}
                # The end of the reply leaves room for fewer.
                assert sum(accepted) >= 29
            assert drafter.drafts > 10


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("reads", READS)
def test_reproducible_passes(large, reads):
    session = Session(large, context=600, reproducible=True)
    for size in (21, 25):
        drafter = drafted(large, reads)
        found, _ = reply(session, drafter, text_from(3, size), max_tokens=60)
        assert found == text_from(found[0], 60)
        assert drafter.drafts > 10


@pytest.mark.parametrize("reads", READS)
def test_nothing_in_flight(large, reads):
    """Penalties ask for each token before the next pass; these are too weak to change one."""
    weak = GenerationConfig(repetition_penalty=1.0001)
    drafter = drafted(large, reads)
    found, _ = reply(Session(large, context=600), drafter, text_from(3, 21), weak, max_tokens=60)
    assert found == text_from(found[0], 60)
    assert drafter.drafts > 10


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("reads", READS)
def test_conversations_go_on_and_back(large, reads):
    model = assistant_model(matched_assistant(large, reads=reads))
    check_conversations(Session(large, context=600), partial(Watched, model, reads))


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("reads", READS)
def test_rows_of_other_conversations(large, reads):
    """As a server exchanges them between two replies, with one assistant for both."""
    session = Session(large, context=600)
    model = assistant_model(matched_assistant(large, reads=reads))
    reply(session, Watched(model, reads), text_from(3, 31), max_tokens=20)
    rows = session.exchange(None)
    reply(session, Watched(model, reads), text_from(9, 12), max_tokens=50)
    for held in (rows, session.copy(rows, 30)):
        session.exchange(held)
        drafter = Watched(model, reads)
        prompt = [*text_from(3, 31), 5, *text_from(9, 2)]
        found, _ = reply(session, drafter, prompt, max_tokens=30)
        assert found == text_from(prompt[-1], 31)[1:]
        assert drafter.drafts > 3


class Compared(CheckedDrafter):
    """Compares each draft with that of an assistant over rows of one pass over the whole text.

    By the logits of each token: this random assistant makes a thousandth of what is rounding in its
    rows, and may then draw another of two almost equally likely tokens, and go on from there.
    """

    def __init__(self, model, target, assistant):
        super().__init__(model, seed=6)
        self._target, self._assistant, self.logits = target, assistant, []
        own = type(assistant).logits

        def logits(states):
            self.logits.append(own(assistant, states))
            return self.logits[-1]

        assistant.logits = logits

    def draft(self, limit):
        self.logits.clear()
        return super().draft(limit)

    def checked(self, draft, limit):
        states, kept = kept_rows(self._target, self._assistant, self.text[:-1])
        fresh = assistant_model(self._assistant)
        fresh.begin_states(self.text, 0)
        fresh.observe_states(states, 0, len(self.text) - 1)
        # What it reads is that pass alone.
        fresh.use_rows(Given([kept[kind] for kind in self._assistant.sources]))
        list(fresh.beginning(self.text, self._sampling))
        found, expected = list(draft.tokens), fresh.draw(min(4, limit))
        assert len(self.logits) == 2 * len(found) == 2 * len(expected)
        for place, token in enumerate(expected):
            np.testing.assert_allclose(
                *self.logits[place :: len(found)], rtol=0, atol=NOISE, err_msg=str(place)
            )
            if token.token != found[place]:
                break
        return draft


class Given:
    """Rows that are given in the order of the assistant's sources."""

    def __init__(self, arrays):
        self._arrays = iter(arrays)

    def read(self, cache, end, most=None):
        return next(self._arrays)


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("name", ["small", "large"])
def test_drafts_are_those_over_one_pass(name, clusters):
    """Whatever was drafted and rejected before; guesses depend on all rows."""
    target = tiny_gemma(name)
    assistant = random_assistant(target, clusters=clusters)
    session, model = Session(target, context=600), assistant_model(assistant)
    prompt = [number * 7 % 96 for number in range(30)]
    for _ in range(2):
        drafter = Compared(model, target, assistant)
        found, _ = reply(session, drafter, prompt, SAMPLED, max_tokens=20)
        assert drafter.drafts > 5
        prompt = [*prompt, *found, 5, 6]


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    "config", [GenerationConfig(), SAMPLED, PENALTIES], ids=["greedy", "sampled", "penalties"]
)
@pytest.mark.parametrize("name", ["small", "large"])
def test_a_random_assistant_changes_no_token(name, config):
    target = tiny_gemma(name)
    session = Session(target, context=600)
    model = assistant_model(random_assistant(target, clusters=name == "small"))
    prompt = [number * 7 % 96 for number in range(30)]
    plain, _ = reply(session, PlainDrafter(), prompt, config)
    found, steps = reply(session, PredictionHeadDrafter(model), prompt, config)
    assert found == plain
    assert sum(step.num_draft_tokens for step in steps) > 40


@pytest.mark.parametrize("reads", ["token", "state"])
def test_tokens_after_another_drafters(large, reads):
    drafter = PredictionHeadDrafter(assistant_model(matched_assistant(large, reads=reads)))
    check_tokens_after_another_drafters(Session(large, context=600), drafter)


def test_an_interrupted_draw_leaves_nothing_behind(large, monkeypatch):
    session = Session(large, context=600)
    drafter = drafted(large, "full_attention", spoils=False)
    interrupt_a_draw(session, drafter, monkeypatch)
    assert not drafter._model._kept
    again = Watched(drafter._model, "full_attention")
    found, _ = reply(session, again, [9, 8, *text_from(3, 21)])
    assert found == text_from(found[0], 40)
    assert again.drafts > 5


def test_rows_that_are_not_held(large):
    session = Session(large, context=600)
    rows = SessionRows(lambda: session.rows)
    reply(session, PlainDrafter(), text_from(3, 21), max_tokens=5)
    assert rows.read(0, int(session.rows.caches[0].offset) + 1) is None
    assert rows.read(0, 0) is None
    keys, values = rows.read(1, 7, 3)
    # The last three of seven rows, as the cache has them.
    cache = session.rows.caches[1]
    assert mx.array_equal(keys, cache.keys[..., 4:7, :])
    assert mx.array_equal(values, cache.values[..., 4:7, :])
    session.rows.settled = False
    assert rows.read(0, 5) is None


def test_a_window_is_read_in_order(large):
    """After single rows, which lie as in a ring, and after several."""
    caches = large.make_cache()
    holder = CachedRows(large)
    holder.caches = caches
    rows = SessionRows(lambda: holder)
    text = text_from(3, 60)
    expected = large.make_cache()
    large(mx.array([text]), cache=expected)
    done = 0
    for size in (5, 1, 1, 20, *[1] * 21, 4, 1, 1):
        large(mx.array([text[done : done + size]]), cache=caches)
        done += size
        for end in (done, done - 1):
            keys, values = rows.read(0, end, 15)
            start = max(0, end - 15)
            assert keys.shape[2] == end - start
            for found, whole in ((keys, expected[0].keys), (values, expected[0].values)):
                assert mx.allclose(found, whole[..., start:end, :], atol=1e-5)


def test_caches_that_it_cannot_read():
    session = Session(markov_target(), context=600)
    rows = SessionRows(lambda: session.rows)
    session.rows.caches[0] = QuantizedKVCache()
    session.rows.caches[0].offset = 5
    with pytest.raises(ConfigError, match="the rows in a QuantizedKVCache; leave heads out"):
        rows.read(0, 2)


def test_what_an_assistant_model_refuses(large):
    model = assistant_model(matched_assistant(large, reads="token"))
    assert isinstance(model, RowReader)
    with pytest.raises(ContractError, match="states are a list, not an array"):
        model.observe_states([1.0], 0, 1)
    # Nobody has handed over rows, or states.
    drafter = PredictionHeadDrafter(model)
    drafter.begin_reply(GenerationConfig(), 1)
    drafter.observe([1, 2, 3])
    assert not drafter.propose(4).tokens
    model.close()
    with pytest.raises(ContractError, match="the prediction head was closed"):
        _ = model.hidden
