"""Lanes, which are further places for replies of an engine, and rounds of replies over them.

In a round one reply that reads its prompt has a turn, and all others share a pass.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.drafting import AutoState
from akunu_py.engine.drafter_factory import DrafterChoice, DraftingModels
from akunu_py.engine.reply import Reply, Request, Turns
from akunu_py.engine.request_checks import ChatPlan
from akunu_py.models.cached_rows import NO_CHECKPOINTS, Progress
from akunu_py.models.joined import Choices, JoinedForward, WantedChoice, choose_together
from akunu_py.models.session import Session
from akunu_py.system.errors import ConstraintError
from akunu_py.values.constraint import Constraint
from akunu_py.values.types import GenerationResult, StreamEvent

if TYPE_CHECKING:
    from akunu_py.constraints import Matcher, PendingMatcher


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call whose prompt and options an engine has checked, for one reply."""

    prompt: tuple[int, ...]
    choice: DrafterChoice
    """The drafter, and the configuration with its name filled in."""

    plan: ChatPlan | None = None
    """The plan of a conversation; None for a reply that continues the prompt's text."""

    matcher: "PendingMatcher | None" = None
    """The reply's place in its constraint; None for a reply in any form."""

    form: Constraint | None = None
    """The constraint that the caller gave; with tools it is a part of the reply's."""

    text: tuple[int, ...] | None = None
    """The reply's tokens if they are given; see `Engine.stream_forced`."""

    scored: int | None = None
    """How many likeliest tokens to report at each place of the prompt, beside the log probability
    of its own; None reports neither."""

    reads_only: bool = False
    """Whether the reply ends behind the prompt, without a token."""

    def compile(self) -> "Matcher | None":
        """Return the matcher; only the first call takes its time.

        Raises ConstraintError for a constraint that cannot be compiled.
        """
        if self.matcher is None:
            return None
        try:
            return self.matcher.compile()
        except ConstraintError as error:
            from akunu_py.tool_calls.enforceable import unenforceable  # for this message

            if self.form is None or not any(places := unenforceable(self.form)):
                raise
            raise ConstraintError(
                f"json_schema: a grammar cannot enforce {', '.join(places)[:300]}; change the "
                f"schema there ({error.message.partition(': ')[2]})"
            ) from None


MakeRequest = Callable[[CheckedCall, Session, AutoState, DraftingModels], Request]


class Lane:
    """Caches for one reply at a time, beside other lanes of the same engine.

    Lanes share the engine's weights, its drafters' files and its costs of passes. They have no
    lock: one thread uses all of them, and no other reply of the engine runs meanwhile. A draft
    model and a prediction head have caches for each lane.
    """

    def __init__(self, session: Session, models: DraftingModels, make: MakeRequest) -> None:
        self.session = session
        self._models = models
        self._make = make

    def turns(
        self,
        call: CheckedCall,
        learned: AutoState,
        cancelled: threading.Event,
        *,
        checkpoints: Mapping[str, int] = NO_CHECKPOINTS,
        progress: Progress | None = None,
        shared: SharedPasses | None = None,
    ) -> Turns:
        """Make a reply in turns: None at each pause of a prompt pass, then an event per step.

        With `shared` the caller makes the choices of each step, if the session's passes can be
        joined; see `Reply.turns`.

        `learned` is the state of `auto`; the reply joins it when it ends. Once `cancelled` is set
        the next turn is the last and has the result, with the finish reason "cancelled". Closing
        the generator ends the reply without a result.

        Raises as `Engine.generate` does for what only making the drafter shows.
        """
        state = learned.fork()
        request = replace(
            self._make(call, self.session, state, self._models),
            checkpoints=checkpoints,
            progress=progress,
            shared=shared if self.session.joins else None,
            ended=state.finish,
        )
        return Reply(request, cancelled).turns()

    def begin(self, call: CheckedCall, learned: AutoState, shared: SharedPasses) -> "ReplyInTurns":
        """Make a reply in turns that shares passes with those of other lanes; see `turns`."""
        return ReplyInTurns(self.turns(call, learned, threading.Event(), shared=shared))

    def close(self) -> None:
        self.session.close()
        self._models.close()


@dataclass(eq=False, slots=True)
class ReplyInTurns:
    """A reply under way."""

    turns: Turns
    wanted: WantedChoice | None = field(default=None, init=False)
    """What it waits for, within a round."""
    shares: bool = field(default=False, init=False)
    """Whether the reply has read its prompt, and shares passes with other replies."""
    over: bool = field(default=False, init=False)

    def turn(
        self, choices: list[int] | BaseException | None = None
    ) -> StreamEvent | BaseException | None:
        """Take a turn; return its event if it has one, or the error that has ended the reply.

        `choices` are what was wanted, or an error in their place.
        """
        self.wanted = None
        try:
            if isinstance(choices, BaseException):
                made = self.turns.throw(choices)
            else:
                made = self.turns.send(choices)
        except StopIteration:  # of work without a result
            self.over = True
            return None
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it ends this reply alone
            self.over = True
            return error
        if isinstance(made, WantedChoice):
            self.wanted, self.shares = made, True
            return None
        self.over = made is not None and made.result is not None
        return made


InTurns = TypeVar("InTurns", bound=ReplyInTurns)


def choose_steps(
    joined_passes: Callable[[], JoinedForward | None],
    shared: SharedPasses,
    replies: Sequence[InTurns],
) -> Iterator[tuple[InTurns, StreamEvent | BaseException | None]]:
    """Make the next step of replies that share, with one pass; yield what their turns give.

    They are of one model, and `shared` decides how much of their drafts is verified. Whether passes
    can be joined is found out when two want one; if not, each has a pass of its own. An error of a
    joined pass ends all.
    """
    forward = None
    try:
        # Not timed: the first call tries the model.
        forward = joined_passes() if len(replies) > 1 else None
    except BaseException as error:  # noqa: BLE001 - each reply hands it on
        yield from [(reply, reply.turn(error)) for reply in replies]
        return
    shared.begin(1 if forward is None else len(replies))
    for reply in replies:
        # Not before the round: a draft's clock runs from here to the choices.
        if reply.wanted is None:
            made = reply.turn()
            if reply.over:
                yield reply, made
    replies = [reply for reply in replies if reply.wanted is not None]
    wanted = [reply.wanted for reply in replies if reply.wanted is not None]
    if not wanted:
        return
    _cut_drafts(shared, wanted, joins=forward is not None)
    steady = all(one.session.in_flight for one in wanted)
    started = fed = time.perf_counter()

    def feed(*rows: Any) -> list[Any]:
        nonlocal fed
        fed = time.perf_counter()
        return cast("JoinedForward", forward)(*rows)

    found: Sequence[Choices]
    try:
        found = choose_together(feed if forward is not None and len(wanted) > 1 else None, wanted)
    except BaseException as error:  # noqa: BLE001 - each reply hands it on
        found = [error] * len(wanted)
    now = time.perf_counter()
    passes = [one.session.last_pass for one in wanted if one.draft.tokens]
    drafted = sum(max(0, done.rows - 1) for done in passes if done is not None)
    tokens = 0
    for reply, choices in zip(replies, found, strict=True):
        if choices is None:
            continue
        made = reply.turn(choices)
        if isinstance(made, StreamEvent):
            tokens += len(made.token_ids)
        yield reply, made
    shared.observe(
        seconds=now - started, feeding_s=now - fed, drafted=drafted, tokens=tokens, steady=steady
    )


def _cut_drafts(shared: SharedPasses, wanted: Sequence[WantedChoice], *, joins: bool) -> None:
    """Cut the drafts that are offered to the next pass to what pays."""
    waits = not all(one.session.pipelined for one in wanted)
    shared.begin(len(wanted) if joins else 1, waits=waits)
    new = [one for one in wanted if one.work is None]
    offered = [(one, one.offer) for one in new if one.offer is not None]
    taken = sum(len(one.draft) for one in new if one.offer is None)
    sizes = shared.share([offer for _, offer in offered], taken)
    for (one, _), size in zip(offered, sizes, strict=True):
        one.draft = one.draft.first(size)


@dataclass(eq=False, slots=True)
class _Numbered(ReplyInTurns):
    number: int
    lane: Lane


_Turned = Iterator[tuple[_Numbered, StreamEvent | BaseException | None]]


def results_as_they_end(
    begin: Iterable[Callable[[Lane], Turns]],
    open_lane: Callable[[], Lane],
    choose: Callable[[Sequence[_Numbered]], _Turned],
    most: int,
    before_round: Callable[[int], None],
) -> Iterator[tuple[int, GenerationResult | Exception]]:
    """Make replies, up to `most` at once; yield number and result of each, or its error.

    `choose` is `choose_steps` of one engine; `before_round` gets the number of replies under way.
    """
    coming = enumerate(begin)
    lanes: list[Lane] = []
    free: list[Lane] = []
    running: deque[_Numbered] = deque()
    try:
        while True:
            while len(running) < most and (following := next(coming, None)) is not None:
                number, turns = following
                if not free:
                    lanes.append(open_lane())
                    free.append(lanes[-1])
                lane = free.pop()
                running.append(_Numbered(turns(lane), number, lane))
            if not running:
                return
            before_round(len(running))
            for one, made in _round(running, choose):
                if not one.over:
                    continue
                one.turns.close()
                running.remove(one)
                free.append(one.lane)
                if isinstance(made, Exception):
                    yield one.number, made
                elif isinstance(made, BaseException):
                    raise made
                elif made is not None and made.result is not None:
                    yield one.number, made.result
    finally:
        for one in running:
            one.turns.close()
        for lane in lanes:
            lane.close()


def _round(running: deque[_Numbered], choose: Callable[[Sequence[_Numbered]], _Turned]) -> _Turned:
    alone = next((one for one in running if not one.shares), None)
    if alone is not None:
        # Replies that do not share have their turns one after another.
        running.remove(alone)
        running.append(alone)
        yield alone, alone.turn()
    yield from choose([one for one in running if one.shares])
