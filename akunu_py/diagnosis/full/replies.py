"""The parts "greedy", "sampled" and "reproducible": whether drafting changes replies."""

from collections.abc import Iterator
from dataclasses import dataclass

from akunu_py.bench.hit_rate import ON, run_hit_rate
from akunu_py.bench.workloads import CATEGORIES
from akunu_py.diagnosis.advice import Finding
from akunu_py.diagnosis.full.planning import (
    COMPARED_TOKENS,
    CannotBeMeasuredError,
    PartRun,
    Subject,
    interleaved,
    shortened,
)
from akunu_py.diagnosis.full.report import REPORT_IT, PartFigures
from akunu_py.engine.engine import Engine
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import GenerationConfig, RowBits


@dataclass(frozen=True, slots=True)
class ChangedReply:
    """A reply that drafting changed."""

    prompt: str
    token: int
    """Index of the first different token."""
    margin: float | None
    """Distance between the two highest logits there, known only at temperature 0."""
    row_bits: RowBits = "unknown"
    """What the drafted reply says."""


@dataclass(frozen=True, slots=True)
class ReplyFigures(PartFigures):
    """Comparison of replies with and without drafting."""

    section = "Does drafting change the text?"
    explanation = (
        "Each prompt is answered with and without drafting, and *identical* replies have the same "
        "tokens. akunu drafts whatever it can here, whether that saves time or not, so that as "
        "many passes as possible have several rows. *Reproducible* replies are greedy and use "
        "`--reproducible`, which promises the same tokens. Where two replies differ, *token* is "
        "the first different one, and *margin* the distance between the two highest logits there: "
        "near 0 it was a near-tie, far from 0 something is wrong."
    )
    of_several_parts = True
    temperature: float
    reproducible: bool
    max_tokens: int
    prompts: int
    """Number of prompts answered both ways, of the `shipped` ones."""
    shipped: int
    left_out: int
    """Prompts without an answer, for example because they exceed the context."""
    identical: int
    drafted: int
    """Drafted and verified tokens."""
    accepted: int
    differences: tuple[ChangedReply, ...]

    def _kind(self) -> str:
        return "reproducible" if self.reproducible else "sampled" if self.temperature else "greedy"

    def answers(self) -> Iterator[str]:
        if self.prompts:
            yield (
                f"{self.identical} of {self.prompts} {self._kind()} replies are the same with and "
                "without drafting."
            )

    def findings(self) -> Iterator[Finding]:
        if not self.differences:
            return
        promised = self.reproducible or any(one.row_bits == "equal" for one in self.differences)
        yield Finding(
            "error" if promised else "warning",
            f"drafting changed {len(self.differences)} of {self.prompts} {self._kind()} replies",
            REPORT_IT
            if promised
            else "Give --reproducible where drafting must not change a token.",
        )


def measure_replies(
    subject: Subject, run: PartRun, *, temperature: float = 0.0, reproducible: bool = False
) -> ReplyFigures:
    """Answer prompts with and without drafting until the time is over.

    As much as possible is drafted, so that many passes have several positions.
    """
    loaded, pace = subject.ready()
    if subject.facts is not None and not subject.facts.drafting:
        raise CannotBeMeasuredError("nothing is drafted for it: its caches cannot go back")
    prompts = interleaved(CATEGORIES)
    max_tokens = pace.compared_tokens(run.seconds)
    config = GenerationConfig(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=0,
        drafter="auto",
        draft_budget="always",
    )
    with Engine(loaded, EngineOptions(reproducible=reproducible)) as engine:
        report = run_hit_rate(
            engine,
            prompts,
            config,
            progress=lambda done, _total: run.tell(f"{done} replies"),
            until=run.is_over,
        )
    total, stats = report.total, report.total.on.stats
    answered = {one.item.id: one.replies[ON] for one in report.runs}
    figures = ReplyFigures(
        temperature=temperature,
        reproducible=reproducible,
        max_tokens=max_tokens,
        prompts=len(answered),
        shipped=len(prompts),
        left_out=len(report.failures),
        identical=total.num_identical or 0,
        drafted=stats.drafted,
        accepted=stats.accepted,
        differences=tuple(
            ChangedReply(name, found.index, found.margin, answered[name].row_bits)
            for name, found in (report.differences or {}).items()
        ),
    )
    if not report.finished:
        run.so_far = figures if answered else None
        raise KeyboardInterrupt
    if not answered and report.failures:
        raise ConfigError(f"no prompt could be answered: {report.failures[0].error}")
    run.note = shortened(max_tokens, COMPARED_TOKENS)
    return figures
