"""The line of replies that wait for a lane: bounded, and fair between clients."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """What stands in line for a client."""

    @property
    def client(self) -> str:
        """Return the key of the client."""


_Job = TypeVar("_Job", bound=Waiting)


class WaitingLine(Generic[_Job]):
    """Jobs that wait, by client; clients take turns, and the jobs of one keep their order.

    There is room for `places` jobs, beside those that `free` lanes take at once. A client of which
    nothing waits finds one of as many further places, so that another client cannot keep it out.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        # The client whose turn it is comes first.
        self._jobs: OrderedDict[str, deque[_Job]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def __iter__(self) -> Iterator[_Job]:
        return (job for jobs in self._jobs.values() for job in jobs)

    def put(self, job: _Job, *, free: int = 0) -> bool:
        """Add a job; return False if there is no room for it."""
        room = free + (self._places if job.client in self._jobs else 2 * self._places)
        if len(self) >= room:
            return False
        self._jobs.setdefault(job.client, deque()).append(job)
        return True

    def pop(self) -> _Job | None:
        """Return the next job, or None; the next client's turn comes after it."""
        if not self._jobs:
            return None
        client, jobs = next(iter(self._jobs.items()))
        job = jobs.popleft()
        if jobs:
            self._jobs.move_to_end(client)
        else:
            del self._jobs[client]
        return job

    def put_back(self, job: _Job) -> None:
        """Put a job that `pop` returned to the front again."""
        self._jobs.setdefault(job.client, deque()).appendleft(job)
        self._jobs.move_to_end(job.client, last=False)

    def remove(self, job: _Job) -> None:
        """Remove a job that waits."""
        jobs = self._jobs[job.client]
        jobs.remove(job)
        if not jobs:
            del self._jobs[job.client]
