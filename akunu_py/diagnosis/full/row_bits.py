"""The part "rows": whether a row's logits have the same bits whatever else is in its pass."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from akunu_py.diagnosis.advice import Finding
from akunu_py.diagnosis.full.planning import PartRun, Subject
from akunu_py.diagnosis.full.report import REPORT_IT, PartFigures
from akunu_py.models.cached_rows import BLOCK_ROWS, usable_context
from akunu_py.models.pass_times import ROWS
from akunu_py.models.row_bits import RowDifference
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RowFigures(PartFigures):
    """Whether a row's logits are bit-equal regardless of the other rows in its pass."""

    section = "Does drafting change the text?"
    explanation = (
        "A draft of n tokens is checked in one pass over n + 1 rows. *Equal* says whether the "
        "logits of rows have the same bits in passes of several rows as in passes of one, behind "
        "no text and behind one of *context* tokens; *reproducible equal* says it of reproducible "
        "passes. By the *rows* of a pass: how many rows of a short text were *compared*, how many "
        "were *different* in any bit, and the largest difference of a logit."
    )
    equal: bool
    reproducible_equal: bool | None
    """None if the model has no reproducible passes."""
    by_size: tuple[RowDifference, ...]
    context: int = 0
    """The longest text behind which rows were compared for `equal`, in tokens."""

    @property
    def different_sizes(self) -> tuple[int, ...]:
        """Sizes of passes in which a row differs."""
        return tuple(found.rows for found in self.by_size if found.different)

    def answers(self) -> Iterator[str]:
        yield (
            "Rows of a pass are bit-equal to rows fed alone, at the beginning of a text"
            f"{f' and behind {self.context:,} tokens' if self.context else ''}, so drafting should "
            "not change any token there."
            if self.equal and not self.different_sizes
            else "Rows of a pass are not bit-equal to rows fed alone, so drafting can change the "
            "choice between two tokens that are almost equally likely."
        )

    def findings(self) -> Iterator[Finding]:
        if not self.equal:
            yield Finding(
                "note",
                "a row's logits depend on how many rows are in its pass: where two tokens are "
                "almost equally likely, drafting can change which one is chosen",
                "Where drafting must not change a token, give --reproducible.",
            )
        elif self.different_sizes:
            listed = ", ".join(map(str, self.different_sizes))
            yield Finding(
                "error",
                f"rows seem to be bit-equal, and in passes of {listed} rows they are not: what "
                "replies say of them (row_bits) may be wrong",
                REPORT_IT,
            )
        if self.reproducible_equal is False:
            yield Finding("error", "rows of reproducible passes are not bit-equal", REPORT_IT)


def measure_rows(subject: Subject, run: PartRun) -> RowFigures:
    """Compare the bits of rows fed together with rows fed alone."""
    loaded, pace = subject.ready()
    longest = loaded.description.context
    sizes = pace.compared_sizes(run.seconds)
    if len(sizes) < len(ROWS):
        run.note = f"passes of more than {sizes[-1]} rows were left out"
    # Rows may differ only behind a long text, as where it exceeds a sliding window.
    behind = pace.longest_text(run.seconds, longest - sizes[-1])
    with contextlib.closing(Session(loaded.model, context=longest)) as session:
        if behind:
            run.tell(f"a text of {behind:,} tokens")
            session.logits([token % session.vocabulary_size for token in range(behind)], behind - 1)
        run.tell("passes of several sizes")
        equal = session.bit_equal_to(sizes[-1]) > 0
        by_size = session.row_differences(sizes)
    reproducible: bool | None = None
    with contextlib.suppress(ConfigError):
        usable = usable_context(None, longest, BLOCK_ROWS)
        with contextlib.closing(
            Session(loaded.model, context=usable, reproducible=True)
        ) as session:
            run.tell("reproducible passes")
            reproducible = session.bit_equal_to(sizes[-1]) > 0
    return RowFigures(equal, reproducible, by_size, behind)
