"""The hidden states that a session hands out: each row once, in order, with the right numbers.

The mutants that these tests kill are listed in test_head_drafts.py.
"""

import random
import threading

import mlx.core as mx
import numpy as np
import pytest
from family_models import NAMES, build_family
from prediction_heads import tiny_target
from rollback_matrix import WITHOUT_HEADS
from small_limits import set_turns
from tiny_models import GREEDY, adversary, begin, prompt_of, sampler_of, tiny
from tree_matrix import TreeAdversary, Watched

from akunu_py.decoding.loop import decode
from akunu_py.drafting import PlainDrafter
from akunu_py.models.heads.families import BETWEEN_LAYERS
from akunu_py.models.hidden_states import StateTap, last_norm
from akunu_py.models.session import Session
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import Draft, GenerationConfig

# Rows dropped, windows put back, and states that are replayed.
KINDS = ["llama", "llama, sliding", "qwen3_next"]
PENALTIES = GenerationConfig(repetition_penalty=1.2)


class Recorder(Drafter):
    """Keeps the states that it is handed, by their places."""

    def __init__(self, hidden="normed"):
        self.hidden = hidden
        self.states = {}

    def begin_states(self, prompt, held):
        self.prompt, self.next = list(prompt), held

    def observe_states(self, states, start, end):
        assert 0 <= start < end <= states.shape[1]
        for row in range(start, end):
            self.states[self.next] = states[0, row]
            self.next += 1


def expected_states(model, text, hidden):
    """The states of a text in one pass."""
    tap = StateTap(model, hidden)
    with tap.listening():
        model(mx.array([text]))
    return np.array(tap.states[0])


def reply(session, recorder, prompt, drafter, config=None, max_tokens=30):
    """Decode; after each step, the states of all rows but the last token's are there."""
    held = begin(session, prompt, config or GREEDY, max_tokens, states=recorder)
    assert recorder.prompt == prompt
    drafter.observe(prompt)
    text = list(prompt)
    for step in decode(session, drafter, prompt[-1], num_draft_tokens=6, max_tokens=max_tokens):
        text += step.token_ids
        # In flight is the row of the last token.
        assert recorder.next == len(text) - (0 if session.in_flight else 1)
    return text, held


def check(recorder, model, text, first=0):
    expected = expected_states(model, text, recorder.hidden)
    assert sorted(recorder.states) == list(range(first, recorder.next))
    found = np.array(mx.stack([recorder.states[place] for place in range(first, recorder.next)]))
    np.testing.assert_allclose(found, expected[first : recorder.next], atol=2e-4)


class Alternating:
    """Drafts now and then, so that plain steps with one in flight come between."""

    def __init__(self, drafter):
        self.observe = drafter.observe
        self._drafter, self._rng = drafter, random.Random(2)

    def propose(self, limit):
        if self._rng.random() < 0.5:
            return Draft.empty()
        return self._drafter.propose(limit)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    ("name", "config", "reproducible"),
    [
        ("llama", GREEDY, False), ("llama", PENALTIES, True), ("llama, sliding", PENALTIES, False),
        ("qwen3_next", GREEDY, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("llama", GREEDY, True), ("llama, sliding", GREEDY, True),
                ("qwen3_next", GREEDY, True), ("qwen3_next", PENALTIES, False),
            )
        ),
    ],
)  # fmt: skip
def test_states_are_those_of_the_text(name, config, reproducible):
    """Half of the drafts are wrong, and some steps draft nothing."""
    model = build_family(name)
    session = Session(model, context=600, reproducible=reproducible)
    prompt = prompt_of(21)
    plain, _ = reply(session, Recorder(), prompt, PlainDrafter(), config)
    for hidden in ("normed", "raw", (1, 3)):
        recorder = Recorder(hidden)
        session.reset()
        drafter = Alternating(adversary("half", plain, 3))
        text, _ = reply(session, recorder, prompt, drafter, config)
        assert text == plain
        check(recorder, model, text)


@pytest.mark.parametrize("name", ["llama", "llama, sliding"])
def test_states_of_the_accepted_path_of_a_tree(name):
    """Plain steps, chains and trees, whose accepted nodes are not the first rows of a pass."""
    model = build_family(name)
    session, prompt = Session(model, context=600), prompt_of(21)
    plain, _ = reply(session, Recorder(), prompt, PlainDrafter(), max_tokens=60)
    watched = Watched(session)
    for hidden in ("normed", (1, 3)):
        recorder = Recorder(hidden)
        session.reset()
        text, _ = reply(session, recorder, prompt, TreeAdversary(plain, 0), max_tokens=60)
        assert text == plain
        check(recorder, model, text)
    assert watched.passes > 8
    assert watched.accepted > 8


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("name", KINDS)
def test_reused_rows_are_not_handed_again(name):
    """A conversation goes on, and goes back."""
    model = build_family(name)
    session, prompt = Session(model, context=600), prompt_of(30)
    text, held = reply(session, Recorder(), prompt, PlainDrafter())
    assert held == 0
    for prompt in ([*text, 5, 6, 7], [*text[:40], 8, 9], text[:30]):
        recorder = Recorder()
        found, held = reply(session, recorder, prompt, adversary("random", text, 3))
        assert held > 0 or name != "llama"
        check(recorder, model, found, held)


def test_a_long_prompt_in_passes_with_pauses(monkeypatch):
    """Every layer ends with a pause, and a checkpoint ends a pass."""
    set_turns(monkeypatch, rows=20, seconds=0.0)
    model, recorder = build_family("qwen3_next"), Recorder("raw")
    session, prompt = Session(model, context=600), prompt_of(60)
    seen = [
        recorder.next
        for _ in session.beginning(prompt, sampler_of(), 5, {"here": 25}, states=recorder)
    ]
    assert sorted(set(seen)) == [0, 20, 25, 45, 59]
    assert len(seen) > 12
    check(recorder, model, prompt)


def test_a_cancelled_pass_hands_nothing_over(monkeypatch):
    set_turns(monkeypatch, rows=20, seconds=0.0)
    model, recorder = tiny(), Recorder()
    session, prompt = Session(model, context=600), prompt_of(60)
    steps = session.beginning(prompt, sampler_of(), 5, states=recorder)
    while next(steps) <= 20:
        pass
    # A layer of the second pass is done.
    steps.close()
    assert recorder.next == 20
    again = Recorder()
    assert begin(session, prompt, states=again) == 20
    check(again, model, prompt, 20)


def test_nobody_else_meets_the_tap():
    """The model is itself again behind each pass, also one that fails."""
    model = tiny()
    owner, name = last_norm(model)
    norm = owner[name]
    session, recorder = Session(model, context=600), Recorder()
    reply(session, recorder, prompt_of(20), PlainDrafter(), max_tokens=5)
    assert owner[name] is norm
    tap = StateTap(model, "raw")
    with tap.listening(), pytest.raises(ValueError, match="expected 3"):
        model(mx.zeros((1, 2, 3, 4), dtype=mx.int32))
    model(mx.array([[1, 2]]))
    assert tap.states is None
    assert owner[name] is norm
    # A reply without a reader keeps no state.
    before = dict(recorder.states)
    begin(session, prompt_of(20))
    assert session._states is None
    assert recorder.states == before


# One of each place and name of the last norm.
SUBSET = {"llama", "lfm2", "mamba2", "nemotron_h", "recurrent_gemma", "gemma4", "plamo2", "rwkv7"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SUBSET else pytest.mark.slow) for n in NAMES]
)
def test_the_last_norm_of_every_family_is_what_its_logits_depend_on(name):
    model = build_family(name)
    if name in WITHOUT_HEADS:
        with pytest.raises(ConfigError, match="the last norm of this model was not found"):
            last_norm(model)
        return
    owner, place = last_norm(model)
    norm = owner[place]
    tap = StateTap(model, "raw")
    with tap.listening():
        model(mx.array([[1, 2, 3]]))
    raw = tap.states
    assert raw.shape[:2] == (1, 3)
    assert len({tuple(row) for row in np.array(raw[0]).round(4)}) == 3
    # With nothing behind it, all rows say the same.
    owner[place] = lambda x: mx.zeros_like(x)
    try:
        logits = model(mx.array([[1, 2, 3]]))
    finally:
        owner[place] = norm
    assert mx.array_equal(logits[:, :1], logits[:, 1:2])
    assert mx.array_equal(logits[:, :1], logits[:, 2:])


@pytest.mark.parametrize("name", BETWEEN_LAYERS)
def test_the_states_between_layers(name, monkeypatch):
    """Those that the layers hand to each other, in the order of their numbers."""
    model = build_family(name) if name in NAMES else tiny_target(name)
    tokens = mx.array([[5, 3, 8, 13, 2]])
    entering = []
    call = type(model.layers[0]).__call__

    def recorded(layer, x, *arguments, **options):
        entering.append(x)
        return call(layer, x, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(model.layers[0]), "__call__", recorded)
        model(tokens)
    assert len(entering) == len(model.layers) == 4
    tap = StateTap(model, (0, 2, 3))
    norms = [layer.input_layernorm for layer in model.layers]
    for _ in range(2):
        with tap.listening():
            model(tokens)
        expected = mx.concatenate([entering[number] for number in (0, 2, 3)], axis=-1)
        np.testing.assert_array_equal(np.array(tap.states), np.array(expected))
    # Two texts of training, which are longer than one row.
    with tap.listening():
        model(mx.concatenate([tokens, tokens]))
    assert tap.states.shape == (2, *expected.shape[1:])
    assert [layer.input_layernorm for layer in model.layers] == norms


def test_states_of_a_batch_can_be_read_in_another_thread():
    """Those of a tree: one row a text. A stream is one thread's."""
    model = build_family("llama")
    tap = StateTap(model, "raw")

    def build():
        with mx.stream(mx.new_stream(mx.default_device())), tap.listening():
            model(mx.array([[1], [2], [3]]))

    builder = threading.Thread(target=build)
    builder.start()
    builder.join()
    assert np.array(tap.states).shape[:2] == (1, 3)


def test_a_pass_that_fails_between_layers():
    """What it computed is not part of the next pass."""
    model = tiny()
    tap, tokens = StateTap(model, (0, 1)), mx.array([[1, 2, 3]])
    attention = model.layers[0].self_attn
    model.layers[0].self_attn = None
    with tap.listening(), pytest.raises(TypeError):
        model(tokens)
    assert tap.states is None
    model.layers[0].self_attn = attention
    with tap.listening():
        model(tokens)
    assert tap.states.shape == (1, 3, 2 * 64)
    np.testing.assert_array_equal(
        np.array(tap.states[0]), expected_states(model, [1, 2, 3], (0, 1))
    )


def test_a_model_without_a_known_last_norm():
    model = tiny()
    del model.model["norm"]
    with pytest.raises(
        ConfigError, match="its hidden states cannot be read: it takes no prediction head and makes"
    ):
        last_norm(model)


def test_a_model_without_a_known_norm_before_a_layer():
    model = tiny()
    for number in (1, 4):
        model.layers[1].pop("input_layernorm", None)
        with pytest.raises(ConfigError, match=f"the norm before layer {number} of this model was"):
            StateTap(model, (0, number))
