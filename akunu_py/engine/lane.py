"""A further place for replies of an engine, for a thread that makes several replies in turn."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from akunu_py.constraints import Matcher, PendingMatcher
from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.drafting import AutoState
from akunu_py.engine.drafter_factory import DrafterChoice, DraftingModels
from akunu_py.engine.reply import Reply, Request, Turns
from akunu_py.engine.tool_use import ChatPlan
from akunu_py.models.cached_rows import NO_CHECKPOINTS, Progress
from akunu_py.models.session import Session
from akunu_py.system.errors import ConstraintError
from akunu_py.tool_calls.enforceable import unenforceable
from akunu_py.values.constraint import Constraint


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call whose prompt and options an engine has checked, for one reply."""

    prompt: tuple[int, ...]
    choice: DrafterChoice
    """The drafter, and the configuration with its name filled in."""

    plan: ChatPlan | None = None
    """The plan of a conversation; None for a reply that continues the prompt's text."""

    matcher: PendingMatcher | None = None
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

    def compile(self) -> Matcher | None:
        """Return the matcher; only the first call takes its time.

        Raises ConstraintError for a constraint that cannot be compiled.
        """
        if self.matcher is None:
            return None
        try:
            return self.matcher.compile()
        except ConstraintError as error:
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

    def close(self) -> None:
        self.session.close()
        self._models.close()
