"""What a part of the report is given: the model, and time by the pace at which parts plan."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path

from akunu_lab.machine.report import ModelFacts, PartFigures
from akunu_py.api import Engine, Prompt, Ratio

STARTS = 5
"""Most processes that are started."""
TEXT_LENGTHS = (128, 512, 2048)
"""Tokens of the prompts that are read, and of the texts behind which rows are compared."""
TRIES = 3
"""Runs of each length."""
FEWEST_ROUNDS, _MOST_ROUNDS = Ratio.LEAST_SESSIONS, 9
COMPARED_TOKENS, TIMED_TOKENS = 64, 96
"""Limits of a reply on a fast machine: of one that is compared, and of one that is timed."""

_FEWEST_TOKENS = 16
_COMPARED_REPLIES = 2 * (2 * 7 + 1)
"""Both replies to two prompts of each category, and to one before them."""
_TIMED_REPLIES = 3 * (2 * (FEWEST_ROUNDS + 1) + 1)
"""Replies that the limit is planned for, by all arms and with a warm-up; more if there is time."""
_DRAFTING_S = 1.3
"""Assumed longest time of a token with drafting or sampling, in plain steps."""
_STEPS_OF_A_ROUND, _STEPS_OF_ALL_SIZES = 45, 200
"""Plain steps that a round over all sizes of passes takes, while rows are cheap, and that comparing
the rows of all sizes takes."""
SIZES = (2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 16, 17, 25, 33)
"""Rows of passes around which kernels change, and of larger ones."""
_ROWS_ON_SLOW_MACHINES = 9
"""Largest size there; those up to it take 50 steps."""


def start_limit_s(seconds: float) -> float:
    """Return after how many seconds a process without a token is given up."""
    return max(30.0, 4 * seconds)


@dataclass(frozen=True, slots=True)
class ModelPace:
    """Rough speed of the model on this machine."""

    step_s: float
    prefill_s_per_token: float
    prompt_tokens: int
    """Length of a usual prompt."""

    def compared_tokens(self, seconds: float) -> int:
        """Return the limit of replies that are compared, in tokens."""
        return self._reply_tokens(seconds / _COMPARED_REPLIES, COMPARED_TOKENS)

    def timed_tokens(self, seconds: float) -> int:
        """Return the limit of replies that are timed, in tokens."""
        return self._reply_tokens(seconds / _TIMED_REPLIES, TIMED_TOKENS)

    def _reply_tokens(self, seconds: float, most: int) -> int:
        prefill_s = self.prompt_tokens * self.prefill_s_per_token
        fitting = (seconds - prefill_s) / (_DRAFTING_S * self.step_s)
        return max(_FEWEST_TOKENS, min(most, int(fitting)))

    def rounds(self, seconds: float) -> int:
        """Return how many rounds over all sizes fit, after one discarded round.

        If the rounds for an interval take at most twice the time, they are made.
        """
        round_s = _STEPS_OF_A_ROUND * self.step_s
        fitting = int(seconds / round_s) - 1
        if 2 * seconds >= (FEWEST_ROUNDS + 1) * round_s:
            fitting = max(FEWEST_ROUNDS, fitting)
        return max(1, min(_MOST_ROUNDS, fitting))

    def compared_sizes(self, seconds: float) -> list[int]:
        """Return the sizes of passes whose rows are compared."""
        has_time = _STEPS_OF_ALL_SIZES * self.step_s <= seconds
        return [size for size in SIZES if has_time or size <= _ROWS_ON_SLOW_MACHINES]

    def longest_text(self, seconds: float, limit: int) -> int:
        """Return the longest text that can be read four times, or 0."""
        return max(
            (
                length
                for length in TEXT_LENGTHS
                if length <= limit and 4 * length * self.prefill_s_per_token <= seconds
            ),
            default=0,
        )


def measure_pace(engine: Engine) -> ModelPace:
    """Make a short reply and return its pace."""
    (prompt,) = Prompt.load(["edit"], limit=1)
    ids = engine.tokenizer.encode(prompt.last_user_text)[: engine.context // 2]
    # The first reply compiles kernels.
    engine.generate(ids, max_tokens=2, drafter="none")
    engine.reset()
    reply = engine.generate(ids, max_tokens=8, drafter="none")
    step_s = max(reply.decode_s / len(reply.token_ids), 1e-6)
    return ModelPace(step_s, reply.prefill_s / len(ids), len(ids))


def shortened(max_tokens: int, most: int) -> str:
    """Return a note if replies are shorter than on a fast machine, or ""."""
    return f"replies of {max_tokens} tokens instead of {most}" if max_tokens < most else ""


def interleaved(categories: Sequence[str] | None = None) -> list[Prompt]:
    """Return the shipped prompts, one session of each category in turn, short ones first.

    So any beginning contains all categories, and a slow machine finishes some of them.
    """
    prompts = Prompt.load(categories)
    sessions = [list(turns) for _, turns in groupby(prompts, attrgetter("session"))]
    order = list(dict.fromkeys(prompt.category for prompt in prompts))
    sessions.sort(key=lambda turns: (order.index(turns[0].category), _num_characters(turns)))
    numbers = defaultdict[str, Iterator[int]](count)
    sessions.sort(key=lambda turns: next(numbers[turns[0].category]))
    return [prompt for turns in sessions for prompt in turns]


def _num_characters(prompts: Sequence[Prompt]) -> int:
    return sum(
        len(prompt.text) + sum(len(message["content"]) for message in prompt.messages)
        for prompt in prompts
    )


class CannotBeMeasuredError(Exception):
    """The part does not apply to this model; the message says why."""


@dataclass(slots=True)
class Subject:
    """The measured model; each part may add what later ones need."""

    path: Path
    facts: ModelFacts | None = None
    engine: Engine | None = None
    """None before it is loaded, or if loading failed."""
    pace: ModelPace | None = None
    has_costs: bool = False
    """Whether the engine remembers measured costs of passes."""

    def ready(self) -> tuple[Engine, ModelPace]:
        """Return an engine whose caches are empty, and its pace.

        Raises CannotBeMeasuredError before the model is loaded.
        """
        if self.engine is None or self.pace is None:
            raise CannotBeMeasuredError("the model was not loaded")
        self.engine.reset()
        return self.engine, self.pace


@dataclass(slots=True)
class PartRun:
    """The run of a part: its time in seconds, and what becomes of it."""

    seconds: float
    tell: Callable[[], None] = lambda: None
    """Shows how much time is over; called after each item."""
    clock: Callable[[], float] = time.perf_counter
    note: str = ""
    """What was left out for lack of time."""
    so_far: PartFigures | None = None
    """Kept if the part is interrupted."""
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends = self.clock() + self.seconds

    @property
    def left(self) -> float:
        """Remaining seconds; below 0 after the end."""
        return self._ends - self.clock()

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self.left <= 0
