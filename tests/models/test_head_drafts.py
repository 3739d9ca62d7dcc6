"""Drafts of a prediction head: right wherever they can be, and never a changed token.

`markov_heads` has targets whose next token is known, and heads that know it by a pair's token or by
its state alone. So every guess must be right, and a pair that is off by one is a wrong guess.

Mutants, made by hand, that these tests and test_hidden_states.py kill (each was tried):

- of the head's cache: a pair with token i; the last pair kept; drafted slots kept; the slot of the
  last token's pair kept; a slot too few dropped; waiting states of another text kept; rows of
  another text, or rows that were never seen, taken for seen; the first state taken for that of row 0;
- of a draw: the target's state, or the first of several, fed back in place of the head's own; logits
  of the first pair; draws one position late; an interrupted cache used again;
- of the session: states a row early, or from the beginning of the pass; a
  block taken to begin at the row; states of a plain step, or of a commit, not handed; those of a
  paused pass handed; states from before the norm for those behind it; the norm not put back; trees
  taken.
"""

from functools import partial
from types import SimpleNamespace

import mlx.core as mx
import pytest
from checked_drafts import (
    CheckedDrafter,
    check_conversations,
    check_tokens_after_another_drafters,
    interrupt_a_draw,
)
from dflash_heads import random_dflash, random_dflash2, random_dspark
from eagle_heads import matched_eagle, random_eagle
from family_models import build_family
from markov_heads import (
    SIZE,
    foreign_head,
    markov_target,
    matched_head,
    reply,
    text_from,
    token_model,
)
from mlx_lm.models.cache import RotatingKVCache
from prediction_heads import TARGETS, random_head, tiny_target
from small_limits import set_turns
from tiny_models import VOCABULARY, prompt_of, tiny

from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.models.heads import make_head_model
from akunu_py.models.heads.families import family_of
from akunu_py.models.hidden_states import StateTap
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft, GenerationConfig

READS = ["token", "state"]
ALL = [*READS, "layers"]
"""What a matched head reads; an EAGLE-3 head reads the states between layers."""
SAMPLED = GenerationConfig(temperature=0.8)
PENALTIES = GenerationConfig(temperature=0.8, repetition_penalty=1.1, frequency_penalty=0.2)


CONFIGS = [GenerationConfig(), SAMPLED, PENALTIES]


class Watched(CheckedDrafter):
    """Checks each draft against the text that must follow, and the place of the head's cache.

    Then it may spoil the draft, so that some or all of its tokens are rejected.
    """

    def __init__(self, model, *, spoils=True):
        super().__init__(model, silent=0.3 if spoils else 0)
        self._spoils = spoils
        self.first = 0

    def checked(self, draft, limit):
        assert list(draft.tokens) == text_from(self.text[-1], 1 + len(draft))[1:], self.text
        held = inside(self._model)
        if not draft.tokens:
            # The whole prompt was cached: the state that the first draft begins with is not known.
            assert self.num_steps == 0
            assert self.first + held.slots == len(self.text) - 1
            return draft
        # A slot for each token but the first two: the pair of the last token is fed by each draft.
        # What the draft itself fed lies behind.
        assert self.first + held.slots == len(self.text) - 2
        assert held.cached == held.slots + held.drawn
        return self.spoiled(draft.tokens, SIZE) if self._spoils else draft


def inside(model):
    """What a head's model holds: pairs fed and drawn, rows cached, states that wait."""
    return SimpleNamespace(
        slots=model._num_slots, drawn=model._num_drawn, cached=model._caches[0].offset,
        first=model._first_state, waiting=len(model._states),
    )  # fmt: skip


def matched(target, reads):
    return matched_eagle(target) if reads == "layers" else matched_head(target, reads=reads)


@pytest.fixture(scope="module")
def llama():
    return markov_target()


FAMILIES = [
    pytest.param("llama"),
    pytest.param("qwen3_next"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (*TARGETS, "qwen3", "llama, sliding", "llama4", "mamba2")
        if name not in {"llama", "qwen3_next"}
    ),
]


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        *(pytest.param(*name.values, reads, marks=name.marks) for name in FAMILIES for reads in READS),
        ("llama", "layers"), ("qwen3", "layers"),
    ],
)  # fmt: skip
def test_every_guess_of_a_matched_head_is_right(name, reads):
    """At each depth, after rejections, and where accepted rows are kept of a pass."""
    target = markov_target(name)
    # The heads of families that have none are those of a llama.
    own = target if family_of(target) else markov_target("llama")
    session, model = Session(target, context=600), token_model(matched(own, reads))
    for spoils in (False, True):
        drafter = Watched(model, spoils=spoils)
        found, steps = reply(session, drafter, text_from(3, 21))
        assert found == text_from(found[0], len(found))
        assert drafter.drafts > 5
        accepted = [step.num_accepted_tokens for step in steps]
        if spoils:
            assert {0, 1, 2, 3} <= set(accepted)
        else:
            assert accepted == [4] * 8


@pytest.mark.parametrize("reads", ALL)
def test_reproducible_passes(llama, reads):
    session = Session(llama, context=600, reproducible=True)
    drafter = Watched(token_model(matched(llama, reads)))
    found, _ = reply(session, drafter, text_from(3, 21))
    assert found == text_from(found[0], 40)
    assert drafter.drafts > 5


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(
    ("name", "reads"),
    [*((name, reads) for name in ("llama", "qwen3_next") for reads in READS), ("llama", "layers")],
)
def test_conversations_go_on_and_back(name, reads):
    target = markov_target(name)
    model = token_model(matched(target, reads))
    # `Watched` sees that what came before was kept, as far as the target kept it.
    check_conversations(Session(target, context=600), partial(Watched, model))
    assert inside(model).first == 0


def test_a_prompt_is_fed_once_and_beside_the_targets_passes(llama, monkeypatch):
    set_turns(monkeypatch, rows=20)
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    sizes = []
    run = model._run
    monkeypatch.setattr(
        model, "_run", lambda states, tokens: (sizes.append(tokens.size), run(states, tokens))[1]
    )
    drafter = Watched(model, spoils=False)
    prompt = text_from(3, 61)
    reply(session, drafter, prompt, max_tokens=6)
    # 60 pairs; the last of them begins the first draft.
    assert sizes == [20, 20, 19, 1, 1, 1, 1]
    sizes.clear()
    prompt = text_from(3, 70)
    reply(session, Watched(model, spoils=False), prompt, max_tokens=6)
    # Six tokens of the reply, three of the prompt, and the pair of the first draft.
    assert sizes == [9, 1, 1, 1, 1]
    assert inside(model).slots == 68


def test_states_that_wait_are_fed_before_they_are_many(llama, monkeypatch):
    """Nothing is drafted for long."""
    set_turns(monkeypatch, rows=16)
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    drafter, propose = Watched(model, spoils=False), Watched.propose
    waiting = []

    def seldom(limit):
        waiting.append(inside(model).waiting)
        return propose(drafter, limit) if len(waiting) == 50 else Draft.empty()

    drafter.propose = seldom
    reply(session, drafter, text_from(3, 21), max_tokens=60)
    assert drafter.drafts == 1
    assert max(waiting) <= 18


def goes_on(session, model, said, first):
    """The head drafts rightly for what follows a text, though it lacks states before `first`."""
    drafter = Watched(model, spoils=False)
    drafter.first = first
    prompt = [*said, 5, *text_from(9, 2)]
    found, _ = reply(session, drafter, prompt, max_tokens=12)
    assert found == text_from(prompt[-1], 13)[1:]
    assert drafter.drafts > 1


def test_rows_that_the_head_never_saw(llama):
    """Another reply, without the head, put them into the target's caches."""
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    reply(session, Watched(model), text_from(3, 21), max_tokens=10)
    reply(session, PlainDrafter(), text_from(3, 50), max_tokens=10)
    goes_on(session, model, text_from(3, 59), 59)
    assert inside(model).first == 59


def test_rows_that_another_reply_added_to_the_same_prompt(llama):
    """The head's own reply ended within the prompt: of the rest it has no states."""
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    before = text_from(3, 59)
    model.begin_states(before, 0)
    model.observe_states(mx.eye(SIZE)[mx.array(before[:10])][None], 0, 10)
    reply(session, PlainDrafter(), before, max_tokens=10)
    goes_on(session, model, before, 59)


def test_a_reply_without_states_takes_none_of_another(llama):
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    reply(session, Watched(model, spoils=False), text_from(3, 21), max_tokens=10)
    drafter = PredictionHeadDrafter(model)
    for size in range(28, 34):
        # As many rows as those whose last states wait.
        drafter.begin_reply(GenerationConfig(), 1)
        drafter.observe(text_from(9, size))
        assert not drafter.propose(4).tokens


def test_nothing_is_drawn_from_the_state_of_an_earlier_row(llama):
    model = token_model(matched_head(llama, reads="state"))
    drafter, prompt = PredictionHeadDrafter(model), text_from(3, 21)
    drafter.begin_states(prompt, 0)
    model.observe_states(mx.eye(SIZE)[mx.array(prompt[:20])][None], 0, 20)
    drafter.begin_reply(GenerationConfig(), 1)
    drafter.observe(prompt)
    assert list(drafter.propose(4).tokens) == text_from(prompt[-1], 5)[1:]
    # The target has not handed over the state before this token.
    drafter.observe([5, 6])
    assert not drafter.propose(4).tokens


@pytest.mark.parametrize("shared", [0, 29])
def test_rows_of_another_conversation(llama, shared):
    """As the server exchanges them; 30 rows of the first, of which the second shares some."""
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    reply(session, Watched(model), text_from(3, 21), max_tokens=10)
    rows = session.exchange(None)
    reply(session, Watched(model), [*text_from(3, 31)[:shared], *text_from(9, 12)], max_tokens=10)
    session.exchange(rows)
    goes_on(session, model, text_from(3, 31), 30)


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("config", [SAMPLED, PENALTIES], ids=["sampled", "penalties"])
@pytest.mark.parametrize("seed", [1, 2])
def test_coupled_draws_of_a_head_with_the_targets_distribution(config, seed):
    """The head's q is the target's p, and both use the same noise."""
    target = markov_target(sharpness=0.4)
    session, model = Session(target, context=600), token_model(matched_head(target, reads="token"))
    # In another session: of rows that are cached already the head would not see the states.
    other = Session(target, context=600)
    plain, _ = reply(other, PlainDrafter(), text_from(3, 21), config, seed=seed)
    drafter = PredictionHeadDrafter(model)
    found, steps = reply(session, drafter, text_from(3, 21), config, seed=seed)
    assert found == plain
    assert found != text_from(found[0], 40)
    assert [step.num_accepted_tokens for step in steps] == [4] * 8


EAGLE = "EAGLE-3, qwen3"
BLOCKS = {
    "DFlash, qwen3": random_dflash,
    "DFlash 2, qwen3": random_dflash2,
    "DSpark, qwen3": partial(random_dspark, vocabulary=48),
}
"""Llamas with such heads are in test_rollback_matrix.py."""


def random_pair(name):
    """A random target and head; the output of an EAGLE-3 head covers half of the tokens."""
    kind, _, family = name.rpartition(", ")
    if not kind:
        target = tiny_target(name)
        return target, random_head(target)
    target = build_family(family)
    make = BLOCKS.get(name, partial(random_eagle, vocabulary=48))
    return target, make(target)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("config", CONFIGS, ids=["greedy", "sampled", "penalties"])
@pytest.mark.parametrize(
    "name",
    [
        "mimo",
        EAGLE,
        *BLOCKS,
        *(pytest.param(n, marks=pytest.mark.slow) for n in TARGETS if n != "mimo"),
    ],
)
def test_a_random_head_changes_no_token(name, config):
    target, head = random_pair(name)
    session = Session(target, context=600)
    model = make_head_model(head, context=600, vocabulary_size=VOCABULARY)
    prompt = prompt_of(30)
    rates = []
    for seed in (1,) if config.temperature == 0 else (1, 2):
        plain, _ = reply(session, PlainDrafter(), prompt, config, seed=seed)
        found, steps = reply(session, PredictionHeadDrafter(model), prompt, config, seed=seed)
        assert found == plain
        assert sum(step.num_draft_tokens for step in steps) > 40
        accepted = sum(step.num_accepted_tokens for step in steps)
        rates.append(accepted / sum(step.num_tested_tokens for step in steps))
    # By chance one in 97. Draws that share the target's noise agree more often.
    assert sum(rates) / len(rates) < (0.1 if config.temperature == 0 else 0.5)


class Compared(CheckedDrafter):
    """Compares each draft with that of a fresh head, to which the whole text is new."""

    def __init__(self, model, target, head):
        super().__init__(model, seed=6)
        self._target, self._fresh = target, head

    def checked(self, draft, limit):
        tap = StateTap(self._target, self.hidden)
        with tap.listening():
            self._target(mx.array([self.text[:-1]]))
        fresh = token_model(self._fresh, size=VOCABULARY)
        fresh.begin_states(self.text, 0)
        fresh.observe_states(tap.states, 0, len(self.text) - 1)
        list(fresh.beginning(self.text, self._sampling))
        assert list(draft.tokens) == [token.token for token in fresh.draw(min(4, limit))]
        return draft


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    "name",
    ["mimo", EAGLE, *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen3_5", "deepseek_v3"))],
)
def test_drafts_are_those_of_a_fresh_head(name):
    """Whatever was drafted and rejected before; this head's guesses depend on all slots."""
    target, head = random_pair(name)
    session, model = Session(target, context=600), token_model(head, size=VOCABULARY)
    prompt = prompt_of(30)
    for _ in range(2):
        drafter = Compared(model, target, head)
        found, _ = reply(session, drafter, prompt, SAMPLED, max_tokens=20)
        assert drafter.drafts > 5
        prompt = [*prompt, *found, 5, 6]
        assert inside(model).first == 0


def test_raw_states():
    """A head that takes the states from before the last norm."""
    target = markov_target()
    head = matched_head(target, reads="state")
    head.takes = "raw"
    target.model.norm.weight = mx.zeros(SIZE)
    session, model = Session(target, context=600), token_model(head)
    drafter = PredictionHeadDrafter(model)
    assert drafter.hidden == "raw"
    prompt = text_from(3, 21)
    drafts, propose = [], drafter.propose
    drafter.propose = lambda limit: (drafts.append(propose(limit)), drafts[-1])[1]
    # Its normed states, and so its own logits, are all zero.
    found, _ = reply(session, drafter, prompt, max_tokens=6)
    assert found == [0] * 6
    assert drafts[0].tokens == tuple(text_from(prompt[-1], 5)[1:])


def test_tokens_after_another_drafters(llama):
    for reads in ALL:
        drafter = PredictionHeadDrafter(token_model(matched(llama, reads)))
        check_tokens_after_another_drafters(Session(llama, context=600), drafter)


def test_an_interrupted_draw_begins_anew(llama, monkeypatch):
    session, model = Session(llama, context=600), token_model(matched_head(llama, reads="state"))
    drafter = PredictionHeadDrafter(model)
    interrupt_a_draw(session, drafter, monkeypatch)
    # Within the same reply nothing is drafted from caches whose content is unknown.
    assert not drafter.propose(4).tokens
    watched = Watched(model)
    reply(session, watched, [9, 8, *text_from(3, 21)])
    assert watched.drafts > 5


def test_a_target_without_states_gets_no_drafts(llama):
    """Such as a toy target."""
    drafter = PredictionHeadDrafter(token_model(matched_head(llama, reads="token")))
    drafter.begin_reply(GenerationConfig(), 1)
    drafter.observe([1, 2, 3])
    assert drafter.propose(4) == Draft.chain((), "mtp", 0, ())


def test_what_a_head_model_refuses(llama):
    head = matched_head(llama, reads="token")
    model = token_model(head)
    with pytest.raises(ContractError, match="states are a list, not an array"):
        model.observe_states([1.0], 0, 1)
    model.close()
    with pytest.raises(ContractError, match="the prediction head was closed"):
        model.begin_states([1, 2], 0)
    with pytest.raises(ContractError, match="'mtp' was not told how the reply is sampled"):
        PredictionHeadDrafter(token_model(head)).observe([1])
    head.make_cache = lambda: [RotatingKVCache(16)]
    with pytest.raises(ConfigError, match="in a cache that cannot drop rows; leave heads out"):
        token_model(head)


def test_a_head_that_is_not_a_number(llama, caplog):
    head = matched_head(llama, reads="token")
    head.eh_proj.weight = head.eh_proj.weight * float("nan")
    session, drafter = Session(llama, context=600), PredictionHeadDrafter(token_model(head))
    found, steps = reply(session, drafter, text_from(3, 21), max_tokens=10)
    assert found == text_from(found[0], 10)
    assert not any(step.num_draft_tokens for step in steps)
    assert "logits of the prediction head are not numbers" in caplog.text


def test_a_head_of_another_class():
    """Nothing in the session or the drafter knows what a head computes."""
    session = Session(tiny(), context=600)
    model = token_model(foreign_head(64, VOCABULARY), size=VOCABULARY)
    for config in (GenerationConfig(), SAMPLED):
        plain, _ = reply(session, PlainDrafter(), prompt_of(30), config)
        found, steps = reply(session, PredictionHeadDrafter(model), prompt_of(30), config)
        assert found == plain
        assert sum(step.num_draft_tokens for step in steps) > 60
