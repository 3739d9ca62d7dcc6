"""Arms of a comparison: their replies and times, and the inputs for making them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.rows import Count, Number, Row
from akunu_py.system.errors import ContractError

if TYPE_CHECKING:
    # The process of a program without MLX does not import it.
    from akunu_py.models.load import LoadedModel


class Decoded(Row, frozen=True):
    """One reply of one arm.

    Attributes:
        token_ids: generated ids, including an end-of-generation id.
        num_first: number of them from the first pass.
        first_s: seconds from the prompt's ids to the first token on the host.
        decode_s: seconds from then to the last token.
        num_passes: passes after the first.
        num_drafted: tokens drafted for these passes.
        num_accepted: accepted tokens that are in `token_ids`.

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
        """The number of tokens from `decode_s`: all but those of the first pass."""
        return len(self.token_ids) - self.num_first


class Recorder:
    """Records a reply's tokens and times in this process.

    Args:
        max_tokens: number of tokens after which a reply ends.
        end_ids: ids that end it.

    """

    def __init__(self, max_tokens: int, end_ids: frozenset[int]) -> None:
        self.max_tokens = max_tokens
        self.end_ids = end_ids
        self._token_ids: list[int] = []
        self._num_first = self._passes = self._drafted = self._accepted = 0
        self._started = self._first = self._last = 0.0
        self._over = False

    def start(self) -> None:
        """Start the clock: the prompt's ids are ready, and no pass over them has begun."""
        self._started = time.perf_counter()

    def take(
        self, token_ids: Sequence[int], *, num_drafted: int = 0, num_accepted: int = 0
    ) -> bool:
        """Record the tokens of a pass once they are on the host; return whether the reply is over.

        `num_drafted` tokens were drafted for the pass, and the first `num_accepted` of its tokens
        were accepted drafts. Tokens after an end id or beyond `max_tokens` are dropped, as are all
        tokens after the end of the reply.
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
        """Return the number of tokens that belong to the reply, and note whether it ends."""
        room = self.max_tokens - len(self._token_ids)
        for count, token in enumerate(token_ids[:room], start=1):
            if token in self.end_ids:
                self._over = True
                return count
        self._over = len(token_ids) >= room
        return min(room, len(token_ids))

    def result(self) -> Decoded:
        """Return the reply; raises ContractError if it has no token."""
        if not self._token_ids:
            raise ContractError("the arm returned no token")
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
        plain: name of the program's plain arm, which may be this one.
        steady: whether passes and drafts are the same in every run, independent of a clock.
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
        """Continue a prompt greedily from empty caches, up to `max_tokens` or an end id.

        Any exception is a failure of this arm on this prompt only.
        """

    def close(self) -> None:
        """Free the memory."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A missing arm, with the reason."""

    name: str
    reason: str


class UnavailableError(Exception):
    """A program cannot run this model here; the message has the reason and the remedy."""


EXTRA = "compare"
"""The extra that installs the other programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Inputs for other programs; they can be sent to another process.

    Attributes:
        path: the model's file or folder.
        options: fields of akunu's `LoadOptions`.
        context: akunu's limit of the context, in tokens.
        draft_path: a smaller model with the same vocabulary, if there is one.
        longest: most tokens of prompt and reply together.
        num_threads: threads of a program that computes on the CPU.
        on_gpu: whether MLX computes on a GPU; the others then use it, too, if they can.
        probe: token ids whose logits an arm compares with `logits` before it is measured.
        logits: akunu's logits after each of these, float32 [n, vocabulary].

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
        from akunu_py.models.load import LoadOptions, load_model  # imports MLX

        return load_model(self.path, LoadOptions(**self.options), context=self.context)

    def load_draft(self) -> "LoadedModel | None":
        """Load the draft model as akunu did, if there is one; raises as `load_model` does."""
        from akunu_py.models.load import LoadOptions, draft_options, load_model

        if self.draft_path is None:
            return None
        return load_model(
            self.draft_path, draft_options(self.draft_path, LoadOptions(**self.options))
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A program with arms.

    Attributes:
        name: value of --program.
        arms: the names of its arms.
        make: makes them, in the program's own process; raises UnavailableError if the program
            cannot run the model.

    """

    name: str
    arms: tuple[str, ...]
    make: Callable[[Subject], Sequence[Arm | Skipped]]
