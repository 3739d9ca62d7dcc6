"""Cells: a drafter with its settings, of which replays and sweeps compare many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from akunu_lab.replay.baseline import baselines
from akunu_py.api import DrafterKind, GenerationConfig

Setting = int | float | str | None


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting in which cells may differ."""

    heading: str
    option: str = ""
    """The option of `akunu generate` for its value."""
    short: str = ""
    """The heading of a narrow column, if another."""
    most: int | None = None
    """The largest of its numbers, which begin at 1; None for other values."""
    default: Setting = None
    """Of a method of drawing and accepting; cells have those only in a sweep that varies them."""


AXES: Mapping[str, Axis] = {
    "num_draft_tokens": Axis("draft tokens", "num-draft-tokens", "up\nto", most=64),
    "order": Axis("order", "ngram-order", most=16),
    "window": Axis("window", "ngram-window", most=1_000_000),
    "min_match": Axis("least match", "ngram-min-match", "least\nmatch", most=15),
    "draft_length": Axis("length rule", short="length"),
    "draft_sampling": Axis("sampling", "draft-sampling", default="coupled"),
    "num_proposals": Axis("proposals", "num-proposals", "pro-\nposals", most=8, default=1),
    "lenience": Axis("lenience (below 1 not exact)", "lenience", "leni-\nence", default=1.0),
    "adjust": Axis("residual adjusted (no: not exact)", short="adjust", default="yes"),
}
"""Axes besides the drafter, by the names of `Cell`'s fields."""

METHODS = {name: axis.default for name, axis in AXES.items() if axis.default is not None}


@dataclass(frozen=True, slots=True)
class Cell:
    """One drafter with all of its settings; None for a setting that it lacks.

    `draft_length` is what ends a draft. `fixed` drafts the cell's number of tokens, `budget` as
    many as pay by measured costs, which a replay does not have. `entropy` and `lower-bound` need a
    drafter that draws from probabilities. Under all rules but `budget` nothing else ends a draft.
    """

    drafter: str
    num_draft_tokens: int | None = None
    order: int | None = None
    window: int | None = None
    min_match: int | None = None
    draft_length: str | None = None
    draft_sampling: str | None = None
    num_proposals: int | None = None
    lenience: float | None = None
    adjust: str | None = None
    curve: str = ""
    """The name of the cost curve that it drafts by; "": none, or the only one of the run."""

    @property
    def is_exact(self) -> bool:
        """Whether its replies have at least the distribution of plain decoding."""
        return self.lenience in {None, 1} and self.adjust != "no"

    @property
    def key(self) -> str:
        """A unique text for the cell: "ngram num_draft_tokens=4 order=4 min_match=1".

        A cell that is not exact is marked.
        """
        settings = (
            f"{name}={self.setting(name)}"
            for name in (*AXES, "curve")
            if self.setting(name) not in {None, ""}
        )
        return " ".join((self.drafter, *settings, *self._not_exact))

    @property
    def options(self) -> str:
        """The cell as a variable and options of `akunu generate`."""
        options = [f"--drafter {self.drafter}"]
        for name, axis in AXES.items():
            value = self.setting(name)
            if axis.option and value not in {None, axis.default}:
                options.append(f"--{axis.option} {value}")
        if self.adjust == "no":
            options.append("--no-adjust")
        if self.draft_length not in {None, "budget", "fixed"}:
            options.append(f"--draft-length {self.draft_length}")
        if self.draft_length not in {None, "budget"}:
            options.insert(0, "AKUNU_DRAFT_BUDGET=always")
        return " ".join(options)

    @property
    def title(self) -> str:
        """The cell as options, marked if it is not exact."""
        return " ".join((self.options, *self._not_exact))

    @property
    def relaxed(self) -> tuple[str, ...]:
        """The axes on which it departs from the stream of plain decoding.

        Lenience above temperature 0 and unadjusted residuals are forms of rejection, which is
        itself an axis only without them.
        """
        found = (("lenience",) if self.lenience not in {None, 1} else ()) + (
            ("adjust",) if self.adjust == "no" else ()
        )
        return found or (("draft_sampling",) if self.draft_sampling == "rejection" else ())

    @property
    def _not_exact(self) -> tuple[str, ...]:
        return () if self.is_exact else ("(not exact)",)

    def setting(self, axis: str) -> Setting:
        """Return the value of one of AXES, or the drafter's name for "drafter"."""
        value: Setting = getattr(self, axis)
        return value

    def config(self, config: GenerationConfig) -> GenerationConfig:
        """Return a configuration with the drafter and the settings.

        Raises ConfigError for settings that do not go together at the config's temperature.
        """
        by_budget = self.draft_length == "budget"
        options: dict[str, object] = {
            "ngram_order": self.order,
            "ngram_window": self.window,
            "ngram_min_match": self.min_match,
            "draft_sampling": self.draft_sampling,
            "num_proposals": None if self.num_proposals == 1 else self.num_proposals,
            "lenience": self.lenience,
            "adjust": None if self.adjust is None else self.adjust == "yes",
            "draft_length": None if by_budget else self.draft_length,
        }
        if options["draft_length"] or config.draft_options:
            # A baseline of replays is no drafter, and has neither.
            kind = DrafterKind.named(self.drafter, ["draft_length"])
            given = {"draft_length": options.pop("draft_length"), **config.draft_options}
            options |= {name: value for name, value in given.items() if kind.has(name)}
        return replace(
            config,
            drafter=self.drafter,
            num_draft_tokens=self.num_draft_tokens,
            draft_budget="auto" if by_budget else "always",
            draft_options={name: value for name, value in options.items() if value is not None},
        )


PLAIN = Cell("none")
"""Plain decoding."""

Choices = Mapping[str, Mapping[str, Sequence[Setting]]]
"""Values of the settings chosen by name, by drafter and axis; the drafter's own value is first.

Settings that a drafter lacks are left out.
"""


def own_settings(drafter: str, choices: Choices) -> dict[str, Setting]:
    """Return a drafter's settings with its own values."""
    if drafter == PLAIN.drafter:
        return {}
    own: dict[str, Setting]
    if drafter in baselines():
        own = {"num_draft_tokens": baselines()[drafter]().default_limit}
    else:
        kind = DrafterKind.named(drafter)
        own = {"num_draft_tokens": kind.num_draft_tokens}
        for declared in fields(kind.options):
            if declared.name.startswith("ngram_"):
                default: Any = declared.default
                own[declared.name.removeprefix("ngram_")] = default
    return {**own, **{axis: values[0] for axis, values in choices.get(drafter, {}).items()}}


def default_cell(drafter: str, choices: Choices | None = None) -> Cell:
    """Return a drafter as it ships."""
    return Cell(drafter, **own_settings(drafter, choices or {}))  # type: ignore[arg-type]
