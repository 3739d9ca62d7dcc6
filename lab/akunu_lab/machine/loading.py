"""The parts "memory" and "load": what the model needs, and how long it takes to load."""

from dataclasses import dataclass

from akunu_lab.machine.asked import ask
from akunu_lab.machine.planning import PartRun, Subject, measure_pace
from akunu_lab.machine.report import ModelFacts, PartFigures
from akunu_py.api import Engine


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
    said = ask("models", "show", str(subject.path))
    types: dict[str, int] = {}
    for each in said["quantization"]:
        types[each["type"]] = types.get(each["type"], 0) + each["bytes"]
    stored_as = [said["kind"], *sorted(types, key=types.__getitem__)[-1:]]
    subject.facts = ModelFacts(
        name=said["name"],
        architecture=said["architecture"],
        parameters=said["parameters"],
        stored_as=", ".join(stored_as),
        file_bytes=said["file_bytes"],
        weights=said["weights"],
        context=said["context_length"],
        drafting=said["drafting"],
    )
    needs = said["memory"][0]
    return MemoryFigures(
        tokens=needs["context"],
        weights_bytes=said["weights_bytes"],
        cache_bytes=needs["kv_bytes"],
        pass_bytes=needs["pass_bytes"],
        limit_bytes=said["memory_limit"],
    )


@dataclass(frozen=True, slots=True)
class RacedProduct:
    """Who computes a product or attention of a shape, and the costs by rows, in words."""

    choice: str
    costs: str


@dataclass(frozen=True, slots=True)
class LoadFigures(PartFigures):
    """Seconds to load the model in a process that has imported MLX."""

    section = "How long is the wait?"
    explanation = (
        "Loading of the model, in a process that has imported MLX. On Metal, *choice* says who "
        "computes few rows of products and attention of each shape, by a race at the first load, "
        "and *costs* are times in those of MLX for one row:"
    )
    seconds: float
    products: tuple[RacedProduct, ...] = ()


def measure_load(subject: Subject, run: PartRun) -> LoadFigures:
    """Load the model and estimate its speed."""
    started = run.clock()
    subject.engine = Engine.load(subject.path)
    seconds = run.clock() - started
    subject.pace = measure_pace(subject.engine)
    products = subject.engine.description.products
    return LoadFigures(seconds, tuple(RacedProduct(*found) for found in products))
