"""The load of the machine: whether other programs would spoil a measurement.

It is `os.getloadavg`: part of Python, the same on macOS and Linux, and it counts what waits for a
processor, which shares of time in use do not show. It is a mean over a minute, so load that has
just ended still counts: hence the wait.
"""

import os
import time
from collections.abc import Callable

_BUSY = 0.5
"""Load for each processor from which a machine is busy."""

LONGEST_WAIT_S = 60.0
_LOOK_S = 5.0


def machine_load() -> float | None:
    """Return the load, a mean over one minute; None if the system does not tell it."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def usable_processors() -> int:
    """Return the number of logical processors that this process may use."""
    # Only Linux reports which ones.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def busy(load: float | None, processors: int) -> str:
    """Return in words that other programs are busy; "" if they are not, or nobody knows."""
    if load is None or load <= _BUSY * processors:
        return ""
    return f"other programs are busy: a load of {load:.1f} on {processors} processors"


def wait_until_quiet(say: Callable[[str], None]) -> None:
    """Wait up to a minute while other programs are busy; `say` that, and whether they still are."""
    until = time.monotonic() + LONGEST_WAIT_S
    processors = usable_processors()
    if not (found := busy(machine_load(), processors)):
        return
    if LONGEST_WAIT_S:
        say(f"{found}; waiting up to {LONGEST_WAIT_S:.0f} s for them to end")
    while found and (left := until - time.monotonic()) > 0:
        time.sleep(min(_LOOK_S, left))
        found = busy(machine_load(), processors)
    if found:
        say(f"Warning: {found}, so times are too long and noisy; let nothing else run")
