"""What one reply of `auto` leaves to the next."""

import json
from functools import cache
from importlib import resources

from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.length import Pace
from akunu_py.drafting.memory import Memory


@cache
def start_weights() -> tuple[float, ...]:
    """Return the fitted weights that a new engine starts from."""
    text = resources.files(__package__).joinpath("start_weights.json").read_text("utf-8")
    return tuple(json.loads(text)["weights"])


class AutoState:
    """The calibration, the pace and the memory of one engine.

    A reply is added to the memory when the next one begins, or by `finish`.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self.calibration = Calibration(start_weights())
        self.pace = Pace()
        self.memory = Memory() if memory is None else memory
        self._reply: list[int] = []

    def begin_reply(self) -> list[int]:
        """Finish the last reply; return the list that takes the tokens of the new one."""
        self.finish()
        self.pace.begin_reply()
        return self._reply

    def finish(self) -> None:
        """Add the reply under way, if any, to the memory."""
        reply, self._reply = self._reply, []
        if reply:
            self.memory.add(reply)
