"""Other programs: what their arms are made from, and why one is missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # The process of a program without MLX does not import it.
    from akunu_py.api import Arm, Engine


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
class ComparedModel:
    """Inputs for other programs; they can be sent to another process.

    Attributes:
        path: the model's file or folder.
        options: akunu's options of loading, those of the draft model too.
        draft_path: a smaller model with the same vocabulary, if there is one.
        longest: most tokens of prompt and reply together.
        max_tokens: most tokens of a reply.
        end_ids: ids that end one.
        num_threads: threads of a program that computes on the CPU.
        on_gpu: whether MLX computes on a GPU; the others then use it, too, if they can.
        probe: token ids whose logits an arm compares with `logits` before it is measured.
        logits: akunu's logits after each of these, float32 [n, vocabulary].

    """

    path: Path
    options: Any = None
    draft_path: Path | None = None
    longest: int
    max_tokens: int
    end_ids: frozenset[int]
    num_threads: int = 1
    on_gpu: bool = False
    probe: tuple[int, ...]
    logits: NDArray[np.float32]

    def load(self, *, drafts: bool = False) -> "Engine":
        """Load the model as akunu did, and the draft model where it `drafts`.

        Raises as `Engine.load` does.
        """
        from akunu_py.api import Engine  # imports MLX

        draft = self.draft_path if drafts else None
        return Engine.load(self.path, self.options, draft_model=draft)


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
    make: Callable[[ComparedModel], "Sequence[Arm | Skipped]"]
