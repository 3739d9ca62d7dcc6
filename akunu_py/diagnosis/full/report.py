"""Values of a report of `akunu doctor --full`; `report.schema.json` describes them as JSON."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from akunu_py.diagnosis.advice import Finding
from akunu_py.models.row_bits import RowDifference
from akunu_py.values.types import RowBits

FORMAT = "akunu doctor 1"

NO_TIME = "there was no time left"
"""Note of a part that was skipped for lack of time."""

PartName = Literal[
    "memory", "start", "load", "rows", "prefill", "costs", "greedy", "speed", "reproducible",
    "sampled",
]  # fmt: skip

PartState = Literal["waiting", "running", "measured", "interrupted", "failed", "skipped"]

Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine; None means that a value does not apply or is unknown.

    Attributes:
        system: operating system and release.
        machine: kind of processor, such as "arm64".
        chip: the processor's name.
        mac_model: Apple's identifier, such as "Mac16,1".
        gpu_cores: GPU cores of a Mac.
        processors: logical processors that the process may use.
        load: load at the beginning, a mean over one minute.
        memory_bytes: memory of the machine.
        wired_limit_bytes: wired limit of a Mac's GPU, if it was set by hand.
        working_set_bytes: limit that Metal recommends.
        translated: whether Python runs under Rosetta.
        low_power: whether a Mac is in Low Power Mode.
        backend: MLX's backend; None if MLX cannot be imported.
        device: MLX's name of the device, or the reason why MLX cannot be imported.
        blas: BLAS library of the CPU backend.
        versions: versions of Python, akunu and its dependencies; None for a missing one.

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
    """The model, as known before its weights are read.

    Attributes:
        name: name of its file or folder, without the path.
        architecture: model family.
        parameters: number of parameters.
        stored_as: most frequent type of its bytes on disk.
        file_bytes: size of its weights on disk.
        weights: "quantized" or "dense" in memory.
        context: context length of the training, in tokens.
        drafting: whether its caches can roll back; nothing is drafted otherwise.

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
    """Expected memory of the model with a context of `tokens` tokens.

    `pass_bytes` is the memory of the largest pass; `limit_bytes` is the limit for a model here.
    """

    tokens: int
    weights_bytes: int
    cache_bytes: int
    pass_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of a process to its first token, for each process."""

    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds to load the model in a process that has imported MLX."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Whether a row's logits are bit-equal regardless of the other rows in its pass.

    Attributes:
        equal: result for passes of several sizes.
        reproducible_equal: result for reproducible passes; None if the model has none.
        by_size: differences between rows of passes of one size and rows fed alone.
        context: the longest text behind which rows were compared for `equal`, in tokens.

    """

    equal: bool
    reproducible_equal: bool | None
    by_size: tuple[RowDifference, ...]
    context: int = 0

    @property
    def different_sizes(self) -> tuple[int, ...]:
        """Sizes of passes in which a row differs."""
        return tuple(found.rows for found in self.by_size if found.different)


@dataclass(frozen=True, slots=True)
class SizeCost:
    """Cost of passes of one size; ratios are None if there were too few rounds for an interval.

    Attributes:
        rows: rows of the pass.
        pass_s: median time in seconds.
        cost: cost in plain steps.
        low: lower end of the cost's 95 % interval.
        high: upper end of the interval.
        pays_from: probability that each token of a draft of `rows` - 1 tokens needs so that the
            whole draft pays; None: it never pays.
        pays_from_low: the same at the cost `low`.
        pays_from_high: the same at the cost `high`.

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
    """Costs of passes by number of rows.

    Attributes:
        context_tokens: length of the prompt before the measured passes.
        plain_step_s: median time of a plain decoding step.
        rounds: number of measurements of each size.
        sizes: costs by size.
        copy_bytes_per_s: bytes per second of a large copy, read and written.
        step_bytes: bytes of weights and cache that a plain step reads.

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

    `token` is the index of the first different token; `margin`, known only at temperature 0, is the
    distance between the two highest logits there. `row_bits` is what the drafted reply says.
    """

    prompt: str
    token: int
    margin: float | None
    row_bits: RowBits = "unknown"


@dataclass(frozen=True, slots=True)
class Replies:
    """Comparison of replies with and without drafting.

    Attributes:
        temperature: temperature of both.
        reproducible: whether passes were reproducible.
        max_tokens: limit of a reply.
        prompts: number of prompts answered both ways.
        shipped: number of shipped prompts.
        left_out: prompts without an answer, for example because they exceed the context.
        identical: number of pairs of equal replies.
        drafted: drafted and verified tokens.
        accepted: accepted ones among these.
        differences: the pairs that differ.

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
        category: category of the prompts.
        arm: "mlx-lm", "none" (akunu without drafting) or "auto" (with drafting).
        tokens_per_s: speed over all tokens after the first step; None if no time passed.
        ratio: ratio of the speed to mlx-lm's, median of the pairs; None with too few prompts for an
            interval, and for mlx-lm itself.
        low: lower end of the ratio's 95 % interval.
        high: upper end of the interval.
        pairs: number of prompts decoded both ways.
        identical: number of replies equal to mlx-lm's among these.

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
    """Speed of decoding compared with mlx-lm's own loop, in turns."""

    max_tokens: int
    arms: tuple[ArmSpeed, ...]


@dataclass(frozen=True, slots=True)
class PrefillLength:
    """Prompts of one length.

    Attributes:
        tokens: length of the prompt.
        seconds: time from the call to the end of the prefill, for each run.
        peak_bytes: largest memory of MLX.
        foreseen_bytes: expected memory for a context of this length.

    """

    tokens: int
    seconds: tuple[float, ...]
    peak_bytes: int
    foreseen_bytes: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """Speed and memory of the prefill."""

    lengths: tuple[PrefillLength, ...]


@dataclass(slots=True)
class Part:
    """One part of the report.

    Attributes:
        state: state of the part; "running" in a file means that the process ended during it.
        seconds: time that the part took.
        budget_s: its share of the remaining time at its beginning.
        note: reason of a failure or a skip, or what there was no time for.
        refused: whether it failed with an error that says what to do rather than an unexpected one.
        figures: measured values; incomplete for an interrupted part.

    """

    state: PartState = "waiting"
    seconds: float = 0.0
    budget_s: float = 0.0
    note: str = ""
    refused: bool = False
    figures: Any = None


@dataclass(slots=True)
class Report:
    """The whole report.

    Attributes:
        started: start time, ISO 8601 in UTC.
        limit_s: planned time in seconds.
        machine: the machine.
        parts: parts by name, in the order of measurement.
        model: the model; None if its file could not be read.
        state: state of the report; "unfinished" in a file means that the process was killed.
        seconds: time that the report took.
        findings: problems and remarks, the worst first.

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
        """Return the values that a part measured, or None."""
        found = self.parts[name].figures
        return found if isinstance(found, kind) else None

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON-ready values; numbers that are not finite become None."""
        fields = asdict(self)
        del fields["limit_s"]
        record = {"format": FORMAT, "limit_seconds": self.limit_s, **fields}
        return {key: _finite(value) for key, value in record.items()}


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
