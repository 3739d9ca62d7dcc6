"""Other programs: what their arms are made from, and why one is missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.runner import Arm

if TYPE_CHECKING:
    # The process of a program without MLX does not import it.
    from akunu_py.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class Skipped:
    """A missing arm, with the reason."""

    name: str
    reason: str


class UnavailableError(Exception):
    """A program cannot run this model here; the message has the reason and the remedy."""


EXTRA = "compare"
PACKAGE = "akunu-lab"
"""The extra that installs the other programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModel:
    """Inputs for other programs; they can be sent to another process.

    Attributes:
        path: the model's file or folder.
        options: fields of akunu's `LoadOptions`.
        context: akunu's limit of the context, in tokens.
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
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    draft_path: Path | None = None
    longest: int
    max_tokens: int
    end_ids: frozenset[int]
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
    make: Callable[[ComparedModel], Sequence[Arm | Skipped]]
