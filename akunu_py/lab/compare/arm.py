"""Arms of a comparison: how their replies are timed, and what they are made from."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.rows import Count, Number, Row
from akunu_py.errors import ContractError

if TYPE_CHECKING:
    # A program that is not on MLX does without it in its process.
    from akunu_py.models.load import LoadedModel


class Decoded(Row, frozen=True):
    """One reply of one arm.

    Attributes:
        token_ids: generated, an end-of-generation id included where one was.
        num_first: how many of them came with the first pass.
        first_s: seconds from the prompt's ids to the first token on the host.
        decode_s: seconds from then to the last token.
        num_passes: passes after the first.
        num_drafted: tokens drafted for these.
        num_accepted: of these, as far as they are in `token_ids`.

    """

    token_ids: tuple[Count, ...]
    num_first: Count
    first_s: Number
    decode_s: Number
    num_passes: Count
    num_drafted: Count
    num_accepted: Count

    @property
    def num_timed(self) -> int:
        """The tokens that came in `decode_s`: all but those of the first pass."""
        return len(self.token_ids) - self.num_first


class Recorder:
    """Takes a reply's tokens as they come in this process, and the time.

    Args:
        max_tokens: tokens after which a reply is over.
        end_ids: tokens that end it.

    """

    def __init__(self, max_tokens: int, end_ids: frozenset[int]) -> None:
        self.max_tokens = max_tokens
        self.end_ids = end_ids
        self._token_ids: list[int] = []
        self._num_first = self._passes = self._drafted = self._accepted = 0
        self._started = self._first = self._last = 0.0
        self._over = False

    def start(self) -> None:
        """Start the clock: the prompt's ids are there, and nothing of it is computed."""
        self._started = time.perf_counter()

    def take(
        self, token_ids: Sequence[int], *, num_drafted: int = 0, num_accepted: int = 0
    ) -> bool:
        """Take the tokens of a pass, which are on the host now; return whether the reply is over.

        `num_drafted` were drafted for the pass, `num_accepted` of these tokens. Tokens behind an
        end, and beyond the most that are asked for, are dropped; so are all once the reply is over.
        """
        now = time.perf_counter()
        if self._over or not token_ids:
            return self._over
        kept = self._kept(token_ids)
        first = not self._token_ids
        self._token_ids += token_ids[:kept]
        self._last = now
        if first:
            self._first = now
            self._num_first = kept
        else:
            self._passes += 1
            self._drafted += num_drafted
            self._accepted += min(num_accepted, kept)
        return self._over

    def _kept(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens belong to the reply, and note whether it ends with them."""
        room = self.max_tokens - len(self._token_ids)
        for count, token in enumerate(token_ids[:room], start=1):
            if token in self.end_ids:
                self._over = True
                return count
        self._over = len(token_ids) >= room
        return min(room, len(token_ids))

    def result(self) -> Decoded:
        """Return the reply; raises ContractError where there is no token."""
        if not self._token_ids:
            raise ContractError("the arm gave no token")
        return Decoded(
            token_ids=tuple(self._token_ids),
            num_first=self._num_first,
            first_s=self._first - self._started,
            decode_s=self._last - self._first,
            num_passes=self._passes,
            num_drafted=self._drafted,
            num_accepted=self._accepted,
        )


class Arm(Protocol):
    """One way to decode.

    Attributes:
        name: of the arm.
        plain: name of the arm that decodes plainly in the same program; its own for that one.
        steady: whether passes and drafts are the same in every run: nothing in them is decided by
            a clock.
        version: the program and its version.
        about: weights and settings, for people.

    """

    name: str
    plain: str
    steady: bool
    version: str
    about: str

    def decode(
        self, prompt: tuple[int, ...], max_tokens: int, end_ids: frozenset[int], /
    ) -> Decoded:
        """Continue a prompt greedily from empty caches, as far as `max_tokens` or an end id.

        Whatever it raises is a failure of this arm on this prompt alone.
        """

    def close(self) -> None:
        """Give the memory back."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An arm that is missing, and why."""

    name: str
    reason: str


class UnavailableError(Exception):
    """A program cannot run this model here; the message says why, and how it could."""


EXTRA = "compare"
"""The extra with the programs that akunu does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What other programs decode with; it can be sent to another process.

    Attributes:
        path: the model's file or folder.
        options: fields of the `LoadOptions` that akunu loads it with.
        context: most tokens that it will see, as akunu was told.
        draft_path: a smaller model with its vocabulary, if there is one.
        longest: most tokens of prompt and reply together.
        num_threads: of a program that computes on the CPU.
        on_gpu: whether MLX computes on a GPU: then the others do too, where they can.
        probe: token ids whose logits an arm compares with `logits` before it is measured.
        logits: akunu's after each of these, float32 [n, vocabulary].

    """

    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    draft_path: Path | None = None
    longest: int
    num_threads: int = 1
    on_gpu: bool = False
    probe: tuple[int, ...]
    logits: NDArray[np.float32]

    def load(self) -> "LoadedModel":
        """Load the model as akunu did; raises as `load_model` does."""
        from akunu_py.models.load import LoadOptions, load_model  # noqa: PLC0415 - MLX

        return load_model(self.path, LoadOptions(**self.options), context=self.context)

    def load_draft(self) -> "LoadedModel | None":
        """Load the draft model as akunu did, if there is one; raises as `load_model` does."""
        from akunu_py.models.load import LoadOptions, draft_options, load_model  # noqa: PLC0415

        if self.draft_path is None:
            return None
        return load_model(
            self.draft_path, draft_options(self.draft_path, LoadOptions(**self.options))
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A program with arms.

    Attributes:
        name: what --program takes.
        arms: the names of its arms.
        make: makes them, in the program's own process; raises UnavailableError where the program
            cannot run the model at all.

    """

    name: str
    arms: tuple[str, ...]
    make: Callable[[Subject], Sequence[Arm | Skipped]]
