"""One reply as a stream of events: prompt ids in, text and statistics out."""

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from akunu_py.decode_stats import StepDetail
from akunu_py.decoding.budget import Budget, BudgetState, CurveUser
from akunu_py.decoding.details import LengthTeller, step_detail
from akunu_py.decoding.loop import Step, decode
from akunu_py.decoding.stats import StatsRecorder, cut_step
from akunu_py.decoding.stopping import StopTexts
from akunu_py.decoding.verifiers import LenientGreedyVerifier, make_verifier
from akunu_py.errors import ConfigError, EngineStateError
from akunu_py.models.cached_rows import Progress
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.trace_file import TraceLine, describe_decoding
from akunu_py.types import (
    Detokenizer,
    Drafter,
    FinishReason,
    GenerationConfig,
    GenerationResult,
    ReplyDrafter,
    StreamEvent,
    Tokenizer,
)


class _CancelledDuringPrefillError(Exception):
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


class ReplyStream(Iterator[StreamEvent]):
    """Iterate for events, one a decoding step; the last one carries the result.

    `cancel` may be called from any thread: the reply ends after the step under way, with the
    finish reason "cancelled". `close` ends it without a result. Both leave the engine ready for
    the next call, and so does dropping the stream.

    Attributes:
        prompt: the ids the model was given.
        config: what the reply is made with.
        result: of a reply that is over; None before, and for one that was closed.

    """

    def __init__(
        self, session: Session, tokenizer: Tokenizer, request: Request, admit: Callable[[], None]
    ) -> None:
        self.thread = threading.current_thread()
        self.executing = False
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
        self._steps: list[StepDetail] = []

    @property
    def finished(self) -> bool:
        """Whether no further event will come."""
        return self._events is None

    def __next__(self) -> StreamEvent:
        if self._events is None:
            if self._ended_by:
                raise EngineStateError(self._ended_by)
            raise StopIteration
        self._admit()
        if self.executing:
            raise EngineStateError("this reply is being read in another thread already")
        self.executing = True
        self.thread = threading.current_thread()
        try:
            event = next(self._events)
        except BaseException:
            # Exhausted, interrupted or failed: the generator is over in each case.
            self._events = None
            raise
        finally:
            self.executing = False
        if event.step is not None and event.step.detail is not None:
            self._steps.append(event.step.detail)
        if event.result is not None:
            self.result = event.result
            self._events = None
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

    def close(self, reason: str = "") -> None:
        """End the reply now; with a reason, later reads raise EngineStateError with it."""
        if self.executing:
            raise EngineStateError("a step of this reply is under way; use cancel() instead")
        if self._events is not None:
            self._events.close()
            self._events = None
            self._ended_by = reason

    def trace_line(
        self, model: str, category: str, session: str | None = None, turn: int | None = None
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
            steps=tuple(self._steps),
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
            raise _CancelledDuringPrefillError

    detokenizer = tokenizer.detokenizer(continues=request.continues)
    text = _ReplyText(detokenizer, config.stop, tokenizer.end_ids)
    recorder = StatsRecorder()
    token_ids: list[int] = []
    finish_reason: FinishReason | None = None
    num_cached = 0
    started = prefilled = time.perf_counter()
    with session.measured():
        try:
            num_cached = session.begin(prompt, sampler, max_tokens, progress)
            if isinstance(drafter, ReplyDrafter):
                drafter.begin_reply(config, seed, check)
            drafter.observe(prompt)
        except _CancelledDuringPrefillError:
            finish_reason = "cancelled"
        prefilled = time.perf_counter()

        def result(reason: FinishReason) -> GenerationResult:
            return GenerationResult(
                text=text.shown,
                token_ids=tuple(token_ids),
                finish_reason=reason,
                seed=seed,
                num_prompt_tokens=len(prompt),
                num_cached_tokens=num_cached,
                prefill_s=prefilled - started,
                decode_s=time.perf_counter() - prefilled,
                peak_memory_bytes=session.peak_memory_bytes(),
                stats=recorder.stats,
                exactness=config.exactness,
            )

        if finish_reason is not None:
            yield StreamEvent("", (), None, result(finish_reason))
            return
        budget = None
        if request.budgets is not None:
            budget = Budget(
                request.budgets,
                context=len(prompt),
                # The session keeps no step in flight where the host needs each token, or its row.
                pipelined=not (chain.needs_history or verifier is not None),
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
            budget=budget,
            verifier=verifier,
            position=len(prompt),
        )
        teller = drafter if isinstance(drafter, LengthTeller) else None
        for raw in steps:
            detail = step_detail(raw, len(prompt) + len(token_ids), teller)
            step, piece = text.take(raw)
            stats = replace(step.stats, detail=detail)
            recorder.add(stats)
            token_ids += step.token_ids
            finish_reason = step.finish_reason
            if finish_reason is None and cancelled.is_set():
                finish_reason = "cancelled"
            if finish_reason is None:
                yield StreamEvent(piece, step.token_ids, stats)
                continue
            piece += text.finish()
            yield StreamEvent(piece, step.token_ids, stats, result(finish_reason))
            return


class _ReplyText:
    """The text of a reply as it grows: detokenized, and cut before a stop text."""

    def __init__(
        self, detokenizer: Detokenizer, stops: tuple[str, ...], end_ids: frozenset[int]
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopTexts(stops)
        self._end_ids = end_ids
        self._pieces: list[str] = []
        self._stopped = False

    @property
    def shown(self) -> str:
        """All text shown so far."""
        return "".join(self._pieces)

    def take(self, step: Step) -> tuple[Step, str]:
        """Add a step's tokens; return the step, cut where a stop text ended it, and its text."""
        shown: list[str] = []
        for count, token in enumerate(step.token_ids, start=1):
            if token in self._end_ids:
                break
            piece, self._stopped = self._stops.feed(self._detokenizer.feed((token,)))
            shown.append(piece)
            if self._stopped:
                step = replace(
                    step,
                    token_ids=step.token_ids[:count],
                    stats=cut_step(step.stats, count),
                    finish_reason="stop",
                )
                break
        text = "".join(shown)
        self._pieces.append(text)
        return step, text

    def finish(self) -> str:
        """Return the text that was held back when the reply ended."""
        if self._stopped:
            return ""
        piece, stopped = self._stops.feed(self._detokenizer.finish())
        if not stopped:
            piece += self._stops.finish()
        self._pieces.append(piece)
        return piece
