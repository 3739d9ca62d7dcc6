"""The parts "memory" and "load": what the model needs, and how long it takes to load."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from akunu_py.diagnosis.full.planning import PartRun, Subject, measure_pace
from akunu_py.diagnosis.full.report import ModelFacts, PartFigures
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.names import friendly_name
from akunu_py.models.device import memory_limit
from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.models.memory_check import USUAL_CONTEXT, PlannedModel, check_memory
from akunu_py.models.requirements import requirements
from akunu_py.system.errors import MemoryLimitError


@dataclass(frozen=True, slots=True)
class MemoryFigures(PartFigures):
    """Expected memory of the model with a context of this many tokens."""

    section = "How much memory?"
    explanation = (
        "The expected memory with a context of this many *tokens*, from its shapes: for its "
        "weights, the cache and the largest pass. *Limit* is what a model may take on this machine."
    )
    tokens: int
    weights_bytes: int
    cache_bytes: int
    pass_bytes: int
    limit_bytes: int

    @property
    def together_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.pass_bytes


def measure_memory(subject: Subject, _run: PartRun) -> MemoryFigures:
    """Read facts and requirements of the model, without its weights."""
    path, needs = subject.path, requirements(subject.path)
    subject.needs = needs
    subject.facts = ModelFacts(
        name=friendly_name(path),
        architecture=needs.architecture,
        parameters=needs.parameters,
        stored_as=_folder_type(path) if path.is_dir() else _file_type(path),
        file_bytes=needs.file_bytes,
        weights="dense" if needs.dense else "quantized",
        context=needs.context,
        drafting=bool(needs.rollback),
    )
    tokens = min(USUAL_CONTEXT, needs.context)
    return MemoryFigures(
        tokens=tokens,
        weights_bytes=needs.weights_bytes,
        cache_bytes=needs.cache_bytes(tokens),
        pass_bytes=needs.working_bytes(tokens),
        limit_bytes=memory_limit(),
    )


def _file_type(path: Path) -> str:
    sizes: Counter[str] = Counter()
    with GGUFFile.open(path) as file:
        for info in file.tensors.values():
            sizes[info.type.name] += info.nbytes
    return f"GGUF, {sizes.most_common(1)[0][0]}" if sizes else "GGUF"


def _folder_type(folder: Path) -> str:
    config = read_folder_config(folder)
    quantization = config.get("quantization") or config.get("quantization_config")
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    return f"MLX, {bits} bit" if isinstance(bits, int) else "MLX"


@dataclass(frozen=True, slots=True)
class LoadFigures(PartFigures):
    """Seconds to load the model in a process that has imported MLX."""

    section = "How long is the wait?"
    explanation = "Loading of the model, in a process that has imported MLX:"
    seconds: float


def measure_load(subject: Subject, run: PartRun) -> LoadFigures:
    """Load the model and estimate its speed."""
    try:
        check_memory([PlannedModel(subject.path, LoadOptions())])
    except MemoryLimitError:
        # The message names options that this command does not have.
        raise MemoryLimitError(
            "the model does not fit into the memory that this machine has for it; take a smaller "
            "model or quantization"
        ) from None
    run.tell("reading the weights")
    started = run.clock()
    subject.loaded = load_model(subject.path)
    seconds = run.clock() - started
    subject.pace = measure_pace(subject.loaded)
    return LoadFigures(seconds)
