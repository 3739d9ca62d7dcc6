"""Values of a report of `akunu bench machine`; `report.schema.json` describes them as JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal

FORMAT = "akunu bench machine 1"

NO_TIME = "there was no time left"
"""Note of a part that was skipped for lack of time."""
REPORT_IT = "Please report it: paste this page into an issue."

PartName = Literal[
    "memory", "tests", "peers", "start", "load", "rows", "prefill", "costs", "greedy", "speed",
    "sampled", "reproducible",
]  # fmt: skip
READING_ORDER: tuple[PartName, ...] = (
    "tests", "rows", "greedy", "sampled", "reproducible", "speed", "peers", "costs", "start",
    "load", "prefill", "memory",
)  # fmt: skip
"""Order of answers and sections: what matters most to a reader comes first."""

Severity = Literal["error", "warning", "note"]
"""Something is wrong; it works, but not as well as possible; worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a possible improvement, with one sentence on what to do."""

    severity: Severity
    text: str
    advice: str


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Return findings sorted by severity, in a stable order."""
    order: tuple[Severity, ...] = ("error", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def size(number: int) -> str:
    """Return a number of bytes as text, in GB (10^9), or in MB below one."""
    return f"{number / 1e9:.1f} GB" if number >= 10**9 else f"{number / 1e6:.0f} MB"


class PartFigures:
    """What a part has measured, and what follows from it; a subclass is a dataclass of figures.

    The page makes tables of its fields and properties, and of values in tuples.
    """

    __slots__ = ()
    section: ClassVar[str]
    """Heading on the page; figures with the same heading share a section."""
    explanation: ClassVar[str]
    of_several_parts: ClassVar[bool] = False
    """Whether several parts measure such figures, so that tables need their names."""

    def answers(self) -> Iterable[str]:
        """Return sentences for the summary."""
        return ()

    def findings(self) -> Iterable[Finding]:
        """Return problems that the figures show."""
        return ()

    def lacks_ratios(self) -> bool:
        """Return whether there were too few items for some ratio and its interval."""
        return False


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine; None means that a fact does not apply or is unknown."""

    system: str
    machine: str
    chip: str | None
    mac_model: str | None
    """Apple's identifier, such as "Mac16,1"."""
    gpu_cores: int | None
    processors: int
    load: float | None
    """Load at the beginning, a mean over one minute."""
    memory_bytes: int | None
    wired_limit_bytes: int | None
    working_set_bytes: int | None
    translated: bool
    low_power: bool
    backend: str | None
    device: str
    blas: str | None
    versions: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model, as known before its weights are read."""

    name: str
    """Name of its file or folder, without the path."""
    architecture: str
    parameters: int
    stored_as: str
    """Most frequent type of its bytes on disk."""
    file_bytes: int
    weights: Literal["quantized", "dense"]
    """In memory."""
    context: int
    drafting: bool
    """Whether its caches can roll back; nothing is drafted otherwise."""


@dataclass(slots=True)
class ReportPart:
    """One part of the report."""

    state: Literal["waiting", "running", "measured", "interrupted", "failed", "skipped"] = "waiting"
    """ "running" in a file means that the process ended during the part."""
    seconds: float = 0.0
    budget_s: float = 0.0
    """Its share of the remaining time at its beginning."""
    note: str = ""
    """Reason of a failure or a skip, or what there was no time for."""
    refused: bool = False
    """Whether the part failed with an error that says what to do, not with an unexpected one."""
    figures: PartFigures | None = field(default=None, repr=False)
    """Incomplete for an interrupted part."""


@dataclass(slots=True)
class FullReport:
    """The whole report."""

    started: str
    """ISO 8601 in UTC."""
    limit_s: float
    """Planned time."""
    machine: Machine
    parts: dict[PartName, ReportPart]
    """In the order of measurement."""
    model: ModelFacts | None = None
    """None if its file could not be read."""
    state: Literal["unfinished", "interrupted", "finished"] = "unfinished"
    """ "unfinished" in a file means that the process was killed."""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def measured(self) -> list[tuple[PartName, PartFigures]]:
        """Return the figures that there are by part, in the order for a reader."""
        found = [(name, self.parts[name].figures) for name in READING_ORDER]
        return [(name, figures) for name, figures in found if figures is not None]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the file, whose numbers need not be finite yet."""
        fields = asdict(self)
        return {"format": FORMAT, "limit_seconds": fields.pop("limit_s"), **fields}
