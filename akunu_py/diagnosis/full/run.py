"""The run of `akunu doctor --full`: one part after another, within the planned time."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from akunu_py.bench.result_file import utc_now
from akunu_py.diagnosis.advice import Finding, findings
from akunu_py.diagnosis.facts import Facts
from akunu_py.diagnosis.full import measure
from akunu_py.diagnosis.full.conclusions import conclusions
from akunu_py.diagnosis.full.measure import (
    Bench,
    CannotBeMeasuredError,
    PartInterruptedError,
    Turn,
)
from akunu_py.diagnosis.full.privacy import Privacy
from akunu_py.diagnosis.full.report import NO_TIME, Machine, Part, PartName, Report
from akunu_py.diagnosis.system import System
from akunu_py.model_store.default_model import is_toy
from akunu_py.system.errors import AkunuError

SECONDS = 300.0
"""Planned time of all parts; a model that loads slowly leaves less time for the others."""

Keep = Callable[[Report], None]
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned part.

    Attributes:
        name: name in the report.
        title: title in the progress bar.
        share: weight of its time among all parts.
        measure: function that measures it.
        needs_model: whether it is skipped if the model could not be loaded.

    """

    name: PartName
    title: str
    share: float
    measure: Callable[[Bench, Turn], object]
    needs_model: bool = True


# The most valuable parts come first: the time may be over before the last one.
PLANS = (
    Plan("memory", "memory the model needs", 1, measure.memory, needs_model=False),
    Plan("start", "start of a process", 9, measure.start, needs_model=False),
    Plan("load", "loading the model", 4, measure.load, needs_model=False),
    Plan("rows", "bits of rows", 6, measure.rows),
    Plan("prefill", "reading prompts", 6, measure.prefill),
    Plan("costs", "what passes cost", 12, measure.costs),
    Plan("greedy", "drafted against plain, greedy", 14, measure.greedy),
    Plan("speed", "next to mlx-lm", 28, measure.speed),
    Plan("reproducible", "drafted against plain, reproducible", 12, measure.reproducible),
    Plan("sampled", "drafted against plain, sampled", 8, measure.sampled),
)


def run_full(
    path: Path,
    facts: Facts,
    system: System,
    *,
    privacy: Privacy,
    keep: Keep,
    tell: Tell = lambda _text, _share: None,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """Measure every part of the report for the model at `path`, in about `seconds`.

    A part that fails becomes a finding, and the next part follows. After an interrupt
    (KeyboardInterrupt) the report has the figures so far. `keep` gets the report before each part
    and at the end, so that it is on disk if the process is killed. `tell` gets the current activity
    and the elapsed share of the time.
    """
    facts = published(facts, privacy)
    known = findings(facts, None)
    if is_toy(path):
        known.append(
            Finding(
                "note",
                "akunu-tiny is a toy: its figures say little of a real model",
                "Measure a real one: akunu models pull smollm2",
            )
        )
    report = Report(
        started=utc_now(),
        limit_s=seconds,
        machine=describe_machine(facts, system),
        parts={plan.name: Part() for plan in PLANS},
    )
    bench = Bench(path)
    began = clock()

    def keep_all() -> None:
        if bench.model is not None:
            report.model = replace(bench.model, name=privacy.clean(bench.model.name))
        report.seconds = clock() - began
        report.findings = conclusions(report, known)
        keep(report)

    def tell_of(plan: Plan) -> Callable[[str], None]:
        def told(text: str) -> None:
            words = f"{plan.title}: {text}" if text else plan.title
            tell(words, min(1.0, (clock() - began) / seconds))

        return told

    try:
        for number, plan in enumerate(PLANS):
            left = seconds - (clock() - began)
            share = plan.share / sum(later.share for later in PLANS[number:])
            turn = Turn(max(0.0, left) * share, tell_of(plan), clock)
            part = report.parts[plan.name]
            part.budget_s = turn.seconds
            if plan.needs_model and bench.pace is None:
                part.state, part.note = "skipped", "the model was not loaded"
                continue
            if plan.needs_model and left <= 0:
                part.state, part.note = "skipped", NO_TIME
                continue
            part.state = "running"
            keep_all()
            turn.tell("")
            measure_part(plan, bench, turn, part, privacy)
        report.state = "finished"
    except KeyboardInterrupt:
        report.state = "interrupted"
        for part in report.parts.values():
            if part.state == "waiting":
                part.state, part.note = "skipped", "the run was interrupted"
    keep_all()
    return report


def published(facts: Facts, privacy: Privacy) -> Facts:
    """Return facts without private parts: locations of folders, and paths in texts of MLX."""
    blas = facts.blas
    if blas is not None:
        blas = replace(blas, name=privacy.clean(blas.name), reason=privacy.clean(blas.reason))
    system = privacy.clean(facts.system)
    return replace(facts, system=system, device=privacy.clean(facts.device), blas=blas, folders=())


def describe_machine(facts: Facts, system: System) -> Machine:
    """Return the machine as it stands in the report, from facts that may be published."""
    is_mac = system.name == "Darwin"
    displays = system.output("system_profiler", "SPDisplaysDataType") if is_mac else None
    cores = re.search(r"Total Number of Cores:\s*(\d+)", displays or "")
    return Machine(
        system=facts.system,
        machine=facts.machine,
        chip=facts.chip,
        mac_model=(system.output("sysctl", "-n", "hw.model") or None) if is_mac else None,
        gpu_cores=int(cores[1]) if cores else None,
        processors=facts.processors,
        load=system.load(),
        memory_bytes=facts.memory_bytes,
        wired_limit_bytes=facts.wired_limit_bytes,
        working_set_bytes=facts.working_set_bytes,
        translated=facts.translated,
        low_power=facts.low_power,
        backend=facts.backend,
        device=facts.device,
        blas=None if facts.blas is None else facts.blas.name,
        versions=facts.versions,
    )


def measure_part(plan: Plan, bench: Bench, turn: Turn, part: Part, privacy: Privacy) -> None:
    """Measure one part and note errors. Raises KeyboardInterrupt after an interrupt."""
    began = turn.clock()
    try:
        part.figures = plan.measure(bench, turn)
        part.state, part.note = "measured", turn.note
    except CannotBeMeasuredError as reason:
        part.state, part.note = "skipped", str(reason)
    except PartInterruptedError as interrupted:
        part.state, part.figures = "interrupted", interrupted.figures
        raise KeyboardInterrupt from None
    except KeyboardInterrupt:
        part.state = "interrupted"
        raise
    except Exception as error:  # noqa: BLE001 - any error is reported, and the other parts follow
        part.state, part.refused = "failed", isinstance(error, AkunuError)
        said = str(error) if part.refused else f"{type(error).__name__}: {error}"
        part.note = privacy.clean(said)
    finally:
        part.seconds = turn.clock() - began
