"""Two replies to one prompt, made in turns: each has the machine to itself for a slice of time."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from akunu_py.system.errors import ContractError

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.values.messages import Message
    from akunu_py.values.types import GenerationConfig, GenerationResult, StreamEvent

_SLICE_S = 0.1
"""Seconds of a turn, or one step where that takes longer: short, so that both seem to go on."""


class Runner:
    """One reply and its clock, which runs while the reply does.

    A turn ends when the device is idle, so no pass of one runs in the time of the other.
    """

    def __init__(
        self,
        engine: "Engine",
        messages: "Sequence[Message]",
        config: "GenerationConfig",
        taken: "Callable[[StreamEvent], None]",
    ) -> None:
        self._engine = engine
        self._taken = taken
        self._stream = engine.stream_chat(messages, config)
        self.seconds = 0.0  # what the clock shows, from before the prompt is read
        self.result: GenerationResult | None = None

    def run(self, seconds: float = _SLICE_S) -> None:
        """Go on for so long, and to the end of a step, or to the reply's end."""
        events = []
        started = time.perf_counter()
        while self.result is None and time.perf_counter() - started < seconds:
            events.append(next(self._stream))
            self.result = events[-1].result
        self._engine.wait()
        self.seconds += time.perf_counter() - started
        for event in events:
            self._taken(event)

    @property
    def outcome(self) -> "GenerationResult":
        """Return the result of a reply that is over."""
        if self.result is None:
            raise ContractError("the reply is not over yet")
        return self.result


def race(runners: Iterable[Runner], show: Callable[[], None]) -> None:
    """Let replies go on to their ends, always the one whose clock is behind."""
    running = list(runners)
    while running:
        behind = min(running, key=lambda runner: runner.seconds)
        behind.run()
        running = [runner for runner in running if runner.result is None]
        show()


def warm_up(engine: "Engine") -> None:
    """Let an engine do what is done once a machine or a process: it is in no clock."""
    engine.generate(
        "one two three one two three one two three", max_tokens=8, drafter="ngram",
        draft_budget="always",
    )  # fmt: skip
    engine.reset()
