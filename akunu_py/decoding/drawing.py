"""A model's part in the drafts of a reply: its passes, its time, and whether it may draw at all."""

from akunu_py.decoding.drafter_time import DrafterTime, DrafterTimes
from akunu_py.decoding.running_rate import RunningRate

_START = 2.0
_STEP = 0.005
_MOST = 16.0


class DrawingAccount:
    """What the tokens that a model drew brought, less what they cost, in tokens.

    Estimates of acceptance are noisy, and a model is asked just while they are too high. Outcomes
    do not lie: each draft is charged what it cost and credited what it brought, and a model whose
    account is empty does not draw. Over all replies it can lose `_START` tokens, `_STEP` a step,
    and one draft. Of what it brought, `_MOST` tokens count, so that text that changes is noticed.
    """

    def __init__(self) -> None:
        self._balance = _START

    def covers(self, loss: float) -> bool:
        """Return whether a draft with this expected loss, in tokens, may be drawn."""
        return loss < self._balance

    def add_step(self) -> None:
        """Credit the share of a finished step, with which the model is tried again."""
        self.add_draft(_STEP, 0.0)

    def add_draft(self, brought: float, cost: float) -> None:
        """Credit and charge the outcome of a draft."""
        self._balance = min(_MOST, self._balance + brought - cost)


class DrawingState:
    """What replies teach about a model that draws: times of its passes, and its account."""

    def __init__(self) -> None:
        self.times = DrafterTimes()
        self.account = DrawingAccount()


class Drawing:
    """The drafts that a model draws in one reply."""

    def __init__(self, state: DrawingState) -> None:
        self._time = DrafterTime(state.times)
        self.account = state.account
        # Lambda over the steps without copies. A token is worth the time that it takes otherwise,
        # at its place in the text. Where nothing is copied it takes longer than over all steps:
        # copies come in their own time, whatever is drawn here.
        self.rate = RunningRate()
        self.asked = False
        self.begin_step()

    def begin_step(self) -> None:
        """Forget the last draft."""
        # Tokens in front of the drawn ones, passes of the model, and how long those waited for the
        # step in flight.
        self.copied = self.passes = 0
        self.waited_s = 0.0

    @property
    def a_pass(self) -> float:
        """Return the cost of a pass, in plain steps; 0 before the first measurement."""
        return self._time.a_token

    def add_time(self, taken: float) -> None:
        """Add the time of the last draft's passes, in plain steps."""
        self._time.add(taken, self.passes, drafted=True)
