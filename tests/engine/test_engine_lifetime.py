"""Closing, abandoned and cancelled streams, threads, forks, failing callbacks."""

import gc
import multiprocessing
import threading
from unittest.mock import Mock

import mlx.core as mx
import pytest
from engine_inside import session_of
from gguf_files import write_tiny_llama

from akunu_py import Engine, EngineStateError

PROMPT = "def hello(world):\n    return world"


def test_closing(tiny_gguf):
    engine = Engine.load(tiny_gguf)
    stream = engine.stream(PROMPT, max_tokens=50)
    next(stream)
    engine.close()
    engine.close()
    asked = [{"role": "user", "content": "x"}]
    replies = [lambda: engine.generate(PROMPT), lambda: engine.chat(asked)]
    others = [lambda: engine.logits([1]), lambda: engine.tokenizer, engine.reset, engine.__enter__]
    for call in replies + others:
        with pytest.raises(EngineStateError, match="closed; load it again"):
            call()
    with pytest.raises(EngineStateError, match="closed"):
        next(stream)


def test_closing_gives_the_memory_back(tiny_gguf):
    mx.clear_cache()
    engine = Engine.load(tiny_gguf)
    assert mx.get_cache_memory() < 1e5  # nor does loading keep what it needed in between
    engine.generate(PROMPT, max_tokens=5)
    before = mx.get_active_memory()
    engine.close()
    gc.collect()
    assert before - mx.get_active_memory() > 2e5
    assert mx.get_cache_memory() < 1e5


def test_closing_from_the_progress_callback_is_refused(engine):
    kept = []

    def close(done, total):
        for call in (kept[0].close, engine.close, engine.reset):
            with pytest.raises(EngineStateError):
                call()

    kept.append(engine.stream(PROMPT, max_tokens=3, progress=close))
    assert list(kept[0])[-1].result.finish_reason in ("length", "stop")


def test_a_call_waits_for_one_of_another_thread(engine, monkeypatch):
    inside, leave = threading.Event(), threading.Event()
    order = []

    def slow(ids, _start):
        inside.set()
        leave.wait(300)
        order.append("logits")

    monkeypatch.setattr(session_of(engine), "logits", slow)
    thread = threading.Thread(target=lambda: engine.logits([1, 2]))
    thread.start()
    inside.wait(300)
    waiting = threading.Thread(
        target=lambda: order.append(engine.generate(PROMPT, max_tokens=2).finish_reason)
    )
    waiting.start()
    leave.set()
    waiting.join(300)
    thread.join(300)
    assert order == ["logits", "length"]


def test_a_raw_continuation_keeps_the_space_between_two_words(tmp_path):
    path = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm", tied=False, seed=1)
    with Engine.load(path) as engine:
        space = engine.tokenizer.encode("the")[-1]
        assert engine.tokenizer.decode([space]) == "the"
        only = {space: 1e6}
        assert engine.generate("hello", max_tokens=2, logit_bias=only).text == " the the"
        messages = [{"role": "user", "content": "hello"}]
        assert engine.chat(messages, max_tokens=2, logit_bias=only).text == "the the"


def test_a_dropped_stream_is_in_nobodys_way(engine):
    stream = engine.stream(PROMPT, max_tokens=40)
    next(stream)
    del stream
    gc.collect()
    found = []
    thread = threading.Thread(target=lambda: found.append(engine.generate(PROMPT, max_tokens=4)))
    thread.start()
    thread.join(300)
    assert found


def test_threads_queue_for_their_replies(engine):
    prompts = [[1, 2, 3 + place] for place in range(4)]
    expected = [engine.generate(prompt, max_tokens=40).token_ids for prompt in prompts]
    barrier = threading.Barrier(4)
    outcomes = [None] * 4

    def call(place):
        barrier.wait()
        with engine.stream(prompts[place], max_tokens=40) as stream:
            outcomes[place] = stream.read_to_end().token_ids

    threads = [threading.Thread(target=call, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert outcomes == expected


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_stream_may_move_between_threads(engine, temperature):
    options = {"max_tokens": 20, "temperature": temperature, "seed": 8}
    expected = engine.generate(PROMPT, **options)
    engine.reset()
    stream = engine.stream(PROMPT, **options)
    tokens = list(next(stream).token_ids)
    while not stream.finished:
        event = []
        thread = threading.Thread(target=lambda kept=event: kept.append(next(stream, None)))
        thread.start()
        thread.join(300)
        if event[0] is not None:
            tokens += event[0].token_ids
    assert tuple(tokens) == expected.token_ids


def test_an_exception_in_the_progress_callback_reaches_the_caller(engine):
    expected = engine.generate(PROMPT, max_tokens=8).token_ids

    class OwnError(Exception):
        pass

    engine.reset()
    with pytest.raises(OwnError):
        engine.generate(PROMPT, max_tokens=8, progress=Mock(side_effect=OwnError))
    assert engine.generate(PROMPT, max_tokens=8).token_ids == expected


def _use_after_fork(engine, answers):
    try:
        engine.generate(PROMPT, max_tokens=1)
    except EngineStateError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of forks beside threads
def test_a_fork_gets_a_clear_error(engine):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_use_after_fork, args=(engine, answers))
    child.start()
    message = answers.get(timeout=300)
    child.join(300)
    assert "before a fork" in message
    assert engine.generate(PROMPT, max_tokens=1)
