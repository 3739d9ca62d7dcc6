"""The part "tests": akunu's own tests on Metal, as far as the time goes."""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from akunu_lab.machine.planning import CannotBeMeasuredError, PartRun, Subject
from akunu_lab.machine.privacy import Privacy
from akunu_lab.machine.report import REPORT_IT, Finding, PartFigures

_ROOT = Path(__file__).resolve().parents[3]
"""The checkout, where there is one."""
_FILES = (
    "tests/models/metal/test_product_choice.py",
    "tests/models/metal/test_few_rows.py",
    "tests/models/test_bit_equal_rows.py",
    "tests/models/test_quantized_models.py",
    "tests/engine/test_row_bits.py",
    "tests/engine/test_identity.py",
    "tests/engine/test_engine.py",
    "tests/engine/test_logprobs.py",
    "tests/engine/test_degradation.py",
    "tests/models/test_prompt_passes.py",
)
"""Those whose results the device computes, what matters most first."""
_LEAST_S = 60.0


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A test that failed, and the last line of its reason."""

    test: str
    said: str


@dataclass(frozen=True, slots=True)
class TestFigures(PartFigures):
    """What became of the tests."""

    section = "Does it compute what it should?"
    explanation = (
        "akunu's own tests of what the device computes: quantized weights, rows of a pass, whole "
        "replies. They compare with other programs' results and with each other."
    )
    passed: int
    skipped: int
    finished: bool
    """Whether there was time for all of them."""
    failed: tuple[FailedTest, ...]

    def answers(self) -> Iterator[str]:
        rest = "" if self.finished else "; there was no time for the rest"
        yield f"{self.passed} tests passed on this device and {len(self.failed)} failed{rest}."

    def findings(self) -> Iterator[Finding]:
        if self.failed:
            names = ", ".join(one.test for one in self.failed[:3])
            more = " and others" if len(self.failed) > 3 else ""
            yield Finding("error", f"tests failed on this device: {names}{more}", REPORT_IT)


def measure_tests(subject: Subject, run: PartRun) -> TestFigures:
    """Run the tests in a process of their own until the time is over."""
    del subject
    if sys.platform != "darwin":
        raise CannotBeMeasuredError("they are for Macs")
    files = [name for name in _FILES if (_ROOT / name).is_file()]
    if not files:
        raise CannotBeMeasuredError("they come with akunu's sources, not with its package")
    found: list[TestFigures] = []
    ends = max(run.seconds, _LEAST_S)
    begun = run.clock()
    for name in files:
        run.tell()
        left = ends - (run.clock() - begun)
        if left <= 0 or (one := _run_file(name, left)) is None:
            break
        found.append(one)
        run.so_far = _together(found, finished=False)
    return _together(found, finished=len(found) == len(files))


def _run_file(name: str, seconds: float) -> TestFigures | None:
    """Return what became of the tests of a file; None if they took longer."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [
            sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider",
            f"--junitxml={results}", name,
        ]  # fmt: skip
        try:
            subprocess.run(  # noqa: S603 - this Python, and akunu's own files
                command, cwd=_ROOT, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if not results.is_file():
            return TestFigures(
                0, 0, finished=True, failed=(FailedTest(name, "pytest did not run"),)
            )
        return results_of(results.read_text(encoding="utf-8"), Privacy.of_this_user(_ROOT))


def results_of(text: str, privacy: Privacy) -> TestFigures:
    """Read a file of results, which pytest writes in JUnit's form."""
    cases = list(ET.fromstring(text).iter("testcase"))  # noqa: S314 - see above
    failed = tuple(
        FailedTest(f"{case.get('classname')}::{case.get('name')}", privacy.clean(_reason(found)))
        for case in cases
        if (found := _first(case, "failure", "error")) is not None
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    return TestFigures(len(cases) - skipped - len(failed), skipped, finished=True, failed=failed)


def _first(case: ET.Element, *names: str) -> ET.Element | None:
    return next((found for name in names if (found := case.find(name)) is not None), None)


def _reason(found: ET.Element) -> str:
    return ((found.get("message") or "").strip().splitlines() or [""])[0][:200]


def _together(found: list[TestFigures], *, finished: bool) -> TestFigures:
    return TestFigures(
        sum(one.passed for one in found),
        sum(one.skipped for one in found),
        finished=finished,
        failed=tuple(failed for one in found for failed in one.failed),
    )
