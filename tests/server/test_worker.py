"""The worker makes replies of several clients in turn: fairly, to the same tokens, until cancelled.

Turns are made by hand here, except where threads are what is tested.
"""

import threading
from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from inside import pass_sizes, session_of
from pairwise import each_value
from toy_engine import PLAIN, toy_engine
from turns import run, until

from akunu_py.models import cached_rows
from akunu_py.models.session import Session
from akunu_py.server.checkpoints import MESSAGE, REMINDER, SYSTEM
from akunu_py.server.events import Accepted, Prefilled
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.respelling import Respelling
from akunu_py.server.waiting_line import WaitingLine
from akunu_py.system.errors import ConfigError, EngineStateError, ModelFormatError, ServerBusyError
from akunu_py.values.types import StreamEvent

TEXT = "a cat and a dog, a cat and a bird. "


def call(engine, text=TEXT, **options):
    options = {"max_tokens": 12, "logit_bias": PLAIN, "drafter": "none", **options}
    return engine.check(engine.prompt_ids(text), **options)


class Panic(BaseException):
    """What a library in Rust raises when it fails."""


class SlowConstraint:
    """A matcher that takes until `may_end` to compile; it then allows everything."""

    def __init__(self, *, compiled):
        self.compiled, self.error = compiled, None
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.tries = 0

    def compile(self):
        if not self.compiled:
            self.tries += 1
            self.begun.set()
            assert self.may_end.wait(60)
            if self.error is not None:
                raise self.error
            self.compiled = True


def read(job):
    """The events of a job that is over; waiting for another would never end."""
    assert job.events.over
    return list(job.events)


def tokens_of(job):
    *_, last = read(job)
    return last.result.token_ids


def seen_of(job):
    """How many tokens of the prompt were read, and how many events of text came, so far."""
    done = [event.num_tokens for event in job.events.seen if isinstance(event, Prefilled)]
    return done[-1] if done else 0, sum(isinstance(one, StreamEvent) for one in job.events.seen)


def test_a_reply_is_that_of_the_engine(toy, make_worker):
    worker = make_worker()
    job = worker.submit(call(toy))
    run(worker)
    started, *_, last = read(job)
    expected = toy.generate(TEXT, max_tokens=12, logit_bias=PLAIN, drafter="none")
    assert last.result.token_ids == expected.token_ids
    assert last.result.text == expected.text
    assert started == Accepted(
        expected.num_prompt_tokens, 0, "nothing that begins like it is cached"
    )


@pytest.mark.parametrize(
    ("cache_bytes", "drafter"), each_value([1 << 26, 0], ["auto", "none"], most=1)
)
def test_a_seed_gives_the_same_tokens_alone_and_in_company(toy, make_worker, drafter, cache_bytes):
    texts = [TEXT * count + "abc"[:count] for count in (1, 2, 3, 2)]
    expected = [
        toy.generate(text, max_tokens=14, seed=seed, temperature=0.9, drafter="none",
                     logit_bias=PLAIN).token_ids
        for seed, text in enumerate(texts)
    ]  # fmt: skip
    worker = make_worker(cache=PrefixCache(cache_bytes))
    for _ in range(2):
        jobs = [
            worker.submit(
                call(toy, text, max_tokens=14, seed=seed, temperature=0.9, drafter=drafter,
                     draft_budget="always")
            )
            for seed, text in enumerate(texts)
        ]  # fmt: skip
        run(worker)
        assert [tokens_of(job) for job in jobs] == expected


@pytest.fixture
def passes(monkeypatch):
    """A function that says how many tokens of a prompt a pass reads, and when it pauses."""

    def choose(size, turn_s):
        monkeypatch.setattr(cached_rows, "PREFILL_CHUNK", size)
        monkeypatch.setattr(cached_rows, "_TURN_S", turn_s)

    return choose


@pytest.fixture
def small_passes(passes):
    """Prompts are read in passes of 16 tokens, each in one turn."""
    passes(16, float("inf"))


@pytest.mark.parametrize(("tick", "began"), [(0, 1), (1, 4)])
def test_replies_go_on_together_and_short_prompts_are_read_at_once(
    toy, make_worker, small_passes, tick, began
):
    """`began`: in how many rounds the first tokens come, where a turn takes so many seconds."""
    worker = make_worker(parallel=4, clock=count(step=tick).__next__)
    jobs = [worker.submit(call(toy)) for _ in range(4)]
    seen = []
    while worker.step():
        seen.append([seen_of(job)[1] for job in jobs])
    assert seen[-1] == [12] * 4
    for before, after in pairwise(seen):
        assert all(two == min(one + 1, 12) for one, two in zip(before, after, strict=True) if one)
    assert len({[bool(row[place]) for row in seen].index(True) for place in range(4)}) == began


def test_a_long_prompt_does_not_keep_a_running_reply_from_its_turns(toy, make_worker, small_passes):
    worker = make_worker(parallel=2)
    short = worker.submit(call(toy, max_tokens=100))
    until(worker, lambda: seen_of(short)[1] >= 2)
    long = worker.submit(call(toy, "abcdefg " * 100))
    passes = 0
    while not seen_of(long)[1]:
        before = seen_of(long), seen_of(short)
        worker.step()
        passes += seen_of(long)[0] != before[0][0]
        assert seen_of(short)[1] == before[1][1] + 1
    assert passes > 20


def test_those_who_read_take_turns_and_the_cancelled_come_first(toy, make_worker, small_passes):
    worker = make_worker(parallel=3, clock=count().__next__)
    jobs = [worker.submit(call(toy, text * 50)) for text in ("abcdefg ", "gfedcba ", "badcfe ")]
    done = [0] * 3
    for _ in range(20):
        before = done
        worker.step()
        done = [seen_of(job)[0] for job in jobs]
        assert max(done) - min(done) <= 16
    # Its next turn would be the last.
    (last,) = (job for job, *count in zip(jobs, before, done, strict=True) if count[0] < count[1])
    last.cancel()
    worker.step()
    assert read(last)[-1].result.finish_reason == "cancelled"


@pytest.fixture
def prompt_passes(monkeypatch):
    """Numbers of rows of the passes over prompts, in the order in which they begin."""
    return pass_sizes(monkeypatch)


@pytest.mark.parametrize("company", [False, True])
def test_a_prompt_is_read_in_the_passes_of_the_engine(
    toy, make_worker, passes, prompt_passes, company
):
    passes(64, 0.0)
    text = "abcdefg, " * 20
    toy.reset()
    expected = toy.generate(text, max_tokens=1, drafter="none", logit_bias=PLAIN)
    passes = prompt_passes.copy()
    assert passes == [64, expected.num_prompt_tokens - 65]
    worker = make_worker(parallel=2)
    if company:
        other = worker.submit(call(toy, "x", max_tokens=100))
        until(worker, lambda: seen_of(other)[1])
    prompt_passes.clear()
    job = worker.submit(call(toy, text, max_tokens=1))
    until(worker, lambda: job.events.over)
    assert prompt_passes == passes
    assert tokens_of(job) == expected.token_ids


def test_others_have_turns_within_a_prompt_pass(toy, make_worker, passes):
    passes(512, 0.0)
    worker = make_worker(parallel=2)
    short = worker.submit(call(toy, "x", max_tokens=100))
    until(worker, lambda: seen_of(short)[1])
    before = seen_of(short)[1]
    long = worker.submit(call(toy, "abcdefg, " * 40))
    until(worker, lambda: seen_of(long)[0] >= len(long.prompt) - 1)
    layers = len(session_of(toy).rows.caches)
    assert layers > 1
    assert seen_of(short)[1] - before >= layers


def test_clients_take_turns_in_the_line(toy, make_worker):
    worker = make_worker(parallel=1)
    order = []
    jobs = {}
    for number, client in enumerate("aaabab"):
        jobs[number] = worker.submit(call(toy, max_tokens=1), client=client)
    while worker.step():
        for number, job in jobs.items():
            if number not in order and job.events.over:
                order.append(number)
    assert order == [0, 3, 1, 5, 2, 4]


def test_a_hundred_requests_at_once_find_places(toy, make_worker):
    """Those that `asyncio.gather` sends; clients try again twice, then they are lost."""
    worker = make_worker(parallel=1)
    checked = call(toy)
    for _ in range(100):
        worker.submit(checked)
    assert worker.health().waiting == 100


class TestCancelling:
    def test_in_line(self, toy, make_worker):
        worker = make_worker(parallel=1)
        first, second = worker.submit(call(toy)), worker.submit(call(toy))
        worker.step()
        second.cancel()
        worker.step()
        assert worker.health().waiting == 0
        assert read(second) == []
        run(worker)
        assert len(tokens_of(first)) == 12

    def test_within_a_prompt_pass(self, toy, make_worker, passes):
        passes(64, 0.0)
        text = "abcdefg, " * 30
        expected = toy.generate(text, max_tokens=12, drafter="none", logit_bias=PLAIN).token_ids
        worker = make_worker(parallel=1, cache=PrefixCache(1 << 26))
        job = worker.submit(call(toy, text))
        until(worker, lambda: seen_of(job)[0] > 64)
        done = seen_of(job)[0]
        assert done < 128
        job.cancel()
        worker.step()
        assert seen_of(job)[0] == done
        assert read(job)[-1].result.finish_reason == "cancelled"
        # The whole passes before it are not lost.
        again = worker.submit(call(toy, text))
        run(worker)
        assert started_of(again).num_cached_tokens == 64
        assert tokens_of(again) == expected

    def test_by_closing_the_worker(self, toy, make_worker):
        worker = make_worker(parallel=1)
        jobs = [worker.submit(call(toy)) for _ in range(2)]
        worker.step()
        worker.close()
        for job in jobs:
            with pytest.raises(EngineStateError, match="shutting down"):
                read(job)
        with pytest.raises(EngineStateError, match="shutting down"):
            worker.submit(call(toy))


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [ModelFormatError("broken"), RuntimeError("out of memory"), Panic("index out of range")],
    )
    @pytest.mark.parametrize("method", ["_begin_pass", "beginning", "exchange"])
    def test_of_one_reply_leave_the_others_alone(
        self, toy, make_worker, monkeypatch, method, error
    ):
        expected = toy.generate(TEXT, max_tokens=12, logit_bias=PLAIN).token_ids
        worker = make_worker(parallel=2, cache=PrefixCache(1 << 26))
        good = worker.submit(call(toy))
        worker.step()
        sound, (spared,) = getattr(Session, method), worker.sessions
        bad = worker.submit(call(toy, "ace" * 8))

        def fails(self, *arguments, **options):
            if self is not spared and not raised:
                raised.append(self)
                raise error
            return sound(self, *arguments, **options)

        raised = []
        monkeypatch.setattr(Session, method, fails)
        until(worker, lambda: bad.events.over)
        with pytest.raises(type(error) if isinstance(error, Exception) else RuntimeError):
            read(bad)
        monkeypatch.undo()
        again = worker.submit(call(toy))
        run(worker)
        assert tokens_of(good) == expected
        assert tokens_of(again) == expected
        assert worker.health().running == 0

    @pytest.mark.parametrize("error", [Panic("index out of range"), SystemExit()])
    def test_of_a_prompt_that_the_worker_lays_out(self, toy, make_worker, error):
        """As after a load. The job is in no list then, and its reader must not wait for ever."""
        worker = make_worker(parallel=2)
        good, bad = (worker.submit(call(toy)) for _ in range(2))
        # Both belong to another engine by now.
        with toy.sibling() as other:
            bad.fit(other)
        bad.prepare = Mock(side_effect=error)
        if isinstance(error, SystemExit):
            with pytest.raises(SystemExit):
                worker.step()
        else:
            run(worker)
            assert len(tokens_of(good)) == 12
        with pytest.raises(RuntimeError, match=type(error).__name__):
            read(bad)

    def test_of_rows_that_cannot_be_kept_end_no_worker(self, toy, make_worker, monkeypatch):
        monkeypatch.setattr(PrefixCache, "put", lambda *_: 1 // 0)
        worker = make_worker(cache=PrefixCache(1 << 26))
        for _ in range(2):
            job = worker.submit(call(toy))
            run(worker)
            assert len(tokens_of(job)) == 12
        assert len(worker.sessions) == 1  # the second reply was handed its lane

    @pytest.mark.parametrize("late", [False, True])
    def test_a_constraint_that_compiles_for_long_holds_nobody_up(self, toy, make_worker, late):
        """`late`: the worker laid it out, since its model was loaded for it."""
        worker = make_worker(parallel=2)
        other = worker.submit(call(toy))
        worker.step()
        slow = SlowConstraint(compiled=late)
        jobs = []
        thread = threading.Thread(
            target=lambda: jobs.append(worker.submit(replace(call(toy), matcher=slow)))
        )
        thread.start()
        if late:
            thread.join()
            slow.compiled = False
            behind = worker.submit(call(toy, max_tokens=3))
            until(worker, lambda: behind.events.over)
            assert worker.health().waiting == 1
        until(worker, lambda: other.events.over)
        assert slow.begun.wait(60)
        slow.may_end.set()
        thread.join()
        until(worker, lambda: jobs[0].events.over)
        assert len(tokens_of(jobs[0])) == 12

    @pytest.mark.parametrize("fails", [False, True])
    def test_the_end_of_a_constraint_that_was_compiled(self, toy, make_worker, fails):
        """It fails, or the worker ends meanwhile: the client learns of it, and nobody else does."""
        worker = make_worker()
        slow = SlowConstraint(compiled=True)
        job = worker.submit(replace(call(toy), matcher=slow))
        slow.compiled, slow.error = False, Panic("no") if fails else None
        worker.step()
        if not fails:
            worker.close()
        slow.may_end.set()
        with pytest.raises(RuntimeError, match="no$" if fails else "shutting down"):
            next(job.events)
        if fails:
            job = worker.submit(call(toy))
            run(worker)
            assert len(tokens_of(job)) == 12
            assert slow.tries == 1

    @pytest.mark.parametrize("closed", [False, True])
    def test_a_job_that_is_put_back_while_the_worker_stops_ends(self, toy, make_worker, closed):
        worker = make_worker()
        slow = SlowConstraint(compiled=True)
        job = worker.submit(replace(call(toy), matcher=slow))
        slow.compiled, before = False, set(threading.enumerate())
        worker.step()
        (compiling,) = set(threading.enumerate()) - before
        worker.stop()
        if closed:
            worker.close()
        slow.may_end.set()
        compiling.join()
        worker.close()
        with pytest.raises(EngineStateError, match="shutting down"):
            read(job)

    def test_of_numbers(self, toy):
        from kept_worker import Worker

        with pytest.raises(ConfigError, match="parallel is 0"):
            Worker(toy, parallel=0)


def test_memories_of_clients_are_apart(toy, make_worker):
    worker = make_worker()
    ask = call(toy, max_tokens=40, draft_budget="always", drafter="auto")

    def drafted(client):
        job = worker.submit(ask, client=client)
        run(worker)
        return read(job)[-1].result.stats.accepted

    first = drafted("a")
    assert drafted("b") == first
    assert drafted("a") > first


def test_replies_of_one_client_at_once_are_all_remembered(toy, make_worker):
    worker = make_worker(parallel=2)
    jobs = [
        worker.submit(call(toy, text, drafter="auto", max_tokens=size), client="a")
        for text, size in (("abc", 9), ("fed", 14))
    ]
    run(worker)
    texts = worker.models.default.clients.state("a").memory.texts()
    assert sorted(texts, key=len) == [list(tokens_of(job)) for job in jobs]


def test_a_draft_model_has_caches_for_each_lane(tiny_pair, make_worker):
    def ask(worker, seed):
        text = "def hello(world):\n    return " + "world" * seed
        return worker.submit(
            tiny_pair.check(
                tiny_pair.prompt_ids(text), max_tokens=20, seed=seed, temperature=0.5,
                drafter="draft-model", draft_budget="always",
            )
        )  # fmt: skip

    def drafted(worker, job):
        run(worker)
        result = read(job)[-1].result
        return result.token_ids, result.stats.drafted, result.stats.accepted

    worker = make_worker(tiny_pair, parallel=2)
    alone = [drafted(worker, ask(worker, seed)) for seed in (1, 2)]
    jobs = [ask(worker, seed) for seed in (1, 2)]
    assert [drafted(worker, job) for job in jobs] == alone
    assert all(accepted for _, _, accepted in alone)


def test_a_draft_model_that_reads_a_prompt_does_not_keep_others_from_their_turns(
    tiny_pair, make_worker, small_passes
):
    worker = make_worker(tiny_pair, parallel=2)
    options = {"drafter": "draft-model", "logit_bias": {}, "draft_budget": "always"}
    short = worker.submit(call(tiny_pair, "x", max_tokens=150, drafter="none", logit_bias={}))
    until(worker, lambda: seen_of(short)[1] >= 2)
    long = worker.submit(call(tiny_pair, "abcdefg " * 20, **options))
    before, ended = seen_of(short)[1], 0
    while not seen_of(long)[1]:
        worker.step()
        done = [event for event in long.events.seen if isinstance(event, Prefilled)]
        if done and done[-1].num_tokens == started_of(long).num_prompt_tokens and not ended:
            ended = seen_of(short)[1]
    # One turn of the other for each pass of the target, and as many while the draft model reads.
    assert ended - before > 5
    assert seen_of(short)[1] - ended > 5


def test_costs_of_drafts_are_measured_alone(toy, make_worker):
    worker = make_worker(parallel=2)
    worker.submit(call(toy, max_tokens=30))
    worker.step()
    costs = toy._memories.costs.state.costs
    assert not costs.shared
    worker.submit(call(toy, max_tokens=4))
    worker.step()
    assert costs.shared
    run(worker)
    assert not costs.shared


class TestThread:
    def test_a_worker_that_fails_says_so(self, toy, make_worker, monkeypatch, caplog):
        worker = make_worker(parallel=1)
        monkeypatch.setattr(worker, "_fill_lanes", lambda: 1 // 0)
        job = worker.submit(call(toy))
        worker.start()
        with pytest.raises(EngineStateError, match="has failed"):
            list(job.events)
        worker.close()
        with pytest.raises(EngineStateError, match="has failed"):
            worker.submit(call(toy))
        assert worker.health().state == "dead"
        assert "ZeroDivisionError" in caplog.text


LONG = "abcdefg, " * 40


def started_of(job):
    return next(event for event in job.events.seen if isinstance(event, Accepted))


@pytest.mark.parametrize("cache_bytes", [pytest.param(0, marks=pytest.mark.slow), 1 << 26])
def test_the_same_prompt_twice_at_once_is_read_once(toy, make_worker, small_passes, cache_bytes):
    worker = make_worker(parallel=3, cache=PrefixCache(cache_bytes))
    jobs = [worker.submit(call(toy, LONG)) for _ in range(3)]
    run(worker)
    size = started_of(jobs[0]).num_prompt_tokens
    assert [started_of(job).num_cached_tokens for job in jobs] == [0, size - 1, size - 1]
    assert len({tokens_of(job) for job in jobs}) == 1


@pytest.mark.slow
def test_a_prompt_waits_only_for_the_beginning_that_it_shares(toy, make_worker, small_passes):
    """It goes on while the longer one is still read."""
    worker = make_worker(parallel=2)
    long = worker.submit(call(toy, LONG + "and more. " * 60))
    short = worker.submit(call(toy, LONG + "xyz"))
    until(worker, lambda: seen_of(short)[1])
    assert not seen_of(long)[1]
    assert started_of(short).num_cached_tokens >= len(toy.prompt_ids(LONG)) - 1
    run(worker)


def test_a_prompt_waits_for_the_pass_under_way(toy, make_worker, passes):
    """Within a pass nobody can use rows, not even those of the passes before it."""
    passes(150, 0.0)
    worker = make_worker(parallel=2)
    long = worker.submit(call(toy, LONG))
    until(worker, lambda: seen_of(long)[0] > 150)
    assert not worker.sessions[0].rows.settled
    other = worker.submit(call(toy, LONG[:150] + "xyz"))
    run(worker)
    assert started_of(other).num_cached_tokens > 64


def test_prompt_goes_on_where_the_one_before_it_was_cancelled(toy, make_worker, small_passes):
    worker = make_worker(parallel=2, cache=PrefixCache(1 << 26))
    jobs = [worker.submit(call(toy, LONG)) for _ in range(2)]
    until(worker, lambda: seen_of(jobs[0])[0] >= 100)
    assert not jobs[1].events.seen
    jobs[0].cancel()
    run(worker)
    assert 100 <= started_of(jobs[1]).num_cached_tokens < started_of(jobs[1]).num_prompt_tokens - 1
    expected = toy.generate(LONG, max_tokens=12, logit_bias=PLAIN, drafter="none").token_ids
    assert tokens_of(jobs[1]) == expected


def test_a_reply_that_waits_for_a_prompt_can_be_cancelled(toy, make_worker, small_passes):
    worker = make_worker(parallel=2)
    jobs = [worker.submit(call(toy, LONG)) for _ in range(2)]
    for _ in range(4):
        worker.step()
    jobs[1].cancel()
    worker.step()
    *_, last = read(jobs[1])
    assert last.result.finish_reason == "cancelled"
    assert not seen_of(jobs[0])[1]
    run(worker)


@pytest.mark.parametrize("family", ["mamba2", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_caches_that_cannot_drop_rows_wait_no_longer(make_worker, small_passes, family):
    """They go back to checkpoints, so a waiting reply may use less than was read meanwhile."""
    with toy_engine(family) as engine:
        worker = make_worker(engine, parallel=2, cache=PrefixCache(1 << 26))
        jobs = [worker.submit(call(engine, LONG + end)) for end in ("abc", "xyz")]
        run(worker)
        expected = [
            engine.generate(LONG + end, max_tokens=12, logit_bias=PLAIN, drafter="none").token_ids
            for end in ("abc", "xyz")
        ]
        assert [tokens_of(job) for job in jobs] == expected
        worker.close()


class TestJobs:
    """Each test is a mutant that only slow tests, or none, noticed."""

    def test_a_prompt_is_laid_out_anew_for_another_engine(self, toy, make_worker):
        job = make_worker().submit(call(toy))
        asked = []
        job.prepare = lambda engine: asked.append(engine) or job.prepared
        with toy.sibling() as other:
            for engine in (toy, other, other, toy):
                job.fit(engine)
            assert asked == [other, toy]

    def test_places_follow_a_respelled_prompt(self, toy, make_worker):
        prompt = toy.prompt_ids(TEXT)
        places = {"system": 3, REMINDER: len(prompt) - 3, MESSAGE: len(prompt) - 2}
        job = make_worker().submit(call(toy), checkpoints=places)
        job.spell((*prompt[:5], prompt[5], *prompt[5:]))
        moved = {REMINDER: len(prompt) - 2, MESSAGE: len(prompt) - 1}
        assert job.prepared.checkpoints == {"system": 3, **moved}
        assert len(job.prompt) == len(prompt) + 1

    @pytest.mark.parametrize(
        ("room", "asked", "spelled"), [(0, True, False), (1, True, True), (1, False, False)]
    )
    def test_a_prompt_is_respelled_within_the_context_where_that_was_asked_for(
        self, toy, make_worker, monkeypatch, room, asked, spelled
    ):
        worker = make_worker()
        job = worker.submit(call(toy), respell=asked)
        longer = tuple(job.prompt[:1]) * (toy.context - room)
        monkeypatch.setattr(Respelling, "longest", lambda *_: longer)
        run(worker)
        assert (job.prompt == longer) == spelled

    def test_nobody_overtakes_the_first_of_the_line(self, toy, make_worker, monkeypatch):
        worker = make_worker(parallel=2)
        worker.submit(call(toy, max_tokens=3))
        worker.step()
        room = iter([False, True, False])
        monkeypatch.setattr(worker, "_has_room", lambda *_: next(room))
        first, second = (worker.submit(call(toy), client=client) for client in "ab")
        until(worker, lambda: first.events.seen or second.events.seen)
        assert not second.events.seen
        monkeypatch.undo()
        run(worker)

    def test_a_line_that_was_held_up_goes_on_behind_a_cancelled_job(
        self, toy, make_worker, monkeypatch
    ):
        worker = make_worker(parallel=1)
        first, second = (worker.submit(call(toy)) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(worker, "_has_room", lambda *_: False)
            worker.step()
        assert not worker.step()
        first.cancel()
        run(worker)
        assert len(tokens_of(second)) == 12

    @pytest.mark.parametrize(("shared", "waits"), [(63, False), (64, True)])
    def test_who_reads_the_same_prompt_is_waited_for_if_that_saves_much(
        self, toy, make_worker, shared, waits
    ):
        worker = make_worker(parallel=4)
        *_, other = (
            worker.submit(toy.check([9] * count + [token] * 9, max_tokens=2))
            for count, token in ((shared - 1, 7), (shared, 8), (shared - 1, 11), (shared, 10))
        )
        run(worker)
        assert started_of(other).num_cached_tokens == (shared if waits else 0)

    def test_rows_are_kept_with_the_whole_text_and_the_first_place_of_the_last_message(
        self, toy, make_worker
    ):
        worker = make_worker(cache=PrefixCache(1 << 26))
        end = len(toy.prompt_ids(TEXT))
        for places, expected in (
            ({SYSTEM: 3, REMINDER: 9, MESSAGE: end - 2}, 9),
            ({SYSTEM: 3}, end - 1),
        ):
            job = worker.submit(call(toy), checkpoints=places)
            run(worker)
            assert list(worker.cache.nearest(job.prompt, ())) == [(*job.prompt, *tokens_of(job))]
            # Who shares the last message is handed the rows, anybody else gets a copy.
            for shared in (expected - 1, expected):
                other = [*job.prompt[:shared], 0, 0]
                assert worker.cache.touch(other, ()) == (shared if shared == expected else 0)
            worker.cache.close()

    def test_a_reply_needs_the_room_that_others_may_still_take(self, toy, make_worker, monkeypatch):
        worker = make_worker(cache=PrefixCache(1 << 26))
        model = worker.models.default
        worker.submit(call(toy))
        run(worker)
        asked = []
        monkeypatch.setattr(worker.models, "free_rows", lambda *sizes: not asked.append(sizes))
        source = SimpleNamespace(
            rows=lambda tokens: 10 * tokens, largest_pass=lambda tokens, replies: 3 * replies
        )
        monkeypatch.setattr(model, "source", source)
        running = worker.submit(call(toy, "another text", max_tokens=20))
        for _ in range(4):
            worker.step()
        (session,) = worker.sessions
        growth = len(running.prompt) + 20 - len(session.rows.tokens)
        assert growth > 0
        again = worker.submit(call(toy))  # it is handed the rows of the first
        held = len(again.prompt) - 1
        assert worker._has_room(again, 70, model.resident)
        assert asked[-1] == (10 * (70 - held + growth) + 6, 10 * held)

        def drops_rows(*sizes):
            asked.append(sizes)
            worker.cache.close()
            return True

        monkeypatch.setattr(worker.models, "free_rows", drops_rows)
        assert worker._has_room(again, 70, model.resident)
        assert asked[-1] == (10 * (70 + growth) + 6, 0)
        monkeypatch.setattr(toy, "takes_turns", "they cannot be joined")
        assert worker._has_room(again, 70, model.resident)
        assert asked[-1] == (10 * (70 + growth) + 3, 0)
        monkeypatch.undo()
        run(worker)

    def test_a_place_is_free_when_the_first_of_those_under_way_ends(self, toy, make_worker):
        times = iter([100.0, *[105.0] * 99])
        worker = make_worker(parallel=1, places=0, clock=lambda: next(times))
        worker.submit(call(toy))
        run(worker)
        worker.submit(call(toy))
        worker.step()
        # 5 s count for a fifth of the mean.
        assert [self.turned_away(worker, toy) for _ in range(3)] == [9, 18, 27]
        run(worker)
        worker.submit(call(toy))
        worker.step()
        # Two are left, and the mean has fallen by a fifth.
        assert self.turned_away(worker, toy) == 22

    def test_a_place_is_not_free_before_those_are_long_that_are_under_way(self, toy, make_worker):
        now = [0.0]
        worker = make_worker(parallel=2, places=0, clock=lambda: now[0])
        for _ in range(2):
            worker.submit(call(toy))
            worker.step()
            now[0] += 30
        assert [self.turned_away(worker, toy) for _ in range(5)] == [15, 30, 45, 60, 60]

    def turned_away(self, worker, toy):
        with pytest.raises(ServerBusyError) as busy:
            worker.submit(call(toy))
        return busy.value.retry_after_s

    def test_a_model_is_used_until_its_replies_end(self, toy, make_worker, monkeypatch):
        worker = make_worker()
        touched = []
        monkeypatch.setattr(worker.models, "touch", touched.append)
        worker.submit(call(toy))
        worker.step()
        assert len(touched) == 1
        run(worker)
        assert touched == [worker.models.default] * 2


def test_a_job_that_is_put_back_is_the_next():
    line = WaitingLine(9)
    jobs = [SimpleNamespace(client=client) for client in "aabc"]
    for job in jobs:
        line.put(job)
    for _ in range(4):
        job = line.pop()
        line.put_back(job)
        assert line.pop() is job
        jobs.remove(job)
    assert jobs == []
