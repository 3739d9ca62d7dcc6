"""One reply as a stream of events: prompt ids in, text and statistics out."""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from akunu_py.decode_stats import StepDetail, StepStats
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Step
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.decoding.stopping import LoopDetector
from akunu_py.decoding.tree_choice import TreeCounts
from akunu_py.decoding.verifier import make_verifier
from akunu_py.engine.reasoning_marks import reasoning_marks
from akunu_py.engine.reply_text import ReplyText
from akunu_py.engine.trace_file import TraceLine, describe_decoding
from akunu_py.errors import ConfigError, EngineStateError
from akunu_py.models.cached_rows import Progress
from akunu_py.models.session import Session
from akunu_py.protocols import Drafter, ReplyDrafter, Tokenizer
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import (
    FinishReason,
    GenerationConfig,
    GenerationResult,
    RowBits,
    StreamEvent,
    TextPiece,
)

_log = logging.getLogger(__name__)

_STEP_TIMEOUT_S = 1.0
"""How long whoever ends a cancelled reply waits for the step under way."""


class _CancelledError(Exception):
    """Leaves the prefill through its progress callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that one reply is made from.

    Attributes:
        session: the model over the conversation's caches.
        tokenizer: the model's.
        prompt: checked, not empty, shorter than the context.
        config: how the reply is sampled, drafted and ended; `drafter` is a name.
        drafter: made for this reply.
        num_draft_tokens: most tokens drafted for a pass, whatever the config says.
        budgets: what decides how much is drafted; None: all that is drafted is verified.
        row_bits: whether rows of passes are bit-equal; asked where something was drafted.
        continues: whether the text goes on from the prompt's, a space included.
        progress: called with prompt tokens done and in all.
        admit: called before each step; may raise.
        ended: called once when no token will follow, also where the reply failed.

    """

    session: Session
    tokenizer: Tokenizer
    prompt: tuple[int, ...]
    config: GenerationConfig
    drafter: Drafter
    num_draft_tokens: int
    budgets: BudgetState | None = None
    row_bits: Callable[[], RowBits] = lambda: "unknown"
    continues: bool = False
    progress: Progress | None = None
    admit: Callable[[], None] = lambda: None
    ended: Callable[[], None] = lambda: None


class Reply:
    """One reply, from its prompt to its result; `events` makes it."""

    def __init__(self, request: Request, cancelled: threading.Event) -> None:
        config, session, tokenizer = request.config, request.session, request.tokenizer
        self._request = request
        self._cancelled = cancelled
        self._seed = secrets.randbits(64) if config.seed is None else config.seed
        self._verifier = make_verifier(config, self._seed)
        self._text = ReplyText(
            tokenizer.detokenizer(continues=request.continues),
            config.stop,
            tokenizer.end_ids,
            reasoning_marks(tokenizer),
        )
        room = session.context - len(request.prompt)
        self._max_tokens = room if config.max_tokens is None else min(config.max_tokens, room)
        self._recorder = StatsRecorder()
        self._trees = TreeCounts()
        self._token_ids: list[int] = []
        self._budget: Budget | None = None
        self._num_cached = 0
        self._started = self._prefilled = time.perf_counter()
        self._first_s: float | None = None

    def events(self) -> Generator[StreamEvent, None, None]:
        """Prefill and decode; yield an event a step, and the result with the last one."""
        # Of the step that ends the reply; empty where it is cancelled between two.
        last = StreamEvent("", ())
        reason: FinishReason = "cancelled"
        try:
            with self._request.session.measured():
                for decoded in self._steps():
                    step, event = self._taken(decoded)
                    if step.finish_reason is not None or self._cancelled.is_set():
                        last, reason = event, step.finish_reason or reason
                        break
                    yield event
                    if self._cancelled.is_set():
                        break
                yield self._with_result(last, reason)
        finally:
            self._request.ended()

    def _steps(self) -> Iterator[Step]:
        """Return the steps of the decode loop; none where the prefill is cancelled."""
        request, session, drafter = self._request, self._request.session, self._request.drafter
        chain = TransformChain.from_config(self._verifier.sampling, session.vocabulary_size)
        sampler = Sampler(chain, self._seed, session.vocabulary_size)
        self._started = self._prefilled = time.perf_counter()
        try:
            self._check()
            self._num_cached = session.begin(
                request.prompt, sampler, self._max_tokens, self._prefill_progress
            )
            if isinstance(drafter, ReplyDrafter):
                drafter.begin_reply(request.config, self._seed, self._check)
            drafter.observe(request.prompt)
        except _CancelledError:
            return iter(())
        finally:
            self._prefilled = time.perf_counter()
        if request.budgets is not None:
            self._budget = self._verifier.budget(
                request.budgets,
                context=len(request.prompt),
                target=session,
                drafter=drafter,
                name=request.config.drafter or "",
            )
        return self._verifier.decode(
            session,
            drafter,
            request.prompt[-1],
            num_draft_tokens=request.num_draft_tokens,
            max_tokens=self._max_tokens,
            end_ids=request.tokenizer.end_ids,
            loops=LoopDetector() if request.config.stop_loops else None,
            budget=self._budget,
            position=len(request.prompt),
        )

    def _taken(self, step: Step) -> tuple[Step, StreamEvent]:
        """Take in a step; return as much of it as precedes a stop text, and its event."""
        if self._first_s is None:
            self._first_s = time.perf_counter() - self._started
        if step.tree is not None:
            self._trees.add(step.tree)
        step, pieces = self._text.take(step)
        self._recorder.add(step.stats)
        self._token_ids += step.token_ids
        return step, StreamEvent(_joined(pieces), step.token_ids, step.stats, pieces=pieces)

    def _with_result(self, last: StreamEvent, reason: FinishReason) -> StreamEvent:
        """Return the last event, with the text that was held back and the result."""
        if str(self._trees):
            _log.info("%s", self._trees)
        pieces = (*last.pieces, *self._text.finish())
        stats = self._recorder.stats
        decode_s = time.perf_counter() - self._prefilled
        result = GenerationResult(
            text=self._text.shown,
            token_ids=tuple(self._token_ids),
            finish_reason=reason,
            seed=self._seed,
            num_prompt_tokens=len(self._request.prompt),
            num_cached_tokens=self._num_cached,
            prefill_s=self._prefilled - self._started,
            decode_s=decode_s,
            peak_memory_bytes=self._request.session.peak_memory_bytes(),
            stats=stats,
            exactness=self._request.config.exactness,
            row_bits=self._request.row_bits() if stats.drafted else "equal",
            time_to_first_token_s=self._first_s,
            time_saved=None if self._budget is None else self._budget.saved.share(stats),
        )
        return replace(last, text=_joined(pieces), result=result, pieces=pieces)

    def _prefill_progress(self, done: int, total: int) -> None:
        if self._request.progress:
            self._request.progress(done, total)
        self._check()

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise _CancelledError


class ReplyStream(Iterator[StreamEvent]):
    """Iterate for events, one a decoding step; the last one carries the result.

    `cancel` may be called from any thread: the reply ends after the step under way, with the
    finish reason "cancelled". `close` ends it without a result. Both leave the engine ready for
    the next call, in any thread, and so does dropping the stream.

    A cancelled reply is ended by whoever comes first: its reader, or the engine's next call, which
    leaves the last event for the reader. One thread at a time is inside a step.

    Attributes:
        prompt: the ids the model was given.
        config: what the reply is made with.
        result: of a reply that is over; None before, and for one that was closed.
        thread: that made the stream or read it last.

    """

    def __init__(self, request: Request) -> None:
        self.thread = threading.current_thread()
        # Held inside a step and while the reply is ended; callbacks in there may not wait for it.
        self._lock = threading.Lock()
        self._holder: threading.Thread | None = None
        self._admit = request.admit
        self._tokenizer = request.tokenizer
        self._cancelled = threading.Event()
        self._ended_by = ""
        self._events: Generator[StreamEvent, None, None] | None = Reply(
            request, self._cancelled
        ).events()
        self.prompt = request.prompt
        self.config = request.config
        self.result: GenerationResult | None = None
        # The last event of a cancelled reply that another thread ended.
        self._left: StreamEvent | None = None
        self._steps: list[StepStats] = []

    @property
    def finished(self) -> bool:
        """Whether no further event will come."""
        return self._events is None and self._left is None

    @property
    def executing(self) -> bool:
        """Whether a step is under way."""
        return self._lock.locked()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def __next__(self) -> StreamEvent:
        with self._held() as events:
            if events is not None:
                self._admit()
                self.thread = threading.current_thread()
                return self._next_of(events)
            if self._left is not None:
                event, self._left = self._left, None
                return event
        if self._ended_by:
            raise EngineStateError(self._ended_by)
        raise StopIteration

    @contextlib.contextmanager
    def _held(self) -> Iterator[Generator[StreamEvent, None, None] | None]:
        """Hold the reply and give its events, None of one that is over.

        Refuses where a step is under way. That of a cancelled reply is waited for, but not for
        long, and not by a callback inside it.
        """
        if not self._lock.acquire(blocking=False):
            inside = self._holder is threading.current_thread()
            wait = self.cancelled and not inside
            if not wait or not self._lock.acquire(timeout=_STEP_TIMEOUT_S):
                raise EngineStateError(
                    "a step of this reply is under way, in another thread or around this callback; "
                    "wait for its end, or use cancel()"
                )
        try:
            self._holder = threading.current_thread()
            yield self._events
        finally:
            self._holder = None
            self._lock.release()

    def _next_of(self, events: Generator[StreamEvent, None, None]) -> StreamEvent:
        try:
            event = next(events)
        except BaseException:
            # Exhausted, interrupted or failed: the generator is over in each case.
            self._events = None
            raise
        if event.step is not None:
            self._steps.append(event.step)
        if event.result is not None:
            self.result = event.result
            self._events = None
            events.close()
        return event

    def __iter__(self) -> Self:
        return self

    def read_to_end(self) -> GenerationResult:
        """Read all events and return the result; the stream is over, whatever happens."""
        with self:
            for _ in self:
                pass
        assert self.result is not None  # noqa: S101 - the last event carries the result
        return self.result

    def cancel(self) -> None:
        """Ask the reply to end after the step under way; safe from any thread."""
        self._cancelled.set()

    def end_cancelled(self) -> None:
        """End a cancelled reply and leave its last event to its reader.

        Raises EngineStateError where the step under way takes longer than a second.
        """
        with self._held() as events:
            if events is not None:
                # No step is made for it: see `Reply.events`.
                self._ended_by = "this reply was cancelled, and its end was interrupted"
                self._left = self._next_of(events)
                self._ended_by = ""

    def close(self, reason: str = "") -> None:
        """End the reply now; with a reason, later reads raise EngineStateError with it.

        Raises EngineStateError where a step is under way.
        """
        with self._held() as events:
            self._left = None
            if events is not None:
                self._events = None
                self._ended_by = reason
                events.close()

    def trace_line(
        self,
        model: str,
        category: str,
        session: str | None = None,
        turn: int | None = None,
        *,
        vocabulary: str = "",
    ) -> TraceLine:
        """Return the reply as a line of a trace; raises ConfigError for one without a result."""
        if self.result is None:
            raise ConfigError("the reply has no result: read it to its end before it is traced")
        return TraceLine(
            category=category,
            prompt=self._tokenizer.decode(self.prompt, with_control=True),
            output=self.result.text,
            model=model,
            decoding=describe_decoding(self.config, self.result.seed),
            session=session,
            turn=turn,
            prompt_ids=self.prompt,
            token_ids=self.result.token_ids,
            steps=tuple(_details(self._steps)),
            vocabulary=vocabulary,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _details(steps: Iterable[StepStats]) -> Iterator[StepDetail]:
    for step in steps:
        if (detail := step.detail) is not None:
            yield detail


def _joined(pieces: Iterable[TextPiece]) -> str:
    return "".join([piece.text for piece in pieces])
