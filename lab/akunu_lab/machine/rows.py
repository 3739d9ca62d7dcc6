"""The part "rows": whether what follows a token has the same bits whatever else is in its pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_lab.machine.planning import SIZES, PartRun, Subject
from akunu_lab.machine.report import Finding, PartFigures
from akunu_py.api import Draft, Engine

_STRIDE = 7919
"""A prime step between ids, so that they are far apart as in a text."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A text read in passes of `rows` positions, compared with the same text read one by one."""

    rows: int
    compared: int
    different: int
    """Positions behind which some probability differs in some bit."""
    largest: float
    """The largest difference of a probability; not finite if one of them is not."""


@dataclass(frozen=True, slots=True)
class RowFigures(PartFigures):
    """Whether probabilities are bit-equal regardless of the other rows in a pass."""

    section = "Does drafting change the text?"
    explanation = (
        "A draft of n tokens is checked in one pass over n + 1 rows. *Equal* says whether the "
        "probabilities that rows give have the same bits in passes of several rows as in passes "
        "of one, behind no text and behind one of *context* tokens. By the *rows* of a pass: how "
        "many rows of a short text were *compared*, how many were *different* in any bit, and the "
        "largest difference of a probability."
    )
    equal: bool
    by_size: tuple[RowDifference, ...]
    context: int = 0
    """The longest text behind which rows were compared for `equal`, in tokens."""

    def answers(self) -> Iterator[str]:
        yield (
            "Rows of a pass are bit-equal to rows fed alone, at the beginning of a text"
            f"{f' and behind {self.context:,} tokens' if self.context else ''}, so drafting should "
            "not change any token there."
            if self.equal
            else "Rows of a pass are not bit-equal to rows fed alone, so drafting can change the "
            "choice between two tokens that are almost equally likely."
        )

    def findings(self) -> Iterator[Finding]:
        if not self.equal:
            yield Finding(
                "note",
                "what a row gives depends on how many rows are in its pass: where two tokens are "
                "almost equally likely, drafting can change which one is chosen",
                "Where drafting must not change a token, give --reproducible.",
            )


def measure_rows(subject: Subject, run: PartRun) -> RowFigures:
    """Compare the bits of rows fed together with rows fed alone."""
    engine, pace = subject.ready()
    sizes = [size for size in pace.compared_sizes(run.seconds) if size < engine.context]
    if len(sizes) < len(SIZES):
        run.note = f"passes of more than {sizes[-1]} rows were left out"
    alone = _probabilities(engine, 0, (1,) * sizes[-1])
    found: list[RowDifference] = []
    for size in sizes:
        run.tell()
        whole = sizes[-1] // size
        found.append(_difference(size, _probabilities(engine, 0, (size,) * whole), alone))
    # Rows may differ only behind a long text, as where it exceeds a sliding window.
    behind = pace.longest_text(run.seconds, engine.context - sizes[-1] - 1)
    if behind:
        run.tell()
        alone = _probabilities(engine, behind, (1,) * sizes[-1])
        together = _probabilities(engine, behind, (sizes[-1],))
        equal = not _difference(sizes[-1], together, alone).different
    else:
        equal = True
    return RowFigures(equal and not any(one.different for one in found), tuple(found), behind)


def _difference(size: int, rows: NDArray[np.float64], alone: NDArray[np.float64]) -> RowDifference:
    # As bytes: a NaN is equal to itself, and -0 is not 0.
    pairs = zip(rows, alone, strict=False)
    different = sum(row.tobytes() != one.tobytes() for row, one in pairs)
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(rows - alone[: len(rows)]).max()) if different else 0.0
    return RowDifference(size, len(rows), different, largest)


def _probabilities(engine: Engine, behind: int, sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return what follows each token behind a text, in passes of these sizes, [sum, vocabulary]."""
    ids = [(1 + number * _STRIDE) % engine.vocabulary_size for number in range(behind + sum(sizes))]
    pieces: list[NDArray[np.float64]] = []
    with engine.lend("rows are measured") as model:
        for size in sizes:
            end = behind + size
            model.read(ids[: behind + 1])
            pieces.append(model.distributions(Draft.chain(ids[behind + 1 : end])))
            behind = end
    return np.concatenate(pieces)
