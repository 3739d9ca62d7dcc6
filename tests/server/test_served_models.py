"""Models on demand: loaded when a request names them, evicted for others, unloaded when idle.

Over real HTTP, with two tiny models whose memory is simulated: a budget in bytes that the test
changes. Loads wait where a test tells them to.
"""

import threading
import time
from dataclasses import replace
from itertools import count, pairwise

import pytest
from inside import entries, lanes_of, running_jobs, wake
from kept_worker import Worker
from scripted_server import running, samples_of
from shared_files import ROOT
from turns import run

from akunu_py.engine.engine import Engine
from akunu_py.models.load import LoadOptions
from akunu_py.models.load_steps import finish
from akunu_py.models.memory_check import PlannedModel
from akunu_py.server.disk_tier import DiskTier
from akunu_py.server.engine_backend import EngineBackend
from akunu_py.server.events import Loading
from akunu_py.server.model_source import ModelFile, served_model
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.reply_response import Patience
from akunu_py.server.served_models import ServedModels
from akunu_py.server.worker import Prepared
from akunu_py.system.errors import ConfigError, EngineStateError, ModelFormatError
from akunu_py.values.load_options import EngineOptions

SIZE = 10_000_000
"""Bytes of a model in the simulated memory; 256 rows of the larger one take 0.1 MB."""

CHAT = "/v1/chat/completions"
ASK = {
    "messages": [{"role": "user", "content": "Hello there, how are you doing today?"}],
    "max_tokens": 6,
    "seed": 3,
}


class Memory:
    """A machine with room for so many models."""

    def __init__(self, models):
        self.size = int(models * SIZE)
        self.used = 0
        self.caches = []

    def available(self):
        return self.size - self.used - sum(cache.nbytes for cache in self.caches)


class Source:
    """A model over weights that stay in memory really, and leave it in the simulation."""

    def __init__(self, id_, lasting, memory):
        self.id = id_
        self.lasting = lasting
        self.memory = memory
        self.size = SIZE
        self.row = 0
        self.loads = 0
        self.steps, self.made = 3, 0
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.error = self.late_error = None

    def describe(self):
        return replace(served_model(self.lasting), id=self.id, loaded=False)

    def loading(self):
        return self.size

    def rows(self, tokens):
        return self.row * tokens

    def largest_pass(self, tokens, replies):
        return 0

    def open(self, available):
        assert available >= self.size
        self.begun.set()
        assert self.go_on.wait(300)
        if self.error is not None:
            raise self.error
        return self.load()

    def load(self):
        self.made = 0
        for _ in range(self.steps):
            self.made += 1
            yield
        if self.late_error is not None:
            raise self.late_error
        self.loads += 1
        self.memory.used += self.size
        engine = self.lasting.sibling()
        close = engine.close

        def closed():
            self.memory.used -= self.size
            close()

        engine.close = closed
        return engine


@pytest.fixture(scope="module")
def lasting(roomy_gguf, tiny_draft):
    with Engine.load(roomy_gguf) as one, Engine.load(tiny_draft) as other:
        yield one, other


class Bench:
    """A server with the models "one" and "other"."""

    def __init__(self, lasting, room=1.5, **options):
        self.memory = Memory(room)
        self.one, self.other = (
            Source(name, engine, self.memory)
            for name, engine in zip(("one", "other"), lasting, strict=True)
        )
        self.now = 0.0
        patience = options.pop("patience", Patience())
        folder = options.pop("folder", None)
        parallel = options.pop("parallel", 2)

        def cache(engine):
            disk = None
            if folder is not None:
                lane = engine.lane()
                disk = DiskTier(folder, 1 << 28, (yield from lane.session.digest()))
                lane.close()
            self.memory.caches.append(PrefixCache(1 << 28, disk))
            return self.memory.caches[-1]

        options.setdefault("cache_limit", 1 << 28)
        models = ServedModels(
            [self.one, self.other], cache, available=self.memory.available,
            clock=lambda: self.now, **options,
        )  # fmt: skip
        self.worker = Worker(models, parallel=parallel, places=8)
        # Cleared, the worker stops when a reply has its first tokens: it cannot end too early.
        self.replies_go_on = threading.Event()
        self.replies_go_on.set()
        step = self.worker.step

        self.most_running = 0
        self.stepping = False

        def held_step():
            jobs = running_jobs(self.worker)
            self.most_running = max(self.most_running, len(jobs))
            if any(job.reply for job in jobs):
                assert self.replies_go_on.wait(120)
            self.stepping = True
            try:
                return step()
            finally:
                self.stepping = False

        self.worker.step = held_step
        self.worker.start()
        self.running = running(EngineBackend(self.worker), patience=patience)

    def __enter__(self):
        self.server = self.running.__enter__()
        return self

    def __exit__(self, *error):
        for source in (self.one, self.other):
            source.go_on.set()
        self.replies_go_on.set()
        self.running.__exit__(*error)
        self.worker.close()

    def ask(self, model, **fields):
        return self.server.post(CHAT, ASK | {"model": model} | fields)

    def loaded(self):
        return self.server.get("/health").json()["loaded"]

    def long(self, model, size):
        """A request for a stream of so many tokens."""
        ends = self.one.lasting.tokenizer.end_ids
        bias = {str(token): -100.0 for token in ends}
        fields = {"max_tokens": size, "logit_bias": bias, "temperature": 1.0}
        return ASK | {"model": model, "stream": True, **fields}

    def in_thread(self, model, **fields):
        found = []
        thread = threading.Thread(target=lambda: found.append(self.ask(model, **fields)))
        thread.start()
        return thread, found

    def settle(self):
        """Wait until the worker has kept the rows of all replies."""
        # A reply is sent before the step ends that keeps its rows.
        self.until(lambda: not (self.worker.health().running or self.stepping))

    def until(self, condition):
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def bench(lasting):
    with Bench(lasting) as bench:
        yield bench


def text_of(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def test_model_is_loaded_when_a_request_names_it(bench, lasting):
    listed = bench.server.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in listed[:2]] == ["one", "other"]
    assert bench.loaded() == []
    for name, engine in zip(("one", "other"), lasting, strict=True):
        with engine.sibling() as alone:
            expected = alone.chat(ASK["messages"], max_tokens=6, seed=3).text
        assert text_of(bench.ask(name)) == expected
        assert bench.loaded() == [name]
    assert text_of(bench.ask(None)) == text_of(bench.ask("claude-akunu-one"))
    assert (bench.one.loads, bench.other.loads) == (2, 1)
    samples = samples_of(bench.server)
    assert samples["akunu_model_events_total", "load"] == 3
    assert samples["akunu_model_events_total", "eviction"] == 2
    assert samples["akunu_model_loaded", "one"] == 1
    assert samples["akunu_model_loaded", "other"] == 0


def test_models_that_fit_together_stay_with_their_rows(lasting):
    with Bench(lasting, room=20) as bench:
        for name in ("one", "other") * 2:
            again = bench.ask(name)
            bench.settle()
        assert bench.loaded() == ["one", "other"]
        assert (bench.one.loads, bench.other.loads) == (1, 1)
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 10


def test_rows_go_before_a_model_does(lasting):
    with Bench(lasting, room=2) as bench:
        bench.ask("one")
        bench.settle()
        assert bench.worker.models.cache_bytes
        bench.ask("other", max_tokens=1)
        assert bench.loaded() == ["one", "other"]
        assert len(bench.worker.models.named("one").resident.cache) == 0


def test_rows_share_one_limit(lasting):
    with Bench(lasting, room=20, cache_limit=200_000) as bench:
        for number in range(3):
            for name in ("one", "other"):
                bench.ask(name, messages=[{"role": "user", "content": f"{number} Hello there"}])
                bench.settle()
                assert 0 < bench.worker.models.cache_bytes <= 200_000


def test_stream_is_kept_alive_while_a_model_is_loaded(lasting):
    with Bench(lasting, patience=Patience(first_s=0.01, keep_alive_s=0.02)) as bench:
        bench.one.go_on.clear()
        found = b""
        with bench.server.client.stream(
            "POST", CHAT, json=ASK | {"model": "one", "stream": True}
        ) as response:
            assert response.status_code == 200
            for part in response.iter_raw():
                found += part
                if found.count(b"\n\n") > 6 and not bench.one.go_on.is_set():
                    assert bench.server.get("/health").json()["loading"] == "one"
                    bench.one.go_on.set()
        assert b"[DONE]" in found
        assert bench.server.get("/health").json()["loading"] is None


def test_late_model_is_503_where_nothing_can_be_sent_meanwhile(lasting):
    with Bench(lasting) as bench:
        bench.one.go_on.clear()
        # A request that leaves before its turn comes begins no load.
        thread, patient = bench.in_thread("one")
        assert bench.one.begun.wait(300)
        bench.server.service.patience = Patience(load_s=0.05)
        response = bench.ask("one")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "30"
        error = response.json()["error"]
        assert "one is being loaded" in error["message"]
        assert error["code"] == "model_loading"
        bench.one.go_on.set()
        thread.join(300)
        assert text_of(patient[0])
        assert text_of(bench.ask("one"))


def test_running_replies_finish_before_their_model_goes(bench):
    """The line stays fair: who asks for the old model later comes after the new one."""
    bench.replies_go_on.clear()
    with bench.server.client.stream("POST", CHAT, json=bench.long("one", 20)) as response:
        bench.until(lambda: bench.worker.health().running == 1)
        second, answered = bench.in_thread("other")
        bench.until(lambda: bench.worker.health().waiting == 1)
        third, later = bench.in_thread("one")
        bench.until(lambda: bench.worker.health().waiting == 2)
        bench.replies_go_on.set()
        text = response.read().decode()
    assert '"finish_reason":"' in text
    assert '"error"' not in text
    for thread in (second, third):
        thread.join(300)
    assert text_of(answered[0])
    assert text_of(later[0])
    assert (bench.one.loads, bench.other.loads) == (2, 1)


def cache_in(memory):
    """Steps that make a cache whose rows take a simulated memory."""
    memory.caches.append(PrefixCache(1 << 28))
    yield
    return memory.caches[-1]


class TestLoadInSteps:
    """A worker whose turns the test makes, and a clock by which each takes a second."""

    @pytest.fixture
    def pair(self, lasting):
        memory = Memory(20)
        return [
            Source(name, engine, memory)
            for name, engine in zip(("one", "other"), lasting, strict=True)
        ]

    @pytest.fixture
    def worker(self, pair):
        models = ServedModels(pair, available=pair[0].memory.available)
        worker = Worker(models, parallel=2, places=8, clock=count().__next__)
        yield worker
        worker.close()

    def ask(self, worker, model, tokens=200, text="Hello there"):
        def prepare(engine):
            bias = dict.fromkeys(engine.tokenizer.end_ids, -100.0)
            ids = engine.prompt_ids(text)
            return Prepared(engine.check(ids, max_tokens=tokens, drafter="none", logit_bias=bias))

        return worker.ask(prepare, model=model)

    def until(self, worker, condition):
        while not condition():
            assert worker.step()

    def test_running_replies_go_on_between_the_steps(self, worker, pair):
        one, other = pair
        reply = self.ask(worker, "one")
        self.until(worker, lambda: reply.reply)
        other.steps = 20
        other.go_on.clear()
        late = self.ask(worker, "other", 3)
        # While the file is read and its tokenizer built, in another thread.
        tokens = len(reply.reply)
        for _ in range(5):
            worker.step()
        assert other.begun.wait(300)
        assert (len(reply.reply), other.made) == (tokens + 5, 0)
        other.go_on.set()
        self.until(worker, lambda: other.made)
        while not other.loads:
            before = other.made, len(reply.reply)
            worker.step()
            assert (other.made - before[0], len(reply.reply) - before[1]) in {(1, 1), (0, 1)}
        assert other.made == 20
        self.until(worker, lambda: late.reply)
        with one.lasting.sibling() as alone:
            call = reply.prepared.call
            expected = alone.generate(call.prompt, call.choice.config).token_ids
        self.until(worker, lambda: len(reply.reply) == 200)
        assert tuple(reply.reply) == expected

    def test_models_take_turns(self, worker):
        """Replies of two models share no pass: each model's have every other round."""
        jobs = [self.ask(worker, name, 60) for name in ("one", "other")]
        self.until(worker, lambda: all(job.reply for job in jobs))
        before = [len(job.reply) for job in jobs]
        for _ in range(20):
            worker.step()
        assert [len(job.reply) - count for job, count in zip(jobs, before, strict=True)] == [10, 10]

    def test_rows_of_a_model_that_leaves_are_stored_in_steps(self, lasting, tmp_path):
        """Each step of the load writes the rows of one conversation."""
        memory = Memory(20)
        sources = [Source(name, lasting[number % 2], memory) for number, name in enumerate("abc")]

        def cache(engine):
            yield
            return PrefixCache(1 << 28, DiskTier(tmp_path, 1 << 28, str(id(engine))))

        models = ServedModels(sources, cache, available=memory.available)
        worker = Worker(models, parallel=2, places=8, clock=count().__next__)
        for text in ("Hello there " * 10, "And you, too? " * 10):
            self.ask(worker, "b", 1, text)
        run(worker)
        reply = self.ask(worker, "a")
        self.until(worker, lambda: reply.reply)
        assert (len(models.named("b").resident.cache), memory.used) == (2, 2 * SIZE)
        memory.size = int(2.5 * SIZE)
        self.ask(worker, "c", 1)

        def state():
            return len(list(tmp_path.glob("*/*.json"))), len(reply.reply)

        seen = [state()]
        while not models.counts.evictions:
            worker.step()
            seen.append(state())
        # The third step finds no more rows, and evicts the model.
        assert [rows for rows, _ in seen] == [0, 1, 2, 2]
        assert {new[1] - old[1] for old, new in pairwise(seen)} == {1}
        worker.close()

    def test_short_steps_share_a_turn(self, pair):
        one, other = pair
        models = ServedModels(pair, available=one.memory.available)
        worker = Worker(models, parallel=2, places=8, clock=lambda: 0.0)
        reply = self.ask(worker, "one")
        self.until(worker, lambda: reply.reply)
        other.steps = 1000
        self.ask(worker, "other")
        self.until(worker, lambda: other.made)
        assert other.loads == 1
        worker.close()

    def test_end_of_the_server_drops_the_load(self, worker, pair):
        one, other = pair
        self.ask(worker, "one", 1)
        self.until(worker, lambda: one.loads)
        late = self.ask(worker, "other")
        self.until(worker, lambda: other.made)
        assert worker.models.loading == "other"
        worker.close()
        assert worker.models.loading == ""
        assert (other.loads, one.memory.used) == (0, 0)
        with pytest.raises(EngineStateError, match="shutting down"):
            list(late.events)

    def test_job_that_left_does_not_stop_the_load(self, worker, pair):
        _, other = pair
        job = self.ask(worker, "other")
        self.until(worker, lambda: other.made)
        job.cancel()
        run(worker)
        assert other.loads == 1
        assert [type(event) for event in job.events] == [Loading]

    def test_replies_under_way_keep_the_memory_they_may_need(self, worker, pair):
        one, other = pair
        reply = self.ask(worker, "one")
        self.until(worker, lambda: reply.reply)
        one.row = 50_000
        # There is room for the model, but not beside 200 rows.
        one.memory.size = one.memory.used + other.size + 5_000_000
        late = self.ask(worker, "other", 1)
        self.until(worker, lambda: len(reply.reply) == 200)
        assert other.loads == 0
        self.until(worker, lambda: late.reply)

    def test_replies_that_go_on_with_cached_rows_fit_together(self, pair):
        """What each takes over is there already, before either has made a turn."""
        one, _ = pair

        def available():
            lanes = lanes_of(models.default.resident) if models.default.resident else ()
            return one.memory.available() - sum(lane.session.rows.nbytes for lane in lanes)

        models = ServedModels(pair, lambda _: cache_in(one.memory), available=available)
        worker = Worker(models, parallel=2, places=8, clock=count().__next__)
        texts = ["Hello there " * 40, "And you, too? " * 40]
        for text in texts:
            self.ask(worker, "one", 2, text)
            run(worker)
        cache = models.default.resident.cache
        one.row = cache.nbytes // sum(len(entry.key) for entry in entries(cache))
        tokens = sum(len(one.lasting.prompt_ids(text)) + 200 for text in texts)
        # Rows of the replies before are there for a moment, too.
        for short, most in ((5, 1), (-5, 2)):
            one.memory.size = one.memory.used + (tokens - short) * one.row
            jobs = [self.ask(worker, "one", 200, text) for text in texts]
            worker.step()
            assert worker.health().running == most
            # Nor are the rows dropped that one of them was admitted with.
            held = [len(lane.session.rows.tokens) for lane in lanes_of(models.default.resident)]
            assert sum(count > 100 for count in held) == most
            for job in jobs:
                job.cancel()
            run(worker)
        worker.close()

    def test_the_largest_pass_of_all_replies_is_kept_free(self, worker, pair, monkeypatch):
        """Also that of another model than the one that is asked."""
        one, other = pair
        jobs = [self.ask(worker, name, 200) for name in ("one", "other")]
        self.until(worker, lambda: jobs[0].reply and jobs[1].reply)
        for job in jobs:
            job.cancel()
        run(worker)
        monkeypatch.setattr(other, "largest_pass", lambda *_: 5_000_000)
        for room, most in ((5_000_000, 2), (4_000_000, 1)):
            one.memory.size = one.memory.used + 6_000_000
            jobs = [self.ask(worker, "other", 200)]
            self.until(worker, lambda jobs=jobs: jobs[0].reply)
            one.memory.size = one.memory.used + room
            jobs.append(self.ask(worker, "one", 2))
            worker.step()
            assert worker.health().running == most
            for job in jobs:
                job.cancel()
            run(worker)


def test_waiting_request_that_is_cancelled_holds_nobody_up(bench):
    bench.server.service.patience = Patience(first_s=0.01)
    bench.replies_go_on.clear()
    with bench.server.client.stream("POST", CHAT, json=bench.long("one", 1500)) as response:
        pieces = response.iter_raw()  # kept: without it the connection would be closed
        next(pieces)
        with bench.server.client.stream(
            "POST", CHAT, json=ASK | {"model": "other", "stream": True}
        ) as waiting:
            assert waiting.status_code == 200
            bench.until(lambda: bench.worker.health().waiting == 1)
            bench.replies_go_on.set()
        assert text_of(bench.ask("one", max_tokens=2))
        assert bench.other.loads == 0


@pytest.mark.parametrize("found", ["error", "late_error"])
def test_model_that_cannot_be_loaded_fails_alone(bench, found):
    """Some files are found out when they are opened, others in a step of the load."""
    setattr(bench.other, found, ModelFormatError("other.gguf is damaged"))
    response = bench.ask("other")
    assert response.status_code == 500
    assert "other.gguf is damaged" in response.json()["error"]["message"]
    assert text_of(bench.ask("one"))
    setattr(bench.other, found, None)
    assert text_of(bench.ask("other"))


def test_idle_model_leaves_memory_and_comes_back(lasting, tmp_path):
    with Bench(lasting, idle_s=60.0, folder=tmp_path) as bench:
        first = bench.ask("one")
        bench.settle()
        bench.now = 59.0
        text_of(bench.ask("one"))
        bench.settle()
        bench.now = 118.0
        wake(bench.worker)
        assert bench.loaded() == ["one"]
        bench.now = 200.0
        wake(bench.worker)
        bench.until(lambda: bench.memory.used == 0)
        assert bench.loaded() == []
        health = bench.server.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert samples_of(bench.server)["akunu_model_events_total", "unload"] == 1
        # Its rows went to disk.
        again = bench.ask("one")
        assert text_of(again) == text_of(first)
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 10
        assert bench.one.loads == 2


def test_a_model_leaves_when_it_is_told_to_and_no_reply_is_under_way(lasting):
    with Bench(lasting, room=3) as bench:
        first = bench.ask("one")
        text_of(bench.ask("other"))
        bench.settle()
        bench.replies_go_on.clear()
        thread, found = bench.in_thread("other")
        bench.until(lambda: bench.worker.health().running)
        told = bench.server.post("/api/generate", {"model": "one", "keep_alive": 0})
        assert told.json()["done_reason"] == "unload"
        assert bench.loaded() == ["one", "other"]
        bench.replies_go_on.set()
        thread.join(300)
        assert text_of(found[0])
        bench.until(lambda: bench.loaded() == ["other"])
        assert text_of(bench.ask("one")) == text_of(first)
        assert (bench.one.loads, bench.other.loads) == (2, 1)
        # It was asked for again, so it stays.
        bench.settle()
        assert bench.loaded() == ["one", "other"]


def test_a_model_is_added_and_called_by_many_names_but_not_by_any_number(lasting):
    memory = Memory(2)
    models = ServedModels([Source("one", lasting[0], memory)], available=memory.available)
    going = iter(models)
    models.add(Source("two", lasting[1], memory))
    assert [model.id for model in (*going, *models)] == ["one", "one", "two"]
    for number in range(1000):
        models.call("two", f"name {number}")
    assert models.named("one").description.names == frozenset()
    assert "name 0" in models.named("two").description.names
    assert len(models.named("two").description.names) == 100


def test_tokens_are_counted_by_a_model_that_is_loaded_for_it(bench):
    ask = {"messages": ASK["messages"]}
    counted = bench.server.post("/v1/messages/count_tokens", ask | {"model": "other"}).json()
    assert bench.loaded() == ["other"]
    again = bench.server.post("/v1/messages/count_tokens", ask | {"model": "other"}).json()
    assert counted == again
    assert counted["input_tokens"] == bench.ask("other").json()["usage"]["prompt_tokens"]


class TestMemoryOfReplies:
    def test_reply_that_does_not_fit_is_503(self, lasting):
        with Bench(lasting, room=2) as bench:
            bench.one.row = 1_000_000
            response = bench.ask("one", max_tokens=50)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "30"
            error = response.json()["error"]
            assert "smaller limit of tokens" in error["message"]
            assert error["code"] == "out_of_memory"
            bench.one.row = 0
            assert text_of(bench.ask("one"))

    def test_cached_rows_go_first(self, lasting):
        other_text = [{"role": "user", "content": "another text " * 20}]

        def cached(response):
            assert response.status_code == 200, response.text
            bench.settle()
            return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        with Bench(lasting, room=2) as bench:
            cached(bench.ask("one", messages=other_text, max_tokens=1))
            assert cached(bench.ask("one", messages=other_text, max_tokens=1)) > 16
            bench.ask("one", max_tokens=1)
            bench.settle()
            # Room for ten new tokens, but not beside all of the cached rows.
            bench.one.row = 1000
            held = bench.worker.models.cache_bytes
            bench.memory.size = bench.memory.used + 11 * bench.one.row + held * 3 // 4
            assert cached(bench.ask("one", max_tokens=10)) > 16
            bench.one.row = 0
            assert cached(bench.ask("one", messages=other_text, max_tokens=1)) < 16

    def test_reply_waits_for_the_memory_of_another(self, lasting):
        with Bench(lasting, room=2) as bench:
            bench.ask("one", max_tokens=1)
            bench.settle()
            # 10 MB are free; the new tokens of the two take 7.2 and 5.4. Their prompt is cached.
            bench.one.row = 180_000
            bench.replies_go_on.clear()
            with bench.server.client.stream("POST", CHAT, json=bench.long("one", 40)) as response:
                parts = response.iter_raw()
                next(parts)
                thread, found = bench.in_thread("one", max_tokens=30)
                bench.until(lambda: bench.worker.health().waiting == 1)
                bench.replies_go_on.set()
                assert b"[DONE]" in b"".join(parts)
            thread.join(300)
            assert text_of(found[0])
            # The other began when this one had ended.
            assert bench.most_running == 1


def test_memories_of_auto_are_those_of_client_and_model(lasting):
    with Bench(lasting, room=20) as bench:
        for name in ("one", "other"):
            bench.ask(name, max_tokens=12)
            bench.settle()
        one, other = (bench.worker.models.named(name).clients for name in ("one", "other"))
        texts = [clients.state("local").memory.texts() for clients in (one, other)]
        assert [len(found) for found in texts] == [1, 1]
        assert one is not other


def test_file_says_what_it_needs(lasting):
    path = ROOT / "models" / "akunu-tiny.gguf"
    source = ModelFile("tiny", [PlannedModel(path, LoadOptions())], EngineOptions(context=512))
    described = source.describe()
    assert (described.id, described.context, described.loaded) == ("tiny", 512, False)
    assert (described.name, described.trained) == ("akunu-tiny", 2048)
    assert source.loading() > path.stat().st_size
    assert source.rows(512) > source.rows(256) > 0
    assert source.largest_pass(512, 8) > source.largest_pass(512, 1) > 0
    with finish(source.open(1 << 40)) as engine:
        assert engine.context == 512
        assert served_model(engine).trained == 2048
    beyond = ModelFile("tiny", [PlannedModel(path, LoadOptions())], EngineOptions(context=4096))
    assert beyond.describe().context == 2048
    with finish(beyond.open(1 << 40)) as engine:
        assert engine.context == 2048
    forced = ModelFile("tiny", [PlannedModel(path, LoadOptions())], EngineOptions(), checked=False)
    assert forced.rows(512) == forced.largest_pass(512, 1) == 0
    with finish(forced.open(0)) as engine:
        assert engine.context > 512


def test_a_model_that_is_loaded_again_reads_calls_with_the_same_parser(tiny_gguf):
    options = EngineOptions(tool_parser="kimi_k3")
    source = ModelFile("tiny", [PlannedModel(tiny_gguf, options.of_model())], options)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with (
        finish(source.open(1 << 40)) as engine,
        pytest.raises(ConfigError, match="by mlx-lm's parser kimi_k3"),
    ):
        engine.chat([{"role": "user", "content": "hello"}], tools=[tool], tool_choice="required")
