"""The part "peers": other programs on the same weights and prompts, by `akunu bench compare`."""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from akunu_lab.machine.asked import ask
from akunu_lab.machine.planning import CannotBeMeasuredError, PartRun, Subject
from akunu_lab.machine.report import NO_TIME, PartFigures

_BASELINE = "mlx-lm-plain"
_LEAST_S = 40.0
"""A budget in seconds from which it is worth beginning, and how much longer it may take."""
_PATIENCE = 1.5


@dataclass(frozen=True, slots=True)
class PeerSpeed:
    """One program's way of decoding, over all prompts."""

    arm: str
    program: str
    tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    ratio: float | None
    """Of its decoding speed to mlx-lm's plain one, with the ends of its 95 % interval."""
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class PeerFigures(PartFigures):
    """Speeds of programs, in turns on the same prompts."""

    section = "And other programs?"
    explanation = (
        "`akunu bench compare --quick`: each program decodes the same prompts greedily, in a "
        "process of its own, with another one first each time. *Ratio* is the speed of decoding "
        "divided by mlx-lm's, without the prompts."
    )
    max_tokens: int
    arms: tuple[PeerSpeed, ...]

    def answers(self) -> Iterator[str]:
        for name in ("llama.cpp-plain", "akunu-auto"):
            for arm in self.arms:
                if arm.arm == name and arm.ratio is not None:
                    yield (
                        f"{name} decodes {arm.ratio:.2f} ({arm.low:.2f} to {arm.high:.2f}) times "
                        "as fast as mlx-lm."
                    )


def measure_peers(subject: Subject, run: PartRun) -> PeerFigures:
    """Compare with the programs that are installed; mlx-lm always is."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise CannotBeMeasuredError("llama.cpp is not here: pip install xllamacpp adds it")
    if run.seconds < _LEAST_S:
        raise CannotBeMeasuredError(NO_TIME)
    run.tell()
    said = ask(
        "bench", "compare", str(subject.path), "--quick", "--drafter", "auto",
        "--program", "mlx-lm", "--program", "llama.cpp", limit_s=_PATIENCE * run.seconds,
    )  # fmt: skip
    return figures_of(said)


def figures_of(said: Mapping[str, Any]) -> PeerFigures:
    """Read what `akunu bench compare --json` says."""
    timing = said["timing"]
    arms = []
    for name, arm in timing["arms"].items():
        ratio = timing["ratios"].get(f"{name}/{_BASELINE}", {})
        arms.append(
            PeerSpeed(
                arm=name,
                program=arm["program"],
                tokens_per_s=arm["tokens_per_s"],
                prompt_tokens_per_s=arm["prompt_tokens_per_s"],
                ratio=ratio.get("ratio"),
                low=ratio.get("low"),
                high=ratio.get("high"),
            )
        )
    return PeerFigures(int(said["arguments"]["max_tokens"]), tuple(arms))
