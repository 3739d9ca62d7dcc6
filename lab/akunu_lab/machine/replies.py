"""The parts "greedy", "sampled" and "reproducible": whether drafting changes replies."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from akunu_lab.machine.planning import (
    COMPARED_TOKENS,
    CannotBeMeasuredError,
    PartRun,
    Subject,
    interleaved,
    shortened,
)
from akunu_lab.machine.report import REPORT_IT, Finding, PartFigures
from akunu_py.api import (
    ArmFigures,
    ConfigError,
    Engine,
    EngineArm,
    GenerationConfig,
    Item,
    run_arms,
)

_OFF, _ON = "off", "on"


@dataclass(frozen=True, slots=True)
class ChangedReply:
    """A reply that drafting changed."""

    prompt: str
    token: int
    """Index of the first different token."""
    margin: float | None
    """Distance between the two highest logits there, known only at temperature 0."""
    row_bits: str = "unknown"
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
    engine, pace = subject.ready()
    if subject.facts is not None and not subject.facts.drafting:
        raise CannotBeMeasuredError("nothing is drafted for it: its caches cannot go back")
    if reproducible:
        # In the place of the other one: there may be no room for the weights of both.
        engine.close()
        subject.engine = engine = Engine.load(subject.path, reproducible=True)
    max_tokens = pace.compared_tokens(run.seconds)
    drafted = GenerationConfig(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=0,
        drafter="auto",
        draft_budget="always",
    )
    plain = replace(drafted, drafter="none", draft_budget=GenerationConfig().draft_budget)
    prompts = interleaved()
    items, failures = Item.encoded(prompts, engine.tokenizer, engine.context)
    arms = [
        EngineArm(name, engine, config, plain=_OFF)
        for name, config in ((_OFF, plain), (_ON, drafted))
    ]
    done = run_arms(arms, items, progress=lambda _done, _total: run.tell(), until=run.is_over)
    both = ArmFigures.of((one for one in done.items if len(one.replies) == len(arms)), _ON)
    # Only now: passes for margins would disturb the clocks and caches of replies still to come.
    margins = done.finished and not temperature
    identity = both.identity(_OFF, engine.logits if margins else None)
    answered = {one.item.id: one.replies[_ON] for one in both.runs}
    failures += done.failures
    figures = ReplyFigures(
        temperature=temperature,
        reproducible=reproducible,
        max_tokens=max_tokens,
        prompts=len(answered),
        shipped=len(prompts),
        left_out=len(failures),
        identical=identity.identical,
        drafted=both.stats.drafted,
        accepted=both.stats.accepted,
        differences=tuple(
            ChangedReply(name, found.index, found.margin, answered[name].row_bits)
            for name, found in identity.differences.items()
        ),
    )
    if not done.finished:
        run.so_far = figures if answered else None
        raise KeyboardInterrupt
    if not answered and failures:
        raise ConfigError(f"no prompt could be answered: {failures[0].error}")
    run.note = shortened(max_tokens, COMPARED_TOKENS)
    return figures
