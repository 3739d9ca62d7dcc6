"""What drafters may be told of the target besides its output; see `akunu_py.types`."""

from akunu_py.types import CandidateObserver as CandidateObserver  # noqa: PLC0414 - offered here
