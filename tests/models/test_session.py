"""The session as a Target: identity with plain decoding, rollback, prefix reuse, interruption.

Mutants of the session, made by hand, that these tests kill (each was tried): one row too many kept
after a rejection; one too few; every row of a pass drawn at the first row's position; penalties blind
to the drafted path; the step in flight kept after a draft was accepted; caches reused after an
interrupt inside a pass; rows kept that a recurrent cache cannot drop; a rotating cache trusted beyond
its window; penalties over more than their window.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from identity import assert_same_tokens
from mlx_lm.generate import generate_step
from pairwise import each_value
from tiny_models import ADVERSARIES, VOCABULARY, adversary, begin, generate, prompt_of

from akunu_py.drafting import NgramDrafter, PlainDrafter, WindowedNgramDrafter
from akunu_py.models.cached_rows import PREFILL_CHUNK, Passes
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "greedy, penalties": GenerationConfig(repetition_penalty=1.4, presence_penalty=0.5),
    "0.7": GenerationConfig(temperature=0.7),
    "0.7, penalties": GenerationConfig(
        temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.3, logit_bias={5: 2.0}
    ),
    "1.3": GenerationConfig(temperature=1.3),
    "1.3, filters": GenerationConfig(temperature=1.3, top_p=0.9, top_k=30, min_p=0.01),
    "1.3, all": GenerationConfig(temperature=1.3, top_p=0.95, presence_penalty=0.7),
}


@pytest.fixture(scope="module")
def plain_text(session):
    """The text without drafts, made once for all drafters."""
    return functools.cache(
        lambda name, size: generate(
            session, prompt_of(size), CONFIGS[name], PlainDrafter(), max_tokens=28
        )
    )


@pytest.mark.parametrize(
    ("kind", "name"), each_value([*ADVERSARIES, "ngram", "window"], list(CONFIGS))
)
def test_drafting_never_changes_a_token(session, plain_text, kind, name):
    """Each drafter and each configuration; the next test has them with prompts of any size."""
    size = (40, 5, 1)[list(CONFIGS).index(name) % 3]
    config, prompt, plain = CONFIGS[name], prompt_of(size), plain_text(name, size)
    assert len(set(plain)) > 5
    drafters = {"ngram": NgramDrafter(num_draft_tokens=8), "window": WindowedNgramDrafter()}
    drafter = drafters.get(kind) or adversary(kind, prompt + plain, size)
    found = generate(session, prompt, config, drafter, max_tokens=28)
    assert_same_tokens(
        found, plain, logits=session.logits, prompt=prompt, config=config, seed=7, about=kind
    )


@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60),
    name=st.sampled_from(sorted(CONFIGS)),
    seed=st.integers(0, 2**64 - 1),
    script=st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=8), max_size=30),
    kind=st.sampled_from([*ADVERSARIES, "ngram", "ngram-window"]),
    limit=st.integers(0, 8),
)
def test_identity_over_made_up_prompts(session, prompt, name, seed, script, kind, limit):
    config = CONFIGS[name]
    options = {"seed": seed, "max_tokens": 24}
    plain = generate(session, prompt, config, PlainDrafter(), **options)
    own = {"ngram": NgramDrafter, "ngram-window": WindowedNgramDrafter}
    drafter = own[kind]() if kind in own else adversary(kind, prompt + plain, len(script))
    found = generate(session, prompt, config, drafter, num_draft_tokens=limit, **options)
    assert_same_tokens(
        found, plain, logits=session.logits, prompt=prompt, config=config, seed=seed, about=kind
    )


@pytest.mark.parametrize(
    "size", [1, 40, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 300))]
)
def test_greedy_is_mlx_lms(session, model, size):
    prompt = prompt_of(size)
    expected = [token for token, _ in generate_step(mx.array(prompt), model, max_tokens=60)]
    for drafter in (PlainDrafter(), NgramDrafter()):
        assert generate(session, prompt, GenerationConfig(), drafter) == expected


@pytest.mark.slow
def test_greedy_over_several_prompt_chunks_is_mlx_lms(model):
    prompt = prompt_of(2 * PREFILL_CHUNK + 77)
    limits = {"max_tokens": 30, "prefill_step_size": PREFILL_CHUNK}
    expected = [token for token, _ in generate_step(mx.array(prompt), model, **limits)]
    session = Session(model, context=4096)
    assert generate(session, prompt, GenerationConfig(), NgramDrafter(), max_tokens=30) == expected


def test_greedy_with_penalties_is_mlx_lms(session, model):
    from mlx_lm.sample_utils import make_logits_processors

    prompt = prompt_of(30)
    expected = [
        token
        for token, _ in generate_step(
            mx.array(prompt), model, max_tokens=60,
            logits_processors=make_logits_processors(None, 1.4, 20, 0.5, 20),
        )
    ]  # fmt: skip
    config = CONFIGS["greedy, penalties"]
    assert generate(session, prompt, config, NgramDrafter()) == expected


def test_without_rollback_the_output_changes(session, model, monkeypatch):
    """The negative control: identity is due to the rollback, and the tests can see it."""
    prompt = prompt_of(20)
    plain = generate(session, prompt, GenerationConfig(), PlainDrafter())
    monkeypatch.setattr(RollbackCaches, "drop", lambda caches, count: None)
    broken = Session(model, context=600)
    drafter = adversary("wrong", prompt + plain, 1)
    assert generate(broken, prompt, GenerationConfig(), drafter) != plain


def test_the_device_has_work_before_the_next_pass_is_put_together(session, monkeypatch):
    """A cold step queues its own pass at once, and every step one choice, in one array."""
    events = []
    run, queue = Passes.run, mx.async_eval

    def running(passes, rows):
        events.append("feed")
        return run(passes, rows)

    def queueing(*arrays):
        events.append(f"queue {len(arrays)}")
        queue(*arrays)

    monkeypatch.setattr(Passes, "run", running)
    monkeypatch.setattr(mx, "async_eval", queueing)
    prompt = prompt_of(10)
    begin(session, prompt)
    events.clear()  # those of the prefill
    last = prompt[-1]
    for _ in range(3):
        (last,) = session.choose(last, Draft.empty())
        session.commit(())
    assert events == ["feed", "queue 1"] * 4


def test_drafts_are_bounded_by_the_context_and_the_reply(model):
    session = Session(model, context=40)
    begin(session, prompt_of(30), max_tokens=1000)
    assert session.max_draft_tokens() == 9
    begin(session, prompt_of(30), max_tokens=5)
    assert session.max_draft_tokens() == 4
    found = generate(session, prompt_of(30), GenerationConfig(), NgramDrafter(), max_tokens=10)
    assert len(found) == 10
    assert len(session.rows.tokens) <= 40


TASKS = Path("/proc/self/task")
"""A folder for each thread of the process."""


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux lists the threads of a process")
def test_sessions_share_the_threads_that_compute(model):
    """MLX keeps a thread for each stream and never ends it; a session of each reply must not add one.

    As in a server, one thread makes all passes, whoever makes the sessions.
    """

    def use(session):
        return generate(session, prompt_of(9), GenerationConfig(), NgramDrafter(), max_tokens=6)

    with ThreadPoolExecutor(1) as worker:
        first = Session(model, context=64)
        text = worker.submit(use, first).result()
        threads = {task.name for task in TASKS.iterdir()}
        more = [Session(model, context=64) for _ in range(2)]
        more.append(worker.submit(Session, model, context=64).result())
        assert [worker.submit(use, session).result() for session in more] == [text] * 3
        assert {task.name for task in TASKS.iterdir()} <= threads
