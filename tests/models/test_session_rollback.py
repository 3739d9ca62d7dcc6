"""The session over caches of every kind: rows kept of a pass, and what later calls reuse."""

import mlx.core as mx
import pytest
from family_models import build_family
from mlx_lm.models.cache import KVCache
from tiny_models import GREEDY, adversary, begin, generate, prompt_of, tiny

from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.session import Session
from akunu_py.values.types import GenerationConfig

# By length, cut off, in chunks; and a mixture of restored and cut off ones.
KINDS = [
    "llama", "llama, sliding", "llama4", "baichuan_m1",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in (
            "llama, windows with sinks", "mamba2", "recurrent_gemma", "qwen3_next", "falcon_h1"
        )
    ),
]  # fmt: skip
RECURRENT = [
    "mamba2",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in ("baichuan_m1", "recurrent_gemma", "qwen3_next", "falcon_h1")
    ),
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def named(request):
    return request.param, build_family(request.param)


@pytest.fixture(scope="module", params=RECURRENT)
def recurrent(request):
    return build_family(request.param)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("half", GenerationConfig(repetition_penalty=1.3, presence_penalty=0.5)),
        (
            "wrong",
            GenerationConfig(temperature=0.9, top_p=0.9, frequency_penalty=0.4, penalty_window=5),
        ),
    ],
)
def test_penalties_see_the_rows_that_are_kept(recurrent, kind, config):
    session, prompt = Session(recurrent, context=600), prompt_of(12)
    plain = generate(session, prompt, config, PlainDrafter(), max_tokens=40)
    drafter = adversary(kind, prompt + plain, 2)
    assert generate(session, prompt, config, drafter, max_tokens=40) == plain


@pytest.mark.fast_every(2)
def test_any_sequence_of_prompts_gives_what_fresh_sessions_give(named):
    """Going on from a reply, turning off from it, the same again, a beginning of it, another."""
    name, model = named
    session = Session(model, context=600)
    prompt = prompt_of(40)
    first = generate(session, prompt, GREEDY, adversary("wrong", prompt, 1), max_tokens=30)
    prompts = [
        [*prompt, *first, 7, 8, 9],
        [*prompt, *first, 7, 8, 9, *prompt_of(20, 1)],
        [*prompt, *first, 7, 8, 5, 6],
        [*prompt, *first[:9], 9, 8, 7],
        prompt,
        [*prompt, 3],
        prompt[:30],
        prompt[:2],
        prompt_of(50, 2),
        [5],
        prompt,
    ]
    for given in prompts:
        fresh = Session(model, context=600)
        expected = generate(fresh, given, GREEDY, PlainDrafter(), max_tokens=7)
        drafter = adversary("half", given + expected, 3)
        assert generate(session, given, GREEDY, drafter, max_tokens=7) == expected
        assert len(session.rows.tokens) >= len(given) + 5


@pytest.mark.fast_every(2)
def test_what_is_reused_is_what_can_be_restored(named):
    name, model = named
    session = Session(model, context=600)
    prompt = prompt_of(40)
    reply = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    held = len(session.rows.tokens)
    # Whatever the kind: all of it, and the prompt's end, as often as one likes.
    assert begin(session, [*prompt, *reply[:-1], 1]) == held == 69
    generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    for _ in range(2):
        assert begin(session, prompt) == 39
        generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    # A turn elsewhere: the prompt's end, or the very place where every row is kept.
    everything = name == "llama"
    assert begin(session, [*prompt, *reply[:4], 96, 96]) == (44 if everything else 39)
    # That was a prompt of its own, whose end comes later. Chunks hold what is needed by chance.
    assert begin(session, prompt) == (39 if everything or name == "llama4" else 0)


def test_a_window_that_has_lost_nothing_drops_rows():
    session = Session(build_family("llama, sliding"), context=600)
    prompt = prompt_of(6)
    reply = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=9)
    assert begin(session, [*prompt, *reply[:4], 96, 96]) == 10


@pytest.mark.fast_every(2)
def test_an_interrupt_inside_a_pass_starts_the_caches_afresh(named):
    _, model = named
    session, prompt = Session(model, context=600), prompt_of(30)
    expected = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    forward, calls = session.feed, []

    def interrupted(rows):
        calls.append(1)
        logits = forward(rows)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return logits

    session.feed = interrupted
    with pytest.raises(KeyboardInterrupt):
        generate(session, prompt, GREEDY, adversary("half", prompt + expected, 3), max_tokens=30)
    session.feed = forward
    drafter = adversary("half", prompt + expected, 3)
    assert generate(session, prompt, GREEDY, drafter, max_tokens=30) == expected


class Unknown(KVCache):
    """A kind nobody knows here."""


def test_a_model_with_unknown_caches_is_decoded_plainly():
    model = tiny()
    model.make_cache = lambda: [Unknown() for _ in model.layers]
    session, prompt = Session(model, context=600), prompt_of(20)
    found = generate(session, prompt, GREEDY, NgramDrafter())
    assert session.max_draft_tokens() == 0
    expected = generate(Session(tiny(), context=600), prompt, GREEDY, PlainDrafter())
    assert found == expected
    # A reply that goes on keeps the rows; one that does not starts afresh.
    assert begin(session, [*prompt, *found[:-1], 5]) == 79
    assert begin(session, [*prompt, 5, 6]) == 0
    assert generate(session, prompt, GREEDY, NgramDrafter()) == expected


def test_what_was_saved_is_let_go():
    session = Session(build_family("mamba2"), context=600)
    generate(session, prompt_of(20), GREEDY, NgramDrafter())
    assert session.rows.marks
    session.reset()
    assert not session.rows.marks
    generate(session, prompt_of(20), GREEDY, NgramDrafter())
    session.close()
    assert not session.rows.marks
    mx.clear_cache()
