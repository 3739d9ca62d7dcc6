"""Replay recorded replies as a target's choices: what a drafter would have saved."""

import time
from collections.abc import Callable, Iterable

from akunu_py.protocols import Drafter
from akunu_py.values.cost_curve import CostCurve

MAX_DRAFT = 64
Reply = tuple[list[int], list[int]]
"""Ids of a prompt and of the reply to it."""


def replay(
    drafter: Drafter,
    prompt: list[int],
    reply: list[int],
    curve: CostCurve,
    times: list[float] | None = None,
) -> float:
    """Return the cost of all passes of one reply, in passes over one row.

    `times` takes the seconds of the thread's time that each pass's propose and observe took: those
    of the clock would count what else the machine does.
    """
    clock = time.thread_time
    drafter.observe(prompt)
    position, size, cost = 0, len(reply), 0.0
    while position < size:
        limit = min(MAX_DRAFT, size - position - 1)
        started = clock()
        draft = drafter.propose(limit).tokens if limit > 0 else ()
        proposed = clock()
        right = 0
        for token in draft:
            if token != reply[position + right]:
                break
            right += 1
        output = tuple(reply[position : position + right + 1])
        verified = clock()
        drafter.observe(output)
        if times is not None:
            times.append(clock() - verified + proposed - started)
        cost += curve.cost(1 + len(draft))
        position += len(output)
    return cost / curve.cost(1)


def normalised_speed(
    replies: Iterable[Reply],
    curve: CostCurve,
    make: Callable[[], Drafter],
    times: list[float] | None = None,
) -> float:
    """Return all tokens of the replies over the cost of all passes; 1 is plain decoding."""
    tokens = cost = 0.0
    for prompt, reply in replies:
        cost += replay(make(), prompt, reply, curve, times)
        tokens += len(reply)
    return tokens / cost
