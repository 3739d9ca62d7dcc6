"""Times of passes, measured directly in seconds instead of learned over minutes of replies."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import mlx.core as mx

from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import Draft, GenerationConfig

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 16, 17, 25, 33)
"""Sizes around which kernels change (tiles of 4, 5, 8 and 16 positions; MLX's other product from 10
or 11 on), and larger ones for copies."""

_PLAIN_STEPS = 6

_NOISE = 1.1
"""How much dearer a pass may be than one with more rows, whose kernels may suit the machine better.
"""


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of plain steps with the next one in flight, and of single passes by their positions.

    `replays_s` are seconds of undoing a half of a pass where caches cannot drop its positions.
    """

    context: int
    plain_s: tuple[float, ...]
    passes_s: dict[int, tuple[float, ...]]
    replays_s: tuple[float, ...] = ()

    @property
    def unit_s(self) -> float:
        """The median plain step."""
        return median(self.plain_s)

    @property
    def costs(self) -> dict[int, float]:
        """Medians by positions, in plain steps."""
        return {rows: median(taken) / self.unit_s for rows, taken in self.passes_s.items()}

    @property
    def doubt(self) -> str:
        """Return in words what cannot be: that a pass takes longer than one with more positions."""
        costs = sorted(self.costs.items())
        for (fewer, cost), (more, cheaper) in itertools.combinations(costs, 2):
            if cost > _NOISE * cheaper:
                return (
                    f"{fewer} rows took {cost:.2f} plain steps, and {more} rows only {cheaper:.2f}"
                )
        return ""


def measure_passes(
    session: Session,
    prompt: Sequence[int],
    *,
    rows: Sequence[int] = ROWS,
    repeats: int = 7,
    progress: Callable[[int, int], None] | None = None,
) -> PassTimes:
    """Time plain steps and passes of each size after a prompt, in turn, with greedy sampling.

    They are timed in turn so that other work on the machine slows all sizes alike. The first round
    compiles kernels and is left out. The fed tokens are the prompt's, because a mixture's experts
    depend on them. Where the caches cannot roll back, only one position is measured. The session's
    conversation ends.
    """
    chain = TransformChain.from_config(GenerationConfig(), session.vocabulary_size)
    sampler = Sampler(chain, 0, session.vocabulary_size)
    last = prompt[-1]
    fed = list(prompt) * (max(rows) // len(prompt) + 1)
    sizes = [size for size in rows if len(prompt) + size < session.context]
    plain: list[float] = []
    passes: dict[int, list[float]] = {size: [] for size in sizes}
    replays: list[float] = []
    # Positions of a draft of eight tokens, or fewer in a short context.
    replayed = (
        0 if session.rows.rollback.drops_rows else max((s for s in sizes if s <= 9), default=0)
    )
    for number in range(repeats + 1):
        for size in sizes:
            # Back to the end of the prompt. The pass gives all the tokens asked for, so that no
            # further pass is queued and overlaps with the next measurement.
            session.begin(prompt, sampler, size)
            if session.max_draft_tokens() < size - 1:
                continue
            started = time.perf_counter()
            session.choose(last, Draft.chain(fed[: size - 1], "measured"))
            session.commit(())
            if number:
                passes[size].append(time.perf_counter() - started)
        if replayed and number:
            replays.append(_replay_s(session, prompt, sampler, fed[: replayed - 1]))
        session.begin(prompt, sampler, _PLAIN_STEPS)
        token = last
        for step in range(_PLAIN_STEPS):
            started = time.perf_counter()
            (token,) = session.choose(token, Draft.empty("measured"))
            session.commit(())
            # The first step finds nothing in flight, the last one queues nothing.
            if number and 0 < step < _PLAIN_STEPS - 1:
                plain.append(time.perf_counter() - started)
        if progress:
            progress(number + 1, repeats + 1)
    session.reset()
    taken = {size: tuple(times) for size, times in passes.items() if times}
    return PassTimes(len(prompt), tuple(plain), taken, tuple(replays))


def _replay_s(session: Session, prompt: Sequence[int], sampler: Sampler, draft: list[int]) -> float:
    """Return the seconds of keeping half of a draft, states evaluated."""
    session.begin(prompt, sampler, len(draft) + 1)
    session.choose(prompt[-1], Draft.chain(draft, "measured"))
    started = time.perf_counter()
    session.commit(range(len(draft) // 2))
    with mx.stream(session.stream):
        mx.eval([cache.state for cache in session.rows.caches])
    return time.perf_counter() - started
