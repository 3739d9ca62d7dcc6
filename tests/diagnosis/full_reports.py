"""Reports of `akunu doctor --full` from machines that are not here."""

from machines import FOLDERS, mac

from akunu_py.diagnosis.advice import findings
from akunu_py.diagnosis.facts import read_facts
from akunu_py.diagnosis.full.costs import CostFigures, SizeCost
from akunu_py.diagnosis.full.loading import LoadFigures, MemoryFigures
from akunu_py.diagnosis.full.parts import PARTS
from akunu_py.diagnosis.full.prefill import PrefillFigures, PrefillLength
from akunu_py.diagnosis.full.privacy import Privacy, describe_machine, published
from akunu_py.diagnosis.full.replies import ReplyFigures
from akunu_py.diagnosis.full.report import FullReport, ModelFacts, ReportPart
from akunu_py.diagnosis.full.row_bits import RowFigures
from akunu_py.diagnosis.full.run import conclusions
from akunu_py.diagnosis.full.speed import ArmSpeed, SpeedFigures
from akunu_py.diagnosis.full.start import StartFigures
from akunu_py.models.row_bits import RowDifference

GB = 10**9
MODEL = ModelFacts(
    "Qwen3-8B-Q4_K_M.gguf", "qwen3", 8_190_735_360, "GGUF, Q4_K", 5 * GB, "quantized", 40_960, True
)
PROFILE = """Graphics/Displays:

    Apple M4:

      Chipset Model: Apple M4
      Total Number of Cores: 10
      Displays:
        Joe's Studio Display:
          Resolution: 5120 x 2880 Retina
"""


def a_mac(**values):
    system = mac(**values)
    system.programs["system_profiler", "SPDisplaysDataType"] = PROFILE
    system.programs["sysctl", "-n", "hw.model"] = "Mac16,10"
    return system


def replies(temperature=0.0, reproducible=False, **changes):
    values = {
        "temperature": temperature, "reproducible": reproducible, "max_tokens": 64, "prompts": 30,
        "shipped": 176, "left_out": 0, "identical": 30, "drafted": 900, "accepted": 500,
        "differences": (),
    }  # fmt: skip
    return ReplyFigures(**{**values, **changes})


def arm(category, name, ratio=None, low=None, high=None, pairs=12):
    speed = 40.0 * (ratio or 1)
    return ArmSpeed(category, name, speed, ratio, low, high, pairs, pairs)


def size_cost(rows, cost, pays):
    return SizeCost(rows, 0.025 * cost, cost, 0.9 * cost, 1.1 * cost, pays, 0.9 * pays, 1.1 * pays)


FIGURES = {
    "memory": MemoryFigures(4096, 5 * GB, GB // 2, GB // 10, 22 * GB),
    "start": StartFigures((3.1, 1.4, 1.5)),
    "load": LoadFigures(0.9),
    "rows": RowFigures(False, True, (RowDifference(2, 32, 0, 0.0), RowDifference(5, 30, 30, 0.0125))),
    "costs": CostFigures(
        128, 0.025, 9,
        (size_cost(1, 1.0, 0.0), size_cost(2, 1.1, 0.1), size_cost(5, 1.5, 0.34), size_cost(9, 2.0, 0.5)),
        200e9, 5e9, 0.003,
    ),
    "greedy": replies(),
    "speed": SpeedFigures(96, (
        arm("edit", "mlx-lm"), arm("edit", "none", 1.01, 0.99, 1.03), arm("edit", "auto", 2.5, 2.1, 2.9),
        arm("prose", "mlx-lm"), arm("prose", "none", 1.0, 0.98, 1.02), arm("prose", "auto", 1.1, 1.0, 1.2),
    )),
    "reproducible": replies(reproducible=True),
    "sampled": replies(0.8),
    "prefill": PrefillFigures((PrefillLength(512, (0.6, 0.5, 0.55), 6 * GB, 6 * GB),)),
}  # fmt: skip


def report(system=None, model=MODEL, state="finished", **figures):
    """A report of a Mac; `figures` are other parts' ones, or a `ReportPart`."""
    system = system or a_mac()
    privacy = Privacy([], [])
    facts = published(read_facts(system, "1.2.3", FOLDERS), privacy)
    parts = {}
    for plan in PARTS:
        found = figures.get(plan.name, FIGURES[plan.name])
        parts[plan.name] = (
            found
            if isinstance(found, ReportPart)
            else ReportPart("measured", 1.0, 18.0, figures=found)
        )
    made = FullReport(
        started="2026-01-02T03:04:05+00:00", limit_s=300.0, machine=describe_machine(facts, system),
        parts=parts, model=model, state=state, seconds=290.0,
    )  # fmt: skip
    made.findings = conclusions(made, findings(facts, None))
    return made
