"""The thread that owns MLX: it makes the replies of all clients, a turn of one after another.

A turn is one pass of one reply, over a chunk of its prompt or over the next tokens. Passes of
different replies are not joined. A worker that joins them would choose several lanes in `step`, and
their sessions would choose their tokens together.
"""

import contextlib
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from akunu_py.drafting import AutoState
from akunu_py.engine.lane import CheckedCall, Lane
from akunu_py.errors import AkunuError, ConfigError, EngineStateError, ServerBusyError
from akunu_py.server.checkpoints import MESSAGE
from akunu_py.server.prefix_cache import PrefixCache, Taken
from akunu_py.server.reply_events import Prefilled, ReplyEvents, Started
from akunu_py.server.respelling import Respelling
from akunu_py.server.token_trie import common_length
from akunu_py.server.waiting_line import WaitingLine
from akunu_py.types import StreamEvent

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine

_log = logging.getLogger(__name__)

_CLIENTS = 64
"""Clients whose replies `auto` remembers, the latest; a full memory takes about 40 MB."""

_USUAL_REPLY_S = 10.0
"""Assumed length of a reply until one has ended."""

_WORTH_WAITING = 64
"""Fewest tokens of a prompt for which a reply waits while another one reads them."""

_RECENT = 0.8
"""Weight of the past in the mean length of replies."""

_LONGEST_RETRY_S = 60

_IDLE_S = 10.0
"""Seconds without work before rows are written to disk: an agent's next request comes sooner."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a worker.

    Attributes:
        alive: whether its thread runs.
        running: number of replies under way.
        waiting: number of replies that wait for a lane.
        last_turn_s: seconds since the last turn ended; None before the first.

    """

    alive: bool
    running: int
    waiting: int
    last_turn_s: float | None


@dataclass(eq=False, slots=True)
class Job:
    """A reply that was asked for.

    Attributes:
        call: the checked prompt and options; the worker may spell the prompt in other ids.
        client: key of the client.
        checkpoints: places in the prompt to which caches should be able to go back, by name.
        respell: whether earlier replies in the prompt may keep their own token ids.
        prediction: tokens of a text that the reply may repeat.
        events: what happens to it.

    """

    call: CheckedCall
    client: str
    checkpoints: Mapping[str, int]
    respell: bool
    prediction: Sequence[int] = ()
    events: ReplyEvents = field(default_factory=ReplyEvents)
    cancelled: threading.Event = field(default_factory=threading.Event)
    reply: list[int] = field(default_factory=list)
    """Tokens of the reply so far."""

    def cancel(self) -> None:
        """End the reply within one turn, from any thread.

        A reply that is under way still has a result; the events of one that waits just end.
        """
        self.cancelled.set()


@dataclass(eq=False, slots=True)
class _Running:
    """A reply under way."""

    job: Job
    lane: Lane
    turns: Generator[StreamEvent | None, None, None]
    started: float


class Worker:
    """Makes replies with an engine, `parallel` at once; no one else uses the engine meanwhile.

    Replies wait in a line with `places`, fair between clients. A turn begins replies for which a
    lane is free and then makes one pass of one reply. The text of a reply depends on neither the
    others nor the cache, as far as rows are bit-equal (docs/architecture.md).

    `submit`, `Job.cancel` and `health` may be called from any thread, the rest from one.

    Raises ConfigError for numbers out of range.
    """

    def __init__(
        self,
        engine: "Engine",
        *,
        parallel: int = 4,
        places: int = 32,
        cache: PrefixCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if parallel < 1 or places < 0:
            raise ConfigError(
                f"parallel is {parallel} and the queue {places}; give 1 or more, and 0 or more"
            )
        self.engine = engine
        self.cache = PrefixCache(0) if cache is None else cache
        self._parallel = parallel
        self._clock = clock
        self._changed = threading.Condition()
        self._line: WaitingLine[Job] = WaitingLine(places)
        self._free = [engine.lane() for _ in range(parallel)]
        self._lanes = list(self._free)
        # The reply whose turn it is comes first.
        self._running: deque[_Running] = deque()
        # Replies that read their prompts, and where.
        self._reading: dict[Job, Lane] = {}
        self._clients = _ClientMemories()
        self._spelling = Respelling(engine.tokenizer)
        self._mean_s = _USUAL_REPLY_S
        self._last_turn: float | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="akunu worker", daemon=True)
        self._thread.start()

    def submit(
        self,
        call: CheckedCall,
        *,
        client: str = "",
        checkpoints: Mapping[str, int] | None = None,
        respell: bool = False,
        prediction: Sequence[int] = (),
    ) -> Job:
        """Ask for a reply to a call that the engine has checked.

        With `respell` ids of the prompt may be replaced by others of the same text, those that an
        earlier reply was made of; see `Respelling`. `prediction` has the tokens of a text that the
        reply may repeat; `auto` drafts from it, as from the client's earlier replies.

        Raises ServerBusyError if too many replies wait, EngineStateError if the worker has ended.
        """
        job = Job(call, client, dict(checkpoints or {}), respell, prediction)
        with self._changed:
            if self._stopping:
                raise EngineStateError("the server is shutting down; send the request again later")
            if not self._line.put(job):
                raise ServerBusyError(
                    f"{len(self._line)} requests wait already; try again in {self._retry_s()} s",
                    retry_after_s=self._retry_s(),
                )
            self._changed.notify_all()
        return job

    def health(self) -> Health:
        """Return the state of the worker."""
        last = self._last_turn
        with self._changed:
            waiting = len(self._line)
        return Health(
            alive=self._thread is not None and self._thread.is_alive(),
            running=len(self._running),
            waiting=waiting,
            last_turn_s=None if last is None else self._clock() - last,
        )

    def step(self) -> bool:
        """Begin waiting replies in free lanes, then make one turn; return False if there is none.

        The thread calls this; so may a test, instead of `start`.
        """
        self._fill_lanes()
        if not self._running:
            return False
        running = next((one for one in self._running if one.job.cancelled.is_set()), None)
        self._turn(running or self._running[0])
        self._last_turn = self._clock()
        return True

    def close(self) -> None:
        """End all replies and the thread, and drop lanes and cache; the engine stays open."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        else:
            self._shut_down()

    def _run(self) -> None:
        try:
            while self._wait():
                if not self.step() and self.cache.unstored:
                    self.cache.store(self._lanes[0].session)
        except BaseException:  # noqa: BLE001 - the replies learn that it ended, whatever it was
            _log.exception("the worker has failed; restart the server")
        finally:
            self._shut_down()

    def _wait(self) -> bool:
        """Wait until there is work; return False if the worker is to end.

        Writing rows to disk is work once there was no other for a while.
        """
        with self._changed:
            while not (self._stopping or self._running or len(self._line)):
                idle = None if not self.cache.unstored else _IDLE_S
                if not self._changed.wait(idle):
                    break
            return not self._stopping

    def _shut_down(self) -> None:
        """End all replies; store the cache, and drop it with the lanes."""
        error = EngineStateError("the server was shut down; send the request again later")
        with self._changed:
            self._stopping = True
            while (job := self._line.pop()) is not None:
                job.events.end(error)
        while self._running:
            self._end(self._running[0], error)
        while self.cache.unstored:
            self.cache.store(self._lanes[0].session)
        self.cache.close()
        while self._lanes:
            self._lanes.pop().close()

    def _fill_lanes(self) -> None:
        """Drop cancelled jobs from the line; begin others while lanes are free."""
        with self._changed:
            for gone in [job for job in self._line if job.cancelled.is_set()]:
                self._line.remove(gone)
                gone.events.end()
        while self._free:
            with self._changed:
                job = self._line.pop()
            if job is None:
                return
            self._begin(job)

    def _begin(self, job: Job) -> None:
        """Give a job a lane; its first turn takes rows."""
        lane = self._free.pop()
        self._running.append(_Running(job, lane, self._turns(job, lane), self._clock()))
        self._share_costs()

    def _turns(self, job: Job, lane: Lane) -> Generator[StreamEvent | None, None, None]:
        """Make a reply in turns, after those that read the same prompt have read it.

        A client that asks twice, or several agents with one system prompt, would otherwise have the
        same rows computed side by side. A turn of a reply that waits does nothing.
        """
        while (reader := self._reader(job)) is not None:
            while self._reads(*reader) and not job.cancelled.is_set():
                yield None
            if job.cancelled.is_set():
                break
        taken = self._take_rows(job, lane)
        learned = self._clients.state(job.client)
        if job.prediction:
            learned.remember(job.prediction)
        turns = lane.turns(
            job.call,
            learned,
            job.cancelled,
            checkpoints=job.checkpoints,
            progress=_Report(job.events, taken.reason),
        )
        self._reading[job] = lane
        try:
            with contextlib.closing(turns):
                for event in turns:
                    if event is not None:
                        self._reading.pop(job, None)
                    yield event
        finally:
            self._reading.pop(job, None)

    def _reader(self, job: Job) -> tuple[Job, int] | None:
        """Return the reply that will read most of a job's prompt, and how many of its tokens.

        None where too little would be gained by waiting for it.
        """
        prompt = job.call.prompt
        others = [one.lane.session for one in self._running if one.job is not job]
        found: tuple[Job, int] | None = None
        most = self.cache.reach(prompt, others) + _WORTH_WAITING - 1
        for other in self._reading:
            common = min(common_length(other.call.prompt, prompt), len(prompt) - 1)
            if common > most and self._reads(other, common):
                found, most = (other, common), common
        return found

    def _reads(self, job: Job, count: int) -> bool:
        """Whether a reply has yet to read so many tokens of its prompt."""
        lane = self._reading.get(job)
        return lane is not None and len(lane.session.rows.tokens) < count

    def _take_rows(self, job: Job, lane: Lane) -> Taken:
        """Give a lane the rows that a job can use, and spell the job's prompt as they are."""
        others = [one.lane.session for one in self._running if one.lane is not lane]
        if job.respell:
            given = job.call.prompt
            prompt = self._spelling.longest(given, self.cache.nearest(given, others))
            if len(prompt) < self.engine.context:
                job.call = replace(job.call, prompt=prompt)
                # The last places are near the end, where the spelling is the given one.
                longer = len(prompt) - len(given)
                job.checkpoints = {
                    name: place + longer if name == MESSAGE else place
                    for name, place in job.checkpoints.items()
                }
        return self.cache.take(job.call.prompt, lane.session, others)

    def _turn(self, running: _Running) -> None:
        """Make one turn of a reply; its errors end it alone."""
        try:
            event = next(running.turns)
        except Exception as error:  # noqa: BLE001 - of whatever kind, it ends this reply alone
            self._fail(running.job, error)
            self._end(running, error)
            return
        if event is not None:
            running.job.reply += event.token_ids
            running.job.events.put(event)
            if event.result is not None:
                self._end(running)
                return
        self._running.remove(running)
        self._running.append(running)

    def _end(self, running: _Running, error: Exception | None = None) -> None:
        """End a reply: its rows go to the cache, and its lane is free."""
        self._running.remove(running)
        running.turns.close()
        self._keep_rows(running.lane, running.job)
        self._free.append(running.lane)
        self._share_costs()
        taken_s = self._clock() - running.started
        self._mean_s = _RECENT * self._mean_s + (1 - _RECENT) * taken_s
        running.job.events.end(error)

    def _keep_rows(self, lane: Lane, job: Job) -> None:
        """Hand a lane's rows to the cache."""
        prompt = job.call.prompt
        last_message = job.checkpoints.get(MESSAGE, len(prompt) - 1)
        self.cache.put(lane.session.exchange(None), last_message, (*prompt, *job.reply))

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, AkunuError):
            _log.info("a reply failed: %s", error)
        else:
            _log.error("a reply failed", exc_info=error)
        job.events.end(error)

    def _share_costs(self) -> None:
        """Measure passes with drafts only while one reply runs: nothing then runs in between."""
        self.engine.measure_drafts(alone=len(self._running) <= 1)

    def _retry_s(self) -> int:
        """Return after how many seconds there may be a place: when the next reply ends."""
        return max(1, min(_LONGEST_RETRY_S, math.ceil(self._mean_s / self._parallel)))


class _Report:
    """Reports a reply's prefill, first how much of it is not needed."""

    def __init__(self, events: ReplyEvents, reason: str) -> None:
        self._events = events
        self._reason = reason
        self._started = False

    def __call__(self, done: int, total: int) -> None:
        if not self._started:
            self._started = True
            _log.info("%d of %d tokens of a prompt are cached: %s", done, total, self._reason)
            self._events.put(Started(total, done, self._reason))
        else:
            self._events.put(Prefilled(done, total))


class _ClientMemories:
    """What `auto` learned from each client's replies; no client's drafts come from another's."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, AutoState] = OrderedDict()

    def state(self, client: str) -> AutoState:
        """Return a client's state, a new one for an unknown client."""
        state = self._states.setdefault(client, AutoState())
        self._states.move_to_end(client)
        if len(self._states) > _CLIENTS:
            self._states.popitem(last=False)
        return state
