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
from akunu_py.decoding.budget import Budget, BudgetState, CurveUser
from akunu_py.decoding.loop import decode
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.decoding.stopping import LoopDetector
from akunu_py.decoding.tree_choice import TreeCounts
from akunu_py.decoding.verifiers import LenientGreedyVerifier, make_verifier
from akunu_py.engine.reasoning_marks import reasoning_marks
from akunu_py.engine.reply_text import ReplyText
from akunu_py.engine.trace_file import TraceLine, describe_decoding
from akunu_py.errors import ConfigError, EngineStateError
from akunu_py.models.cached_rows import Progress
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import (
    Drafter,
    FinishReason,
    GenerationConfig,
    GenerationResult,
    ReplyDrafter,
    RowBits,
    StreamEvent,
    TextPiece,
    Tokenizer,
)

_log = logging.getLogger(__name__)

_STEP_TIMEOUT_S = 1.0
"""How long whoever ends a cancelled reply waits for the step under way."""


class _CancelledError(Exception):
    """Leaves the prefill through its progress callback."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one reply is made from; `prompt` is checked, not empty, shorter than the context.

    `num_draft_tokens` is the most that are drafted for a pass, whatever the config says; `ended` is
    called once when no token will follow, also where the reply failed.
    """

    prompt: tuple[int, ...]
    config: GenerationConfig
    drafter: Drafter
    num_draft_tokens: int
    progress: Progress | None = None
    continues: bool = False  # whether the text goes on from the prompt's, a space included
    budgets: BudgetState | None = None  # what decides how much is drafted; None: nothing does
    ended: Callable[[], None] | None = None
    row_bits: Callable[[], RowBits] = lambda: "unknown"  # asked where something was drafted


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

    def __init__(
        self, session: Session, tokenizer: Tokenizer, request: Request, admit: Callable[[], None]
    ) -> None:
        self.thread = threading.current_thread()
        # Held inside a step and while the reply is ended; callbacks in there may not wait for it.
        self._lock = threading.Lock()
        self._holder: threading.Thread | None = None
        self._admit = admit
        self._tokenizer = tokenizer
        self._cancelled = threading.Event()
        self._ended_by = ""
        self._events: Generator[StreamEvent, None, None] | None = _with_end(
            _events(session, tokenizer, request, self._cancelled), request.ended
        )
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
                # No step is made for it: see `_events`.
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


def _with_end(
    events: Generator[StreamEvent, None, None], ended: Callable[[], None] | None
) -> Generator[StreamEvent, None, None]:
    """Yield a reply's events, and say when it is over: at its end, closed, dropped or failed."""
    try:
        yield from events
    finally:
        if ended is not None:
            ended()


def _events(
    session: Session, tokenizer: Tokenizer, request: Request, cancelled: threading.Event
) -> Generator[StreamEvent, None, None]:
    """Prefill and decode; yield an event a step, and the result with the last one."""
    prompt, config = request.prompt, request.config
    seed = secrets.randbits(64) if config.seed is None else config.seed
    verifier = make_verifier(config, seed)
    chain = TransformChain.from_config(config, session.vocabulary_size)
    if isinstance(verifier, LenientGreedyVerifier):
        # Lenience at temperature 0 goes by how likely tokens are, not by which is likeliest.
        chain = chain.at_temperature_1()
    sampler = Sampler(chain, seed, session.vocabulary_size)
    drafter = request.drafter
    room = session.context - len(prompt)
    max_tokens = room if config.max_tokens is None else min(config.max_tokens, room)

    def progress(done: int, total: int) -> None:
        if request.progress:
            request.progress(done, total)
        check()

    def check() -> None:
        if cancelled.is_set():
            raise _CancelledError

    detokenizer = tokenizer.detokenizer(continues=request.continues)
    marks = reasoning_marks(tokenizer)
    text = ReplyText(detokenizer, config.stop, tokenizer.end_ids, marks)
    recorder = StatsRecorder()
    token_ids: list[int] = []
    finish_reason: FinishReason | None = None
    num_cached = 0
    first_s: float | None = None
    budget: Budget | None = None
    started = prefilled = time.perf_counter()
    with session.measured():
        try:
            check()
            num_cached = session.begin(prompt, sampler, max_tokens, progress)
            if isinstance(drafter, ReplyDrafter):
                drafter.begin_reply(config, seed, check)
            drafter.observe(prompt)
        except _CancelledError:
            finish_reason = "cancelled"
        prefilled = time.perf_counter()

        def result(reason: FinishReason) -> GenerationResult:
            stats = recorder.stats
            decode_s = time.perf_counter() - prefilled
            peak = session.peak_memory_bytes()
            return GenerationResult(
                text=text.shown,
                token_ids=tuple(token_ids),
                finish_reason=reason,
                seed=seed,
                num_prompt_tokens=len(prompt),
                num_cached_tokens=num_cached,
                prefill_s=prefilled - started,
                decode_s=decode_s,
                peak_memory_bytes=peak,
                stats=stats,
                exactness=config.exactness,
                row_bits=request.row_bits() if stats.drafted else "equal",
                time_to_first_token_s=first_s,
                time_saved=None if budget is None else budget.saved.share(stats),
            )

        if finish_reason is not None:
            yield StreamEvent("", (), None, result(finish_reason))
            return
        if request.budgets is not None:
            # The session keeps no step in flight where the host needs each token, or its row.
            pipelined = not (chain.needs_history or verifier is not None)
            budget = Budget(
                request.budgets,
                context=len(prompt),
                pipelined=pipelined,
                drafter=config.drafter or "",
                tell=drafter.use_curve if isinstance(drafter, CurveUser) else None,
            )
        steps = decode(
            session,
            drafter,
            prompt[-1],
            num_draft_tokens=request.num_draft_tokens,
            max_tokens=max_tokens,
            end_ids=tokenizer.end_ids,
            loops=LoopDetector() if config.stop_loops else None,
            budget=budget,
            verifier=verifier,
            position=len(prompt),
        )
        trees = TreeCounts()
        # Of the step that ended the reply; empty where it was cancelled between two.
        last = StreamEvent("", ())
        for raw in steps:
            first_s = first_s or time.perf_counter() - started
            step, pieces = text.take(raw)
            if raw.tree is not None:
                trees.add(raw.tree)
            recorder.add(step.stats)
            token_ids += step.token_ids
            finish_reason = step.finish_reason
            event = StreamEvent(_joined(pieces), step.token_ids, step.stats, pieces=pieces)
            if finish_reason is not None or cancelled.is_set():
                last = event
                break
            yield event
            if cancelled.is_set():
                break
        if str(trees):
            _log.info("%s", trees)
        pieces = (*last.pieces, *text.finish())
        ended = result(finish_reason or "cancelled")
        yield replace(last, text=_joined(pieces), result=ended, pieces=pieces)


def _details(steps: Iterable[StepStats]) -> Iterator[StepDetail]:
    for step in steps:
        if (detail := step.detail) is not None:
            yield detail


def _joined(pieces: Iterable[TextPiece]) -> str:
    return "".join([piece.text for piece in pieces])
