"""A cancelled reply is over for every thread, and no two threads are ever inside the session.

Mutants, made by hand, that these tests kill: another thread admitted while a reply is under way and
not cancelled; a cancelled reply that is not waited for; waited for without end, or by its own
callback; closed instead of ended, so that its reader gets no result; a step made for the last event;
the last event given twice; a step and the end of a reply at the same time.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from engine_inside import memories_of, session_of
from interrupts import HOLDING, Interrupt
from small_limits import set_waits

from akunu_py import EngineStateError

PROMPT = "def hello(world):\n    return world"
OTHER = "return the model"


@pytest.fixture
def pool():
    """A thread that lives on after what it was given is done."""
    with ThreadPoolExecutor(1) as executor:
        yield lambda call: executor.submit(call).result(60)


@pytest.fixture
def reply(engine):
    """How to begin a reply that does not end by itself."""
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)

    def begin(prompt=PROMPT, **options):
        return engine.stream(prompt, logit_bias=never, **{"max_tokens": 150, **options})

    return begin


class Session:
    """Watches an engine's session: one thread at a time may be inside; a pass can be held up."""

    def __init__(self, engine, monkeypatch):
        self.passes = 0
        self.shared = False
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self._inside = threading.Lock()
        monkeypatch.setattr(
            session_of(engine), "beginning", self._watched_passes(session_of(engine).beginning)
        )
        for name in ("choose", "commit", "logits", "reset"):
            monkeypatch.setattr(
                session_of(engine), name, self._watched(name, getattr(session_of(engine), name))
            )

    def _watched_passes(self, method):
        def call(*arguments, **options):
            step = self._watched("pass", method(*arguments, **options).__next__)
            while True:
                try:
                    yield step()
                except StopIteration:
                    return

        return call

    def _watched(self, name, method):
        def call(*arguments):
            if not self._inside.acquire(blocking=False):
                self.shared = True
                return method(*arguments)
            try:
                if name == "choose":
                    self.passes += 1
                    self.entered.set()
                    self.go_on.wait(300)
                return method(*arguments)
            finally:
                self._inside.release()

        return call


@pytest.fixture
def patient(monkeypatch):
    """Waits are as long as a busy machine needs."""
    set_waits(monkeypatch, step=60.0)


@pytest.fixture
def session(engine, monkeypatch):
    watched = Session(engine, monkeypatch)
    yield watched
    assert not watched.shared


def test_a_call_from_another_thread_gives_up_where_nobody_reads_on(
    engine, pool, reply, session, monkeypatch
):
    set_waits(monkeypatch, unread=0.02)
    stream = reply()
    pool(lambda: next(stream))
    for call in (lambda: engine.generate(OTHER), engine.reset, lambda: engine.remember("text")):
        with pytest.raises(EngineStateError, match="does not read on"):
            call()
    assert len(pool(lambda: list(stream))) > 10


def test_a_reply_cancelled_between_two_steps_is_over_for_every_thread(engine, pool, reply, session):
    expected = engine.generate(OTHER, max_tokens=8).token_ids
    stream = reply()
    tokens = pool(lambda: next(stream).token_ids)
    stream.cancel()
    passes = session.passes
    engine.reset()
    assert session.passes == passes
    assert engine.generate(OTHER, max_tokens=8).token_ids == expected
    # Its reader gets the end of the reply, whatever the engine did in between.
    assert not stream.finished
    event = pool(lambda: next(stream))
    assert event.token_ids == ()
    assert event.result.finish_reason == "cancelled"
    assert event.result.token_ids == tokens
    assert stream.result is event.result
    assert stream.finished
    with pytest.raises(StopIteration):
        next(stream)


def test_a_reply_cancelled_before_its_first_step_feeds_nothing(engine, pool, reply, session):
    seen = []
    stream = pool(lambda: reply(progress=lambda *done: seen.append(done)))
    stream.cancel()
    assert engine.generate(OTHER, max_tokens=4).token_ids
    (event,) = pool(lambda: list(stream))
    assert event.result.finish_reason == "cancelled"
    assert event.result.token_ids == ()
    assert seen == []


def test_the_step_under_way_is_waited_for(engine, reply, session, patient):
    stream = reply()
    next(stream)
    session.entered.clear()
    session.go_on.clear()
    events = []
    reader = threading.Thread(target=lambda: events.extend(stream))
    reader.start()
    assert session.entered.wait(300)
    stream.cancel()
    threading.Timer(0.1, session.go_on.set).start()
    assert engine.generate(OTHER, max_tokens=4).token_ids
    reader.join(300)
    assert events[-1].result.finish_reason == "cancelled"
    assert len(events) <= 2


def test_a_step_that_takes_long_is_not_waited_for_without_end(engine, reply, session, monkeypatch):
    set_waits(monkeypatch, step=0.05)
    stream = reply()
    session.go_on.clear()
    events = []
    reader = threading.Thread(target=lambda: events.extend(stream))
    reader.start()
    assert session.entered.wait(300)
    stream.cancel()
    for call in (lambda: engine.generate(OTHER), engine.reset, lambda: next(stream), stream.close):
        with pytest.raises(EngineStateError, match="a step of this reply is under way"):
            call()
    session.go_on.set()
    reader.join(300)
    assert engine.generate(OTHER, max_tokens=4).token_ids
    assert events[-1].result.finish_reason == "cancelled"


def test_a_callback_does_not_wait_for_its_own_step(engine, reply, monkeypatch):
    set_waits(monkeypatch, step=3600.0)
    refused = []

    def progress(done, total):
        stream.cancel()
        for call in (lambda: engine.generate(OTHER), lambda: next(stream), stream.close):
            with pytest.raises(EngineStateError, match="around this callback"):
                call()
            refused.append(call)

    stream = reply(progress=progress)
    (event,) = stream
    assert event.result.finish_reason == "cancelled"
    assert len(refused) == 3


def test_a_reader_that_comes_while_the_reply_is_ended_gets_its_end(
    engine, pool, reply, patient, monkeypatch
):
    ending, go_on = threading.Event(), threading.Event()

    def ended():
        ending.set()
        go_on.wait(300)

    monkeypatch.setattr(memories_of(engine), "begin_reply", lambda _: ended)
    stream = reply()
    pool(lambda: next(stream))
    stream.cancel()
    ender = threading.Thread(target=engine.reset)
    ender.start()
    assert ending.wait(300)
    events = []
    reader = threading.Thread(target=lambda: events.extend(stream))
    reader.start()
    reader.join(0.05)
    go_on.set()
    reader.join(300)
    ender.join(300)
    assert [event.result.finish_reason for event in events] == ["cancelled"]


def test_a_closed_engine_leaves_a_cancelled_reply_its_end(tiny_gguf, pool):
    from akunu_py import Engine

    engine = Engine.load(tiny_gguf)
    stream = engine.stream(PROMPT, max_tokens=50)
    pool(lambda: next(stream))
    stream.cancel()
    engine.close()
    assert pool(stream.read_to_end).finish_reason == "cancelled"


def test_a_closed_reply_has_no_result_to_read(reply):
    stream = reply()
    next(stream)
    stream.close()
    with pytest.raises(EngineStateError, match="was closed before its end"):
        stream.read_to_end()


def test_a_cancelled_reply_may_be_closed_by_its_reader(engine, pool, reply):
    for ended in (False, True):
        stream = reply()
        pool(lambda kept=stream: next(kept))
        stream.cancel()
        if ended:
            engine.reset()
        pool(stream.close)
        assert stream.finished
        assert list(stream) == []
        assert engine.generate(OTHER, max_tokens=2).token_ids


def test_a_reply_whose_end_was_interrupted_says_so(engine, pool, reply, monkeypatch):
    stream = reply()
    pool(lambda: next(stream))
    stream.cancel()
    with monkeypatch.context() as patch:
        patch.setattr(session_of(engine), "peak_memory_bytes", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.reset()
    with pytest.raises(EngineStateError, match="its end was interrupted"):
        pool(lambda: next(stream))
    assert engine.generate(OTHER, max_tokens=2).token_ids


def test_threads_that_cancel_each_other_are_never_in_the_session_together(
    engine, reply, session, patient
):
    """Each begins a reply whenever it may, and cancels that of another; every one has an end."""
    streams, ends = [], []
    barrier = threading.Barrier(4)

    def work(number):
        rng = random.Random(number)
        barrier.wait(300)
        while len(streams) < 40:
            if streams and rng.random() < 0.7:
                rng.choice(streams[-3:]).cancel()
            try:
                stream = reply(rng.choice([PROMPT, OTHER]))
            except EngineStateError:
                continue
            streams.append(stream)
            for _ in range(rng.randrange(4)):
                next(stream, None)
            if rng.random() < 0.5:
                stream.cancel()
                ends.append(stream.read_to_end().finish_reason)
        # Nobody reads on what it began last; the others would wait for that.
        for stream in streams:
            stream.cancel()

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(4)))
    assert set(ends) == {"cancelled"}
    assert engine.generate(OTHER, max_tokens=2).token_ids


def test_an_interrupt_anywhere_leaves_the_engine_free(engine):
    """Mutants that it kills: a lock taken by a call, before the block that releases it.

    The engine is also used while the interrupt is handled: its traceback keeps what functions had.
    """

    def use():
        with engine.stream(PROMPT, max_tokens=2, drafter="none") as reply:
            next(reply)
            reply.cancel()
            engine.generate(PROMPT, max_tokens=2, drafter="none")

    expected = engine.generate(PROMPT, max_tokens=2, drafter="none").token_ids
    number, raised = 0, True
    while raised:
        with Interrupt("opcode", number, HOLDING) as found:
            try:
                use()
            except KeyboardInterrupt:
                engine.reset()
        number, raised = number + 1, found.raised
        assert engine.generate(PROMPT, max_tokens=2, drafter="none").token_ids == expected
    assert number > 100
