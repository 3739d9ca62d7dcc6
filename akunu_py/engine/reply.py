"""One reply: prompt ids in, a stream of events with text and statistics out.

`Reply.events` is the whole reply as one generator, and `Reply.turns` the same in smaller turns, for
a thread that makes several replies. `akunu_py.engine.admission` adds what a reader may do with a
reply from any thread.
"""

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Decoding, DecodingSettings, Step, make_verifier, verify_match
from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.decoding.stopping import LoopDetector
from akunu_py.engine.reasoning import reasoning_marks
from akunu_py.engine.reply_text import MessageReader, ReplyText
from akunu_py.models.cached_rows import Progress
from akunu_py.models.joined import WantedChoice
from akunu_py.models.session import Session
from akunu_py.protocols import Drafter, Tokenizer
from akunu_py.sampling.sampler import ForcedSampler, OwnSampler, Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import (
    FinishReason,
    GenerationConfig,
    GenerationResult,
    RowBits,
    StreamEvent,
    TextPiece,
    TokenLogprob,
)

if TYPE_CHECKING:
    from akunu_py.constraints import Matcher

_SEED_BITS = 53
"""So that programs that read numbers as doubles, such as JavaScript's, have the seed exactly."""


class _CancelledError(Exception):
    """Leaves the prefill at a pause of a prompt pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that one reply is made from."""

    session: Session
    tokenizer: Tokenizer
    prompt: tuple[int, ...]
    """Token ids; checked, not empty, shorter than the context."""

    config: GenerationConfig
    """Sampling, drafting and ending; the field `drafter` is set."""

    message: MessageReader
    """Reads reasoning, answer and calls from the reply's text."""

    drafter: Drafter
    num_draft_tokens: int
    """Upper limit of a draft, in tokens; overrides the config."""

    matcher: "Matcher | None" = None
    """The reply's place in its constraint; None for a reply in any form."""

    text: tuple[int, ...] | None = None
    """The reply's tokens if they are given; see `Engine.stream_forced`."""

    scored: int | None = None
    """How many likeliest tokens to report at each place of the prompt, beside the log probability
    of its own; None reports neither."""

    reads_only: bool = False
    """Whether the reply ends after the prompt, without a token."""

    shared: SharedPasses | None = None
    """The passes that it shares with other replies, if somebody else makes the choices of all; see
    `Reply.turns`."""

    budgets: BudgetState | None = None
    """State of the draft budget; None verifies whole drafts."""

    row_bits: Callable[[], RowBits] | None = None
    """Measures whether rows of passes are bit-equal; called if a pass had several. None leaves it
    unknown."""

    continues: bool = False
    """Whether the text continues the prompt's text, so that a space at its beginning is kept."""

    is_chat: bool = False
    """Whether the result has a message; not where a prompt is continued."""

    marks: Mapping[int, str] = field(default_factory=dict)
    """Texts of further control tokens that are part of the reply's text, by id."""

    progress: Progress | None = None
    """Called with the number of prompt tokens done and in all."""

    checkpoints: Mapping[str, int] = field(default_factory=dict)
    """Places in the prompt to which caches should be able to go back, by name."""

    admit: Callable[[], None] = lambda: None
    """Called before each step; may raise."""

    ended: Callable[[], None] = lambda: None
    """Called once when the reply is over, also after an error."""


Turns = Generator[StreamEvent | WantedChoice | None, list[int] | None, None]
"""A reply in turns; see `Reply.turns`."""


class Reply:
    """One reply, from its prompt to its result."""

    def __init__(self, request: Request, cancelled: threading.Event) -> None:
        config, session, tokenizer = request.config, request.session, request.tokenizer
        self._request = request
        self._drafter = Drafter.of(request.drafter)
        self._cancelled = cancelled
        self._seed = secrets.randbits(_SEED_BITS) if config.seed is None else config.seed
        self._verifier = make_verifier(config, self._seed)
        self._text = ReplyText(
            tokenizer.detokenizer(continues=request.continues),
            config.stop,
            tokenizer.end_ids,
            {**reasoning_marks(tokenizer), **request.marks},
            request.message.new_splitter() if request.is_chat else None,
        )
        room = session.context - len(request.prompt)
        self._max_tokens = room if config.max_tokens is None else min(config.max_tokens, room)
        self._recorder = StatsRecorder()
        self._verified_trees = False
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self._budget: Budget | None = None
        self._num_cached = 0
        self._started = self._prefilled = time.perf_counter()
        self._first_s: float | None = None

    def events(self) -> Generator[StreamEvent, None, None]:
        """Prefill and decode; yield one event per step, the last one with the result."""
        with contextlib.closing(self.turns()) as turns:
            for event in turns:
                if isinstance(event, StreamEvent):
                    yield event

    def turns(self) -> Turns:
        """Prefill and decode as `events` does; also yield None at each pause of a prompt pass.

        If passes are `shared`, a `WantedChoice` is yielded before each step, and is answered with
        what the session chooses.
        """
        request = self._request
        # A reply that is cancelled between two steps ends with an event without tokens.
        last = StreamEvent("", ())
        reason: FinishReason = "cancelled"
        try:
            with request.session.measured():
                prefilled = yield from self._prefill()
                if prefilled and request.scored is not None:
                    self._prompt_logprobs = request.session.prompt_logprobs()
                    yield StreamEvent("", (), prompt_logprobs=self._prompt_logprobs)
                if prefilled and request.reads_only:
                    prefilled, reason = False, "length"
                steps = self._steps() if prefilled else iter(())
                for one in steps:
                    decoded = one if isinstance(one, Step) else (yield from self._joined_step(one))
                    step, event = self._take(decoded)
                    if step.finish_reason is not None or self._cancelled.is_set():
                        last, reason = event, step.finish_reason or reason
                        break
                    yield event
                    # Whoever cancelled while the reader had the event gets no further step.
                    if self._cancelled.is_set():
                        break
                yield self._with_result(last, reason)
        finally:
            request.ended()

    def _joined_step(self, decoding: Decoding) -> Generator[WantedChoice, list[int] | None, Step]:
        """Take a step whose choices somebody else makes."""
        last, draft = decoding.begin()
        offer = None if self._budget is None else self._budget.offer
        wanted = WantedChoice(self._request.session, last, draft, offer)
        choices = yield wanted
        assert choices is not None  # noqa: S101 - the answer
        decoding.draft = wanted.draft
        return decoding.finish(verify_match(wanted.draft, choices))

    def _prefill(self) -> Generator[None, None, bool]:
        """Show the prompt to the model and to the drafter; return False if cancelled."""
        request, session, drafter = self._request, self._request.session, self._drafter
        config = request.config
        chain = TransformChain.from_config(self._verifier.sampling, session.vocabulary_size)
        sampler = Sampler(chain, self._seed, session.vocabulary_size)
        processors, own = request.config.logits_processors, request.config.sampler
        if processors or own is not None:
            size = session.vocabulary_size
            sampler = OwnSampler(chain, self._seed, size, processors, own)
        if request.text is not None:
            start = len(request.prompt)
            sampler = ForcedSampler(chain, start, request.text, session.vocabulary_size)
        self._started = self._prefilled = time.perf_counter()
        try:
            self._check()
            total = len(request.prompt)
            prefill = session.beginning(
                request.prompt,
                sampler,
                self._max_tokens,
                request.checkpoints,
                allowed=request.matcher,
                states=None if drafter.hidden is None else drafter,
                scored=request.scored,
                ends=request.tokenizer.end_ids,
            )
            with contextlib.closing(prefill):
                self._num_cached = next(prefill)
                if config.logprobs is not None:
                    session.report_logprobs(config.logprobs)
                if config.ignore_eos or config.min_tokens:
                    least = math.inf if config.ignore_eos else total + config.min_tokens
                    session.hold_end(request.tokenizer.end_ids, least)
                self._prefill_progress(self._num_cached, total)
                for held in prefill:
                    self._prefill_progress(held, total)
                    yield
                    # Whoever cancelled meanwhile gets no further layer.
                    self._check()
            self._prefill_progress(total, total)
            drafter.begin_reply(config, self._seed, self._check)
            for _ in drafter.reading(request.prompt):
                yield
                self._check()
        except _CancelledError:
            return False
        finally:
            self._prefilled = time.perf_counter()
        return True

    def _steps(self) -> Iterator[Step | Decoding]:
        """Return the steps of the decode loop; joined, its `Decoding` as often as it goes on."""
        request, session, drafter = self._request, self._request.session, self._drafter
        shared = request.shared if self._verifier.by_choice else None
        if request.budgets is not None:
            self._budget = self._verifier.budget(
                request.budgets,
                context=len(request.prompt),
                target=session,
                drafter=drafter,
                name=request.config.drafter or "",
                **({} if shared is None else {"shared": shared}),
            )
        # Whoever asks for tokens gets them, also where they repeat themselves.
        loops = request.config.stop_loops and not request.config.ignore_eos
        settings: DecodingSettings = {
            "num_draft_tokens": request.num_draft_tokens,
            "max_tokens": self._max_tokens,
            "end_ids": request.tokenizer.end_ids,
            "loops": LoopDetector() if loops else None,
            "budget": self._budget,
            "position": len(request.prompt),
        }
        if shared is None:
            return self._verifier.decode(session, drafter, request.prompt[-1], **settings)
        decoding = Decoding(session, drafter, request.prompt[-1], **settings)
        return iter(lambda: None if decoding.over else decoding, None)

    def _take(self, step: Step) -> tuple[Step, StreamEvent]:
        """Add a step to text and statistics; return it, cut at a stop text, and its event."""
        if self._first_s is None:
            self._first_s = time.perf_counter() - self._started
        self._verified_trees |= not step.draft.is_chain
        if self._request.matcher is not None:
            self._request.matcher.advance(step.token_ids)
        logprobs = self._step_logprobs(step)
        step, pieces = self._text.take(step)
        logprobs = logprobs[: len(step.token_ids)]
        self._logprobs += logprobs
        self._recorder.add(step.stats)
        self._token_ids += step.token_ids
        event = StreamEvent(
            _join(pieces), step.token_ids, step.stats, pieces=pieces,
            deltas=self._request.message.feed(pieces), logprobs=logprobs,
        )  # fmt: skip
        return step, event

    def _step_logprobs(self, step: Step) -> tuple[TokenLogprob, ...]:
        """Return the log probabilities of a step's tokens; none unless they are asked for."""
        if self._request.config.logprobs is None:
            return ()
        found = self._request.session.logprobs()
        rows = (0, *(node + 1 for node in step.verification.accepted))
        chosen = (found[row] for row in rows[: len(step.token_ids)])
        return tuple(one for one in chosen if one is not None)

    def _with_result(self, last: StreamEvent, reason: FinishReason) -> StreamEvent:
        """Return the last event with the result and the text that was held back."""
        late = self._text.finish()
        pieces = (*last.pieces, *late)
        reader, message, unfinished = self._request.message, None, None
        deltas = (*last.deltas, *reader.feed(late), *reader.finish(cut=reason != "stop"))
        if self._request.is_chat:
            message, unfinished = reader.message, reader.unfinished
            if reason == "stop" and message.tool_calls and unfinished is None:
                reason = "tool_calls"
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
            row_bits=self._row_bits(),
            time_to_first_token_s=self._first_s,
            constraint_met=self._constraint_met(reason),
            time_saved=None if self._budget is None else self._budget.saved.share(stats),
            message=message,
            unfinished_call=unfinished,
            logprobs=None if self._request.config.logprobs is None else tuple(self._logprobs),
            stop_text=self._text.stop_text,
            prompt_logprobs=self._prompt_logprobs,
        )
        return replace(last, text=_join(pieces), result=result, pieces=pieces, deltas=deltas)

    def _row_bits(self) -> RowBits:
        """Return whether rows are bit-equal; passes over trees have other kernels than chains."""
        if not self._recorder.stats.drafted and self._request.session.largest_pass == 1:
            return "equal"
        measure = self._request.row_bits
        found = "unknown" if measure is None else measure()
        return "unknown" if found == "equal" and self._verified_trees else found

    def _constraint_met(self, reason: FinishReason) -> bool | None:
        """Return whether the whole text has the form that was asked for."""
        matcher = self._request.matcher
        if matcher is None:
            return None
        return matcher.ended or (reason == "length" and matcher.may_end)

    def _prefill_progress(self, done: int, total: int) -> None:
        if self._request.progress:
            self._request.progress(done, total)
        self._check()

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise _CancelledError


def _join(pieces: Iterable[TextPiece]) -> str:
    return "".join([piece.text for piece in pieces])
