"""Reports of `akunu bench machine` from machines that are not here."""

from akunu_lab.machine.costs import CostFigures, SizeCost
from akunu_lab.machine.facts import published
from akunu_lab.machine.loading import LoadFigures, MemoryFigures, RacedProduct
from akunu_lab.machine.metal import TestFigures
from akunu_lab.machine.parts import PARTS
from akunu_lab.machine.peers import PeerFigures, PeerSpeed
from akunu_lab.machine.prefill import PrefillFigures, PrefillLength
from akunu_lab.machine.privacy import Privacy
from akunu_lab.machine.replies import ReplyFigures
from akunu_lab.machine.report import FullReport, ModelFacts, ReportPart
from akunu_lab.machine.rows import RowDifference, RowFigures
from akunu_lab.machine.run import conclusions
from akunu_lab.machine.speed import ArmSpeed, SpeedFigures
from akunu_lab.machine.start import StartFigures

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


MAC = {
    "system": "macOS 26.1", "machine": "arm64", "chip": "Apple M4", "processors": 10,
    "memory_bytes": 32 * 2**30, "load": 0.5, "wired_limit_bytes": None,
    "working_set_bytes": 22_906_503_168, "translated": False, "low_power": False,
    "backend": "metal", "device": "Apple M4", "nvidia": [], "both_wheels": False, "blas": None,
    "no_kernels": None, "versions": {"akunu": "1.2.3", "mlx-lm": "1.0", "numpy": None}, "needed": {},
    "folders": [{"purpose": "settings", "path": "/home/u/.config", "writable": True}],
    "self_test": None,
    "findings": [{"severity": "note", "text": "Metal recommends 22.9 GB", "advice": "Know it."}],
}  # fmt: skip
"""What `akunu doctor` says of an M4."""
PROGRAMS = {"model": "Mac16,10", "displays": PROFILE}


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
    "tests": TestFigures(150, 3, finished=True, failed=()),
    "peers": PeerFigures(48, (
        PeerSpeed("mlx-lm-plain", "mlx-lm 1.0", 40.0, 500.0, None, None, None),
        PeerSpeed("llama.cpp-plain", "llama.cpp 11549", 38.0, 450.0, 0.95, 0.9, 1.0),
    )),
    "start": StartFigures((3.1, 1.4, 1.5)),
    "load": LoadFigures(0.9, (
        RacedProduct("4 bits, 4096 x 4096: akunu's for rows 2-8", "rows 1 2: MLX 1.00 1.20"),
        RacedProduct("8 bits, 4096 x 512: MLX's", "rows 1 2: MLX 1.00 1.10"),
    )),
    "rows": RowFigures(False, (RowDifference(2, 32, 0, 0.0), RowDifference(5, 30, 30, 0.0125))),
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


def report(said=MAC, programs=PROGRAMS, model=MODEL, state="finished", **figures):
    """A report of a Mac; `figures` are other parts' ones, or a `ReportPart`."""
    facts = published(said, Privacy([], []), programs)
    parts = {}
    for plan in PARTS:
        found = figures.get(plan.name, FIGURES[plan.name])
        parts[plan.name] = (
            found
            if isinstance(found, ReportPart)
            else ReportPart("measured", 1.0, 18.0, figures=found)
        )
    made = FullReport(
        started="2026-01-02T03:04:05+00:00", limit_s=300.0, machine=facts.machine,
        parts=parts, model=model, state=state, seconds=290.0,
    )  # fmt: skip
    made.findings = conclusions(made, facts)
    return made
