"""The thread that owns MLX: it makes the replies of all clients, in rounds.

In a round all replies of a model that make tokens go on by one pass, which they share. Before it
others read their prompts: several short ones, or a part of a long one, some of the model's layers.
So a prompt is read in the same passes as by the engine, and nobody waits for the end of one.
Replies whose passes cannot be joined take turns.

Models are loaded in this thread, too, when the turn of a reply comes that needs one. Steps of the
load and turns of the replies under way alternate. The prompt is laid out only then, with the
tokenizer that was loaded.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace

from akunu_py.engine.embedding import CheckedTexts, embedding_steps
from akunu_py.engine.engine import Engine
from akunu_py.engine.lane import CheckedCall, Lane, ReplyInTurns
from akunu_py.engine.reply import Turns
from akunu_py.models.cached_rows import Progress
from akunu_py.models.memory_check import USUAL_CONTEXT
from akunu_py.models.session import Session
from akunu_py.protocols import Tokenizer
from akunu_py.server.backend import Health
from akunu_py.server.checkpoints import DIFFERENCE, SYSTEM
from akunu_py.server.errors import panics_as_errors
from akunu_py.server.events import Accepted, Finished, Loading, Prefilled, ReplyEvents, Usage
from akunu_py.server.prefix_cache import PrefixCache, Taken
from akunu_py.server.served_models import LoadSteps, Resident, Served, ServedModels
from akunu_py.server.token_trie import common_length
from akunu_py.server.waiting_line import WaitingLine
from akunu_py.system.errors import (
    AkunuError,
    ConfigError,
    EngineStateError,
    MemoryLimitError,
    ServerBusyError,
)
from akunu_py.values.types import StreamEvent

_log = logging.getLogger(__name__)

_USUAL_REPLY_S = 10.0
"""Assumed length of a reply until one has ended."""

_WORTH_WAITING = 64
"""Fewest tokens of a prompt for which a reply waits while another one reads them."""

_RECENT = 0.8
"""Weight of the past in the mean length of replies."""

_LONGEST_RETRY_S = 60

_TURNS_S = 0.05
"""Seconds of a round in which replies that do not share begin a turn: short prompts are read at
once, so that those who came together end together."""

_LOAD_TURN_S = 0.1
"""Seconds after which a load lets a reply have its turn; its last step may take longer."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call, or texts to embed, that an engine has checked, and places in the prompt.

    `checkpoints` are places to which caches should be able to go back, by name. `prediction` has
    the tokens of a text that the reply may repeat; `auto` drafts from it, as from the client's
    earlier replies.
    """

    call: CheckedCall | CheckedTexts
    checkpoints: Mapping[str, int] = field(default_factory=dict)
    prediction: Sequence[int] = ()


Prepare = Callable[[Engine], Prepared | None]
"""Lays a prompt out for an engine; None where that was all, and no reply is to be made."""


@dataclass(eq=False, slots=True)
class ReplyJob:
    """A reply that was asked for."""

    model: Served
    client: str
    prepare: Prepare
    """Lays the prompt out; again, if the model was loaded anew meanwhile."""
    respell: bool
    """Whether earlier replies in the prompt may keep their own token ids."""
    events: ReplyEvents = field(default_factory=ReplyEvents)
    cancelled: threading.Event = field(default_factory=threading.Event)
    reply: list[int] = field(default_factory=list)
    """Tokens of the reply so far."""
    prepared: Prepared = field(init=False)
    """What `prepare` made for the engine that `fit` was given, in the worker's spelling."""
    tokenizer: Tokenizer = field(init=False)
    """That engine's, which it outlives."""
    _engine: Engine | None = None

    def fit(self, engine: Engine) -> bool:
        """Lay the prompt out for an engine; return False if no reply is to be made.

        Whoever calls it holds the model's lock, and compiles the constraint without. Raises what
        `prepare` does.
        """
        if self._engine is engine:
            return True
        prepared = self.prepare(engine)
        if prepared is None:
            return False
        self.prepared, self.tokenizer, self._engine = prepared, engine.tokenizer, engine
        return True

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens of the prompt, once `fit` has laid it out."""
        return self.prepared.call.prompt

    @property
    def uncompiled(self) -> bool:
        """Whether the reply has a constraint that is not compiled."""
        matcher = None if self._engine is None else self.prepared.call.matcher
        return matcher is not None and not matcher.compiled

    def spell(self, prompt: tuple[int, ...]) -> None:
        """Write the prompt in other ids."""
        # The last places are near the end, where the spelling is the given one.
        longer = len(prompt) - len(self.prompt)
        places = {
            name: place if name == SYSTEM else place + longer
            for name, place in self.prepared.checkpoints.items()
        }
        assert isinstance(self.prepared.call, CheckedCall)  # noqa: S101 - texts have no prompt
        call = replace(self.prepared.call, prompt=prompt)
        self.prepared = replace(self.prepared, call=call, checkpoints=places)

    def cancel(self) -> None:
        """End the reply within one turn, from any thread.

        A reply that is under way still has a result; the events of one that waits just end.
        """
        self.cancelled.set()


@dataclass(eq=False, slots=True)
class _Running(ReplyInTurns):
    """A reply under way.

    `tokens` is its longest possible length, prompt included.
    """

    job: ReplyJob
    resident: Resident
    lane: Lane
    started: float
    tokens: int

    def growth(self) -> int:
        """Return the bytes of the rows that it may still add."""
        return _growth(self.job.model, self.tokens, self.lane)


@dataclass(frozen=True, slots=True)
class _Load:
    """A load under way, and the job that needs it."""

    job: ReplyJob
    steps: LoadSteps


class Worker:
    """Makes replies with models, `parallel` at once; no one else uses them meanwhile.

    Without `parallel` they are eight, or as many of usual length as memory holds with the default
    model, which is loaded then.

    Replies wait in a line with `places`, fair between clients. `step` begins replies while there
    are fewer than `parallel` and then makes a round. The text of a reply depends on
    neither the others nor the cache, as far as positions are bit-equal (docs/decisions.md).

    The first of the line may have to wait: for memory, until a reply ends, or for its model to be
    loaded. The others then wait behind it.

    An engine, with its `cache`, may stand for models that are loaded on demand; it stays open.

    `submit`, `ask`, `ReplyJob.cancel` and `health` may be called from any thread.

    Raises ConfigError for numbers out of range.
    """

    def __init__(
        self,
        models: ServedModels,
        *,
        parallel: int | None = None,
        places: int = 512,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = models
        if parallel is None:
            # A reply that is longer waits until there is memory for it.
            parallel = self.engine.reply_room.usual(USUAL_CONTEXT)
        if parallel < 1 or places < 0:
            raise ConfigError(
                f"parallel is {parallel} and the queue {places}; give 1 or more, and 0 or more"
            )
        self._parallel = parallel
        self._clock = clock
        self._changed = threading.Condition()
        self._line: WaitingLine[ReplyJob] = WaitingLine(places)
        # The reply whose turn it is comes first.
        self._running: deque[_Running] = deque()
        # Whether the first of the line waits until a reply ends.
        self._held_up = False
        self._load: _Load | None = None
        # Jobs whose constraints are compiled.
        self._compiling: set[ReplyJob] = set()
        # Replies that have taken rows, and where they read their prompts.
        self._reading: dict[ReplyJob, Lane] = {}
        self._mean_s = _USUAL_REPLY_S
        # Requests that were refused, less the replies that have ended since.
        self._turned_away = 0
        self._stopping = False
        self._why_no_more = "the server is shutting down; send the request again later"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="akunu worker", daemon=True)
        self._thread.start()

    @property
    def engine(self) -> Engine:
        """Return the engine of the default model; raises EngineStateError if it is not loaded."""
        return self._resident.engine

    @property
    def cache(self) -> PrefixCache:
        """Return the cache of the default model; raises EngineStateError if it is not loaded."""
        return self._resident.cache

    @property
    def _resident(self) -> Resident:
        resident = self.models.default.resident
        if resident is None:
            raise EngineStateError("the model is not in memory; ask for a reply first")
        return resident

    def ask(
        self, prepare: Prepare, *, model: str = "", client: str = "", respell: bool = False
    ) -> ReplyJob:
        """Ask for a reply of a model; without a name, of the default one.

        The prompt is laid out now if the model is in memory, else when it is loaded: a first event
        `Loading` says so. With `respell` ids of the prompt may be replaced by others of the same
        text, those that an earlier reply was made of; see `Respelling`.

        Raises what `prepare` does, ConfigError for an unknown model, ServerBusyError if too many
        replies wait, EngineStateError if the worker has ended.
        """
        served = self.models.named(model) if model else self.models.default
        job = ReplyJob(served, client, prepare, respell)
        with served.lock:
            if served.resident is None:
                job.events.put(Loading(served.id))
            elif not job.fit(served.resident.engine):
                job.events.end()
                return job
        if job.uncompiled:
            job.prepared.call.compile()
        with self._changed:
            if self._stopping:
                raise EngineStateError(self._why_no_more)
            busy = len(self._running) + len(self._compiling)
            if not self._line.put(job, free=self._parallel - busy):
                self._turned_away += 1
                retry_s = self._retry_s()
                raise ServerBusyError(
                    f"{len(self._line)} requests wait already; try again in {retry_s} s",
                    retry_after_s=retry_s,
                )
            self._changed.notify_all()
        return job

    def unload(self, name: str) -> None:
        """Take a model out of memory as soon as no reply is under way; a later one loads it again.

        Raises ConfigError for an unknown model.
        """
        model = self.models.named(name)
        with self._changed:
            model.leaves = True
            self._changed.notify_all()

    def health(self) -> Health:
        alive = self._thread is not None and self._thread.is_alive()
        with self._changed:
            waiting = len(self._line) + len(self._compiling) + (self._load is not None)
        counts = self.models.counts
        return Health(
            state="ok" if alive else "dead",
            running=len(self._running),
            waiting=waiting,
            places=self._parallel,
            cache_bytes=self.models.cache_bytes,
            loading=self.models.loading,
            loads=counts.loads,
            evictions=counts.evictions,
            unloads=counts.unloads,
        )

    def step(self) -> bool:
        """Begin waiting replies in free lanes, then make a round; return False if there is none.

        A load under way goes on before that. The thread calls this; so may a test, instead of
        `start`.
        """
        self._fill_lanes()
        loaded = self._load_on()
        if not self._running:
            return loaded
        alone = [one for one in self._running if not one.shares]
        until = self._clock() + _TURNS_S
        for one in sorted(alone, key=lambda one: not one.job.cancelled.is_set()):
            self._turn(one)
            if self._clock() >= until:
                break
        sharing = [one for one in self._running if one.shares]
        if sharing:
            resident = sharing[0].resident
            self._choose(resident, [one for one in sharing if one.resident is resident])
        return True

    def stop(self) -> None:
        """Let all replies end with an error, and take no more; from any thread, at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def close(self) -> None:
        """End all replies and the thread; store and drop cached rows, and close the models."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        else:
            self._shut_down()

    def _run(self) -> None:
        try:
            while self._wait():
                worked = self.step()
                self._tidy(idle=not worked)
        except BaseException:  # noqa: BLE001 - the replies learn that it ended, whatever it was
            self._why_no_more = "the server has failed and makes no more replies; restart it"
            _log.exception(self._why_no_more)
        finally:
            self._shut_down()

    def _tidy(self, *, idle: bool) -> None:
        """Give memory back, write rows to disk, and unload; no failure there ends the worker."""
        try:
            with panics_as_errors():
                self.models.relieve()
                self.models.store()
                if idle:
                    self.models.tidy()
        except Exception:  # noqa: BLE001
            _log.exception("tidying up has failed")

    def _wait(self) -> bool:
        """Wait until there is work; return False if the worker is to end.

        Writing rows to disk is work soon after a reply, and unloading after a while without one.
        """
        with self._changed:
            while not (self._stopping or self._running or self._load or len(self._line)):
                if not self._changed.wait(self.models.tidy_in()):
                    break
            return not self._stopping

    def _shut_down(self) -> None:
        """End all replies; store cached rows, and close the models."""
        error = EngineStateError(self._why_no_more)
        with self._changed:
            self._stopping = True
            for job in (*self._compiling, *self._line):
                job.events.end(error)
        if self._load is not None:
            self._load.steps.close()
            self._load.job.events.end(error)
            self._load = None
        while self._running:
            self._end(self._running[0], error)
        self.models.close()

    def _fill_lanes(self) -> None:
        """Drop cancelled jobs from the line; begin others while there are places."""
        with self._changed:
            for gone in [job for job in self._line if job.cancelled.is_set()]:
                self._line.remove(gone)
                gone.events.end()
                self._held_up = False
        while len(self._running) < self._parallel and not (self._held_up or self._load):
            with self._changed:
                job = self._line.pop()
            if job is None:
                return
            if not self._begin(job):
                self._held_up = True
                with self._changed:
                    self._line.put_back(job)

    def _begin(self, job: ReplyJob) -> bool:
        """Begin a reply or a load; return False if memory is short."""
        try:
            self.models.touch(job.model)
            resident = job.model.resident
            if resident is None:
                self._load = _Load(job, self.models.load(job.model, self._busy, self._growth))
                return True
            with job.model.lock:
                wanted = job.fit(resident.engine)
            if not wanted:
                job.events.end()
                return True
            if job.uncompiled:
                # Meanwhile it is the turn of others.
                self._compiling.add(job)
                threading.Thread(target=self._compile, args=(job,), daemon=True).start()
                return True
            tokens = _most_tokens(job.prepared.call, resident.engine)
            if not self._has_room(job, tokens, resident):
                return False
            lane = resident.take_lane()
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it ends this reply alone
            self._fail(job, error)
            return True
        turns = self._turns(job, resident, lane)
        running = _Running(turns, job, resident, lane, self._clock(), tokens)
        self._running.append(running)
        self._share_costs()
        # It takes rows now, while they are those that there was room beside.
        self._turn(running)
        return True

    def _compile(self, job: ReplyJob) -> None:
        """Compile a job's constraint, in a thread of its own; then it is the next of the line."""
        try:
            with panics_as_errors():
                job.prepared.call.compile()
        except Exception as error:  # noqa: BLE001 - of whatever kind, it ends this reply alone
            self._fail(job, error)
        with self._changed:
            self._compiling.discard(job)
            if not job.uncompiled:
                # Also if the worker ends: those in the line learn of it.
                self._line.put_back(job)
                self._changed.notify_all()

    def _busy(self) -> set[Served]:
        """Return the models of the replies under way."""
        return {one.job.model for one in self._running}

    def _growth(self) -> int:
        """Return the bytes of the rows that replies under way may still add."""
        return sum(one.growth() for one in self._running)

    def _load_on(self) -> bool:
        """Go on with the load under way, for about the time of a turn; False if there is none.

        At its end the job is the first of the line again. It waits there for the end of a reply if
        there was no room for its model.
        """
        load, until = self._load, self._clock() + _LOAD_TURN_S
        if load is None:
            return False
        try:
            while True:
                opening = next(load.steps)
                if opening is not None and not self._running:
                    wait([opening])
                elif opening is not None or self._clock() >= until:
                    return True
        except StopIteration as end:
            self._load, self._held_up = None, not end.value
            with self._changed:
                self._line.put_back(load.job)
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it ends this reply alone
            self._load = None
            self._fail(load.job, error)
        return True

    def _turns(self, job: ReplyJob, resident: Resident, lane: Lane) -> Turns:
        """Make a reply in turns, after those that read the same prompt have read it.

        A client that asks twice, or several agents with one system prompt, would otherwise have the
        same rows computed side by side. A turn of a reply that waits does nothing, and the one in
        which it takes rows does nothing else.
        """
        call = job.prepared.call
        if isinstance(call, CheckedTexts):
            yield from self._embed(job, call, lane)
            return
        while not job.cancelled.is_set() and (reader := self._reader(job, resident)):
            while self._reads(*reader) and not job.cancelled.is_set():
                yield None
        taken = self._take_rows(job, resident, lane)
        learned = job.model.clients.state(job.client)
        if job.prepared.prediction:
            learned.remember(job.prepared.prediction)
        assert isinstance(job.prepared.call, CheckedCall)  # noqa: S101 - spelled anew, if at all
        turns = lane.turns(
            job.prepared.call,
            learned,
            job.cancelled,
            checkpoints={
                **job.prepared.checkpoints,
                **({DIFFERENCE: taken.missed} if taken.missed else {}),
            },
            progress=_reporting(job.events, taken.reason),
            shared=resident.shared,
        )
        self._reading[job] = lane
        try:
            if not job.cancelled.is_set():
                yield None
            yield from turns
        finally:
            del self._reading[job]

    def _embed(self, job: ReplyJob, call: CheckedTexts, lane: Lane) -> Turns:
        """Make embeddings in turns, which end at the pauses of passes."""
        started = self._clock()
        steps = embedding_steps(call, lane.session)
        while not job.cancelled.is_set():
            try:
                next(steps)
            except StopIteration as end:
                took_s = self._clock() - started
                usage = Usage(prompt_tokens=call.num_tokens, completion_tokens=0, prefill_s=took_s)
                job.events.put(Finished("stop", usage, vectors=end.value))
                return
            yield None

    def _reader(self, job: ReplyJob, resident: Resident) -> tuple[ReplyJob, int] | None:
        """Return the reply that will read most of a job's prompt, and how many of its tokens.

        None where too little would be gained by waiting for it.
        """
        prompt = job.prompt
        others = self._sessions(resident, job)
        found: tuple[ReplyJob, int] | None = None
        most = resident.cache.reach(prompt, others) + _WORTH_WAITING - 1
        for other in self._reading:
            if other.model is not job.model:
                continue
            common = min(common_length(other.prompt, prompt), len(prompt) - 1)
            if common > most and self._reads(other, common):
                found, most = (other, common), common
        return found

    def _reads(self, job: ReplyJob, count: int) -> bool:
        """Whether a reply has not read `count` tokens of its prompt yet."""
        lane = self._reading.get(job)
        if lane is None:
            return False
        # Within a pass nobody can use rows, not even those of earlier passes.
        rows = lane.session.rows
        return len(rows.tokens) < count or not rows.settled

    def _sessions(self, resident: Resident, job: ReplyJob) -> list[Session]:
        """Return the sessions of other replies of a model."""
        return [
            one.lane.session
            for one in self._running
            if one.resident is resident and one.job is not job
        ]

    def _take_rows(self, job: ReplyJob, resident: Resident, lane: Lane) -> Taken:
        """Give a lane the rows that a job can use, and spell the job's prompt as they are."""
        cache, others = resident.cache, self._sessions(resident, job)
        if job.respell:
            given = job.prompt
            prompt = resident.spelling.longest(given, cache.nearest(given, others))
            if len(prompt) < resident.engine.context:
                job.spell(prompt)
        return cache.take(job.prompt, lane.session, others)

    def _has_room(self, job: ReplyJob, tokens: int, resident: Resident) -> bool:
        """Return whether memory holds a reply beside those under way, if cached rows make room.

        Raises MemoryLimitError if not even with them ended.
        """
        source = job.model.source
        prompt, others = job.prompt, self._sessions(resident, job)
        while True:
            held = resident.cache.touch(prompt, others)
            reused = source.rows(held)
            needed = source.rows(tokens) - reused + self._largest_pass(job.model, tokens)
            if not self.models.free_rows(needed + self._growth(), reused):
                break
            # Unless its own rows had to go, too: then it needs more.
            if resident.cache.touch(prompt, others) >= held:
                return True
        if self._running:
            return False
        raise MemoryLimitError(
            f"a reply of up to {tokens:,} tokens, prompt included, takes {needed / 1e9:.1f} GB of "
            "memory, more than is free; try again later, or give a shorter prompt or a smaller "
            "limit of tokens"
        )

    def _largest_pass(self, model: Served, tokens: int) -> int:
        """Return the bytes of the largest pass with a further reply; those of a model share one."""
        found = {model: [tokens]}
        for one in self._running:
            found.setdefault(one.job.model, []).append(one.tokens)
        counts = {one: 1 if one.description.takes_turns() else len(found[one]) for one in found}
        sources = ((one.source, max(each), counts[one]) for one, each in found.items())
        return max(source.largest_pass(*sizes) for source, *sizes in sources)

    def _turn(self, running: _Running) -> None:
        """Make one turn of a reply; an error ends only this reply."""
        self._hand_on(running, running.turn())
        if not running.over:
            self._running.remove(running)
            self._running.append(running)

    def _choose(self, resident: Resident, sharing: Sequence[_Running]) -> None:
        """Make the next step of replies of one model, with one pass for all."""
        for running, made in resident.engine.choose_steps(resident.shared, sharing):
            self._hand_on(running, made)
        # Another model comes first in the next round.
        self._running.rotate(-1)

    def _hand_on(self, running: _Running, made: StreamEvent | BaseException | None) -> None:
        """Hand on the event of a reply's turn, or its error; end the reply if it is over."""
        if isinstance(made, BaseException):
            self._fail(running.job, made)
        elif made is not None:
            running.job.reply += made.token_ids
            running.job.events.put(made)
        if running.over:
            self._end(running)

    def _end(self, running: _Running, error: Exception | None = None) -> None:
        """End a reply: its rows go to the cache, and its lane is free."""
        self._running.remove(running)
        self._held_up = False
        try:
            with panics_as_errors():
                running.turns.close()
                self._keep_rows(running.resident, running.lane, running.job)
        except Exception:  # noqa: BLE001 - the reply was made; its rows are lost
            _log.exception("the rows of a reply are not kept")
        self.models.touch(running.job.model)
        self._share_costs()
        self._turned_away = max(0, self._turned_away - 1)
        taken_s = self._clock() - running.started
        self._mean_s = _RECENT * self._mean_s + (1 - _RECENT) * taken_s
        running.job.events.end(error)

    def _keep_rows(self, resident: Resident, lane: Lane, job: ReplyJob) -> None:
        """Hand a lane's rows to the cache, and the lane back."""
        prompt = job.prompt
        ends = [place for name, place in job.prepared.checkpoints.items() if name != SYSTEM]
        last_message = min(ends, default=len(prompt) - 1)
        rows = lane.session.exchange(None)
        try:
            resident.cache.put(rows, last_message, (*prompt, *job.reply))
            self.models.trim()
        finally:
            resident.give_back(lane)

    def _fail(self, job: ReplyJob, error: BaseException) -> None:
        """End a reply with its error; raise one again that is meant to end the worker."""
        if isinstance(error, AkunuError):
            _log.info("a reply failed: %s", error)
        else:
            _log.error("a reply failed", exc_info=error)
        job.events.end(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def _share_costs(self) -> None:
        """Measure passes with drafts only while one reply runs: nothing then runs in between."""
        for resident in self.models.residents:
            resident.engine.measure_drafts(alone=len(self._running) <= 1)

    def _retry_s(self) -> int:
        """Return in how many seconds as many replies may have ended as requests were refused."""
        now = self._clock()
        # Those under way may be longer than any before.
        least_s = min((now - one.started for one in tuple(self._running)), default=0.0)
        each_s = max(self._mean_s, least_s) / self._parallel
        return max(1, min(_LONGEST_RETRY_S, math.ceil(each_s * self._turned_away)))


def _reporting(events: ReplyEvents, reason: str) -> Progress:
    """Return what reports a reply's prefill, first how much of it is not needed."""
    started = False

    def report(done: int, total: int) -> None:
        nonlocal started
        if started:
            events.put(Prefilled(done))
            return
        started = True
        _log.info("%d of %d tokens of a prompt are cached: %s", done, total, reason)
        events.put(Accepted(total, done, reason))

    return report


def _most_tokens(call: CheckedCall | CheckedTexts, engine: Engine) -> int:
    """Return how long a prompt and its reply may become; a reply without a limit is a usual one."""
    if isinstance(call, CheckedTexts):
        return call.rows
    room = engine.context - len(call.prompt)
    limit = call.choice.config.max_tokens
    return len(call.prompt) + min(room, USUAL_CONTEXT if limit is None else limit)


def _growth(model: Served, tokens: int, lane: Lane) -> int:
    """Return the bytes of rows that a reply of `tokens` tokens adds to those of its lane."""
    held = len(lane.session.rows.tokens)
    return max(0, model.source.rows(tokens) - model.source.rows(held))
