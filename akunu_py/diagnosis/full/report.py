"""What `akunu doctor --full` measures, as values; `report.schema.json` is their form in JSON."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from akunu_py.diagnosis.advice import Finding
from akunu_py.models.row_bits import RowDifference

FORMAT = "akunu doctor 1"

NO_TIME = "there was no time left"
"""The note of a part that was skipped for it."""

PartName = Literal[
    "memory", "start", "load", "rows", "prefill", "costs", "greedy", "speed", "reproducible",
    "sampled",
]  # fmt: skip

PartState = Literal["waiting", "running", "measured", "interrupted", "failed", "skipped"]

Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine; None is "does not apply" or "cannot be said".

    Attributes:
        system: operating system and release.
        machine: kind of processor, such as "arm64".
        chip: the processor's name.
        mac_model: Apple's identifier, such as "Mac16,1".
        gpu_cores: of a Mac.
        processors: logical ones that the process may use.
        load: processes that wanted to run when the measurement began, a mean over one minute.
        memory_bytes: of the machine.
        wired_limit_bytes: what the GPU of a Mac may wire, where it was set by hand.
        working_set_bytes: what Metal recommends to use at most.
        translated: whether Python runs under Rosetta.
        low_power: whether a Mac is in Low Power Mode.
        backend: what MLX computes with; None where MLX cannot be imported.
        device: MLX's name of it, or why MLX cannot be imported.
        blas: what the CPU backend multiplies with.
        versions: of Python, akunu and the packages below it; None for a missing one.

    """

    system: str
    machine: str
    chip: str | None
    mac_model: str | None
    gpu_cores: int | None
    processors: int
    load: float | None
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
class Model:
    """The model, as it was known before its weights were read.

    Attributes:
        name: of its file or folder, without where that lies.
        architecture: the model family.
        parameters: numbers of the model.
        stored_as: the type that most of its bytes on disk have.
        file_bytes: of its weights on disk.
        weights: "quantized" or "dense" in memory.
        context: tokens it was trained for.
        drafting: whether its caches can go back, without which nothing is drafted.

    """

    name: str
    architecture: str
    parameters: int
    stored_as: str
    file_bytes: int
    weights: Literal["quantized", "dense"]
    context: int
    drafting: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that the model is expected to need with so many tokens of context.

    `pass_bytes` are those of the largest pass, `limit_bytes` what a model may take here.
    """

    tokens: int
    weights_bytes: int
    cache_bytes: int
    pass_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of a process to its first token, one for each process."""

    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds that loading the model took in a process that had imported MLX."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Whether a row's logits have the same bits whatever is fed in the same pass.

    Attributes:
        equal: in passes of several sizes; replies call it `row_bits`.
        reproducible_equal: the same with reproducible passes; None where the model has none.
        by_size: how rows of passes of one size differ from rows fed one at a time.

    """

    equal: bool
    reproducible_equal: bool | None
    by_size: tuple[RowDifference, ...]

    @property
    def different_sizes(self) -> tuple[int, ...]:
        """Sizes of passes with a row that differs."""
        return tuple(found.rows for found in self.by_size if found.different)


@dataclass(frozen=True, slots=True)
class SizeCost:
    """What passes over so many rows cost; a ratio is None where rounds are too few for an interval.

    Attributes:
        rows: of a pass.
        pass_s: its median seconds.
        cost: in plain steps.
        low: of its 95 % interval.
        high: of it.
        pays_from: how likely each token of a draft of one token fewer must be so that all of it
            pays; None: it never does.
        pays_from_low: where `low` is what a pass costs.
        pays_from_high: where `high` is.

    """

    rows: int
    pass_s: float
    cost: float | None
    low: float | None
    high: float | None
    pays_from: float | None
    pays_from_low: float | None
    pays_from_high: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """What passes cost by their rows.

    Attributes:
        context_tokens: of the prompt behind which they were measured.
        plain_step_s: the median step of plain decoding.
        rounds: how often each size was measured.
        sizes: by their rows.
        copy_bytes_per_s: of a large copy, read and written.
        step_bytes: that a plain step reads: weights and the cache.

    """

    context_tokens: int
    plain_step_s: float
    rounds: int
    sizes: tuple[SizeCost, ...]
    copy_bytes_per_s: float | None
    step_bytes: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A reply that drafting changed.

    `token` is the index of the first one that differs; `margin`, known at temperature 0 alone, how
    far the two highest logits lie apart there.
    """

    prompt: str
    token: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class Replies:
    """Replies with drafting next to those of plain decoding.

    Attributes:
        temperature: of both.
        reproducible: whether passes were reproducible.
        max_tokens: of a reply.
        prompts: that were answered both ways.
        shipped: prompts there are.
        left_out: prompts that could not be answered, as those that do not fit into the context.
        identical: pairs of equal replies.
        drafted: tokens that were drafted and verified.
        accepted: of these.
        differences: the other pairs.

    """

    temperature: float
    reproducible: bool
    max_tokens: int
    prompts: int
    shipped: int
    left_out: int
    identical: int
    drafted: int
    accepted: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class ArmSpeed:
    """One way of decoding over the prompts of a category.

    Attributes:
        category: of the prompts.
        arm: "mlx-lm", "none" (akunu without drafting) or "auto" (with).
        tokens_per_s: of all tokens after the first step; None where no time passed.
        ratio: of it to mlx-lm's: the median of the pairs; None where the prompts are too few for
            an interval, and for mlx-lm itself.
        low: of the ratio's 95 % interval.
        high: of it.
        pairs: prompts that were decoded by it and by mlx-lm.
        identical: of these, replies that are mlx-lm's.

    """

    category: str
    arm: str
    tokens_per_s: float | None
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    identical: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Decoding next to mlx-lm's own loop, in turns."""

    max_tokens: int
    arms: tuple[ArmSpeed, ...]


@dataclass(frozen=True, slots=True)
class PrefillLength:
    """Prompts of one length.

    Attributes:
        tokens: of the prompt.
        seconds: from the call to the end of the prefill, one for each try.
        peak_bytes: that MLX held at most.
        foreseen_bytes: that were expected for a context of that length.

    """

    tokens: int
    seconds: tuple[float, ...]
    peak_bytes: int
    foreseen_bytes: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """Reading prompts, and the memory for it."""

    lengths: tuple[PrefillLength, ...]


@dataclass(slots=True)
class Part:
    """One part of the report.

    Attributes:
        state: "running" in a file means that the process ended in this part.
        seconds: it took.
        budget_s: its share of the time that was left when it began.
        note: why it failed or was skipped, or what it could not do in its time.
        refused: whether it failed with an error that says what to do, as for a prompt that does
            not fit, rather than an unexpected one.
        figures: what was measured, of an interrupted part as far as it got.

    """

    state: PartState = "waiting"
    seconds: float = 0.0
    budget_s: float = 0.0
    note: str = ""
    refused: bool = False
    figures: Any = None


@dataclass(slots=True)
class Report:
    """All of it.

    Attributes:
        started: ISO 8601, UTC.
        limit_s: seconds that it was to take.
        machine: what it was made on.
        parts: by name, in the order in which they are measured.
        model: None where its file could not be read.
        state: "unfinished" in a file means that the process ended without a word.
        seconds: it took.
        findings: what is wrong or worth knowing, the worst first.

    """

    started: str
    limit_s: float
    machine: Machine
    parts: dict[PartName, Part]
    model: Model | None = None
    state: Literal["unfinished", "interrupted", "finished"] = "unfinished"
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def figures(self, name: PartName, kind: type[Figures]) -> Figures | None:
        """Return what a part measured; None where it has nothing."""
        found = self.parts[name].figures
        return found if isinstance(found, kind) else None

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values; numbers that are not finite are None."""
        fields = asdict(self)
        del fields["limit_s"]
        record = {"format": FORMAT, "limit_seconds": self.limit_s, **fields}
        checked = _finite(record)
        assert isinstance(checked, dict)  # noqa: S101 - a dict comes out as one
        return checked


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
