"""The part "speed": decoding next to mlx-lm's own loop."""

from collections.abc import Iterator
from dataclasses import dataclass

from akunu_lab.machine.planning import TIMED_TOKENS, PartRun, Subject, interleaved, shortened
from akunu_lab.machine.report import REPORT_IT, Finding, PartFigures
from akunu_py.api import Item, Ratio, run_speed

BASELINE = "mlx-lm"
CATEGORIES = ("edit", "prose")
"""The shipped categories that profit most and least from drafts."""
_ARMS = {BASELINE: "mlx-lm's loop", "none": "plain decoding", "auto": "decoding with drafts"}
_SLOWER = 0.97
"""Least promised share of mlx-lm's speed where nothing can be copied."""


@dataclass(frozen=True, slots=True)
class ArmSpeed:
    """One way of decoding over the prompts of a category."""

    category: str
    arm: str
    """ "mlx-lm", "none" (akunu without drafting) or "auto" (with drafting)."""
    tokens_per_s: float | None
    """Speed over all tokens after the first step; None if no time passed."""
    ratio: float | None
    """Ratio of the speed to mlx-lm's, median of the pairs, with `low` and `high`, the ends of its
    95 % interval; None with too few prompts for an interval, and for mlx-lm itself."""
    low: float | None
    high: float | None
    pairs: int
    """Number of prompts decoded both ways."""
    identical: int
    """Number of replies equal to mlx-lm's among these."""

    def ratio_text(self) -> str:
        """Return the ratio, which must be known, with its interval."""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class SpeedFigures(PartFigures):
    """Speed of decoding compared with mlx-lm's own loop, in turns."""

    section = "Is it faster?"
    explanation = (
        "mlx-lm's own loop, akunu without drafting (*none*), and akunu with its default drafting "
        "(*auto*) decode the same prompts in turns, so that heat or other work slows all three "
        "alike. Replies are greedy; prefill is not counted. *Ratio* is the median over the prompts "
        "of the speed divided by that of mlx-lm's loop. *Edits* repeat much of their prompt, "
        "*prose* little: drafting should speed up edits and not slow down prose. *Identical* "
        "replies, of so many *pairs*, have the same tokens as mlx-lm's; where passes round "
        "differently, near-ties may differ."
    )
    max_tokens: int
    arms: tuple[ArmSpeed, ...]

    def answers(self) -> Iterator[str]:
        for arm in self.arms:
            if arm.arm == BASELINE:
                continue
            found = (
                f"not enough items ({arm.pairs}) to compare with mlx-lm's loop"
                if arm.ratio is None
                else f"{arm.ratio_text()} times the speed of mlx-lm's loop"
            )
            yield f"{_ARMS[arm.arm].capitalize()}, {arm.category} prompts: {found}."

    def findings(self) -> Iterator[Finding]:
        for arm in self.arms:
            if arm.high is not None and arm.high < _SLOWER:
                yield Finding(
                    "warning",
                    f"{_ARMS[arm.arm]} of {arm.category} prompts ran at {arm.ratio_text()} times "
                    "the speed of mlx-lm's loop",
                    f"Let nothing else run and measure again. {REPORT_IT}",
                )

    def lacks_ratios(self) -> bool:
        return any(arm.ratio is None for arm in self.arms if arm.arm != BASELINE)


def measure_speed(subject: Subject, run: PartRun) -> SpeedFigures:
    """Decode prompts with mlx-lm's loop and with akunu in turns, until the time is over."""
    engine, pace = subject.ready()
    max_tokens = pace.timed_tokens(run.seconds)
    items, _ = Item.encoded(interleaved(CATEGORIES), engine.tokenizer, engine.context)
    engine.compares_rows = False
    report = run_speed(
        engine,
        items,
        drafters=[arm for arm in _ARMS if arm != BASELINE],
        max_tokens=max_tokens,
        with_costs=not subject.has_costs,
        progress=lambda _done, _total: run.tell(),
        until=run.is_over,
    )
    engine.compares_rows = True
    arms: list[ArmSpeed] = []
    for category in CATEGORIES:
        for arm in report.of_category(category).figures():
            of_mlx_lm = arm["median_ratio"]
            ratio = Ratio(None, None, None, 0) if arm["arm"] == BASELINE else of_mlx_lm
            arms.append(
                ArmSpeed(
                    category=category,
                    arm=arm["arm"],
                    tokens_per_s=arm["tokens_per_s"],
                    ratio=ratio.ratio,
                    low=ratio.low,
                    high=ratio.high,
                    pairs=arm["pairs"],
                    identical=arm["identical"],
                )
            )
    figures = SpeedFigures(max_tokens, tuple(arms))
    if not report.finished:
        run.so_far = figures if arms else None
        raise KeyboardInterrupt
    done = sum(arm.pairs for arm in arms if arm.arm == BASELINE)
    fewer = f"{done} of {len(items)} prompts" if done < len(items) else ""
    run.note = ", ".join(filter(None, [fewer, shortened(max_tokens, TIMED_TOKENS)]))
    return figures
