"""The content of a page of results, without its form: warnings and losses first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from akunu_lab.plots.canvas import render, require_matplotlib, style
from akunu_lab.plots.pictures import LeftOut, Picture, count, mapping, number, pictures_of
from akunu_py.api import BenchResult, Table

_LOOPING = 0.25
"""Share of loops in the output that makes rates of drafting unreliable."""

_MOST_NAMED = 20
_MOST_RESULTS = 50
_MOST_IN_TITLE = 4


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A result, the name of its file, and the command that repeats it."""

    name: str
    command: str
    result: BenchResult


@dataclass(frozen=True, slots=True)
class DrawnPicture:
    """A picture as SVG; `file` is a name for it that no other picture of the page has."""

    file: str
    picture: Picture
    svg: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """One result of a page; `facts` are names and values."""

    anchor: str
    heading: str
    kept: KeptResult
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    pictures: tuple[DrawnPicture, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables of the result."""
        return self.kept.result.tables

    @property
    def main(self) -> Table | None:
        """The table above the pictures: the first, or the last of several like it."""
        shown = [table for table in self.tables if not table.detail]
        return next((table for table in shown[::-1] if table.columns == shown[0].columns), None)


@dataclass(frozen=True, slots=True)
class Page:
    """Sections in the order given, and all their warnings."""

    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        """What was measured; of several results what they have in common."""
        if len({section.heading for section in self.sections}) == 1:
            return self.sections[0].heading
        results = [section.kept.result for section in self.sections]
        models = {"" if result.model is None else f" of {result.model.name}" for result in results}
        machines = {_machine(result) for result in results}
        common = "".join(found.pop() for found in (models, machines) if len(found) == 1)
        return f"{len(results)} measurements{common}"

    @property
    def warnings(self) -> tuple[tuple[Section, str], ...]:
        """All warnings, each with its section."""
        return tuple(
            (section, warning) for section in self.sections for warning in section.warnings
        )


def make_page(results: Sequence[KeptResult], *, pictures: bool = True) -> Page:
    """Return the page of some results; raises ConfigError if matplotlib is missing."""
    if pictures:
        require_matplotlib()
    return Page(
        tuple(
            _section(number, kept, pictures_of(kept.result) if pictures else ())
            for number, kept in enumerate(results[:_MOST_RESULTS], start=1)
        )
    )


def _section(number: int, kept: KeptResult, pictures: Sequence[Picture | LeftOut]) -> Section:
    result = kept.result
    return Section(
        anchor=f"result-{number}",
        heading=heading_of(result),
        kept=kept,
        warnings=tuple(warnings_of(result)),
        facts=tuple(_facts(result)),
        # Named by place in the page, not by command, since that word comes from a file.
        pictures=tuple(
            DrawnPicture(f"{number}-{picture.name}", picture, _svg(picture))
            for picture in pictures
            if isinstance(picture, Picture)
        ),
        left_out=tuple(picture for picture in pictures if isinstance(picture, LeftOut)),
    )


def _svg(picture: Picture) -> bytes:
    with style():
        return render(picture.draw())


def heading_of(result: BenchResult) -> str:
    """Return what was measured: by which command, of what, with which model and where."""
    arguments = result.arguments
    heading = result.command[:1].upper() + result.command[1:]
    if drafters := _listed(arguments, "drafter", "drafters"):
        heading += f": {_words(drafters, 'drafters')}"
    if programs := _listed(arguments, "programs"):
        heading += f" next to {_words(programs, 'programs')}"
    if result.model is not None:
        heading += f" with {result.model.name}"
    if traces := _listed(arguments, "traces"):
        heading += f" on {_words(traces, 'traces')}"
    if curves := _listed(arguments, "curve"):
        # Then what passes take here counts for nothing.
        return f"{heading}, passes costing as {_words(curves, 'curves')}"
    return f"{heading}{_machine(result)}"


def _machine(result: BenchResult) -> str:
    return f" on {result.environment.device_name}"


def _listed(arguments: Mapping[str, object], *names: str) -> list[str]:
    """Return the value of the first of these arguments that there is, as texts."""
    for name in names:
        value = arguments.get(name)
        if value is not None:
            found = value if isinstance(value, list | tuple) else (value,)
            return [Path(str(one)).name for one in found]
    return []


def _words(names: Sequence[str], kind: str) -> str:
    """Return a few names as a list in words; of more how many there are."""
    if len(names) > _MOST_IN_TITLE:
        return f"{len(names)} {kind}"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def warnings_of(result: BenchResult) -> Iterator[str]:
    """Yield the warnings: unfinished runs, failures, differing replies, slower ratios."""
    if not result.finished:
        yield f"unfinished: the run was interrupted after {len(result.items)} items"
    if result.failures:
        named = [f"{failure.item}: {failure.error}" for failure in result.failures[:_MOST_NAMED]]
        more = len(result.failures) - len(named)
        rest = f"; and {more} more" if more else ""
        yield f"{len(result.failures)} items failed: {'; '.join(named)}{rest}"
    yield from (f"implausible costs of passes: {doubt}" for doubt in result.doubts)
    yield from _differing(result)
    yield from _slower(result)
    yield from _looping(result)
    commit = result.environment.commit
    if commit is not None and commit.endswith("-dirty"):
        yield "measured with changes that were not committed"


def _groups(result: BenchResult) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield all figures over all items and of each category, including timed ones."""
    sources = (result.deterministic, mapping(result.timing, "drafting"))
    yield "all", {name: v for source in sources for name, v in mapping(source, "total").items()}
    for name in mapping(result.deterministic, "categories"):
        found = [mapping(source, "categories", name) for source in sources]
        yield name, {key: value for figures in found for key, value in figures.items()}


def _differing(result: BenchResult) -> Iterator[str]:
    found: list[str] = []
    for name, figures in _groups(result):
        same, prompts = count(figures.get("identical")), count(figures.get("prompts"))
        if same is not None and prompts is not None and same < prompts:
            found.append(f"{name} {prompts - same} of {prompts}")
    if found:
        yield f"replies differ from plain decoding: {_some(found)}"


def _looping(result: BenchResult) -> Iterator[str]:
    shares = {name: number(figures.get("looping_share")) for name, figures in _groups(result)}
    found = [f"{name} {share:.0%}" for name, share in shares.items() if (share or 0) >= _LOOPING]
    if found:
        yield (
            "output repeats itself in loops, which drafts predict and readers do not want: "
            f"{_some(found)}"
        )


def _slower(result: BenchResult) -> Iterator[str]:
    surely: list[str] = []
    perhaps: list[str] = []
    # How other programs compare with each other warns nobody.
    ours = {name: ratio for name, ratio in result.ratios.items() if name.startswith("akunu-")}
    for name, found in (ours or result.ratios).items():
        ratio, low, high = found.ratio, found.low, found.high
        # A ratio without an interval is not reliable.
        if ratio is None or ratio >= 1 or low is None or high is None:
            continue
        (surely if high < 1 else perhaps).append(f"{name} {ratio:.2f} ({low:.2f} to {high:.2f})")
    for word, listed in (("slower", surely), ("perhaps slower", perhaps)):
        if listed:
            yield f"{word}: {_some(listed)}"


def _some(found: Sequence[str]) -> str:
    more = len(found) - _MOST_NAMED
    return ", ".join((*found[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else ())))


def _facts(result: BenchResult) -> Iterator[tuple[str, str]]:
    machine = result.environment
    for name, model in (("model", result.model), ("draft model", result.draft_model)):
        if model is not None:
            size = f"{model.parameters / 1e6:.1f} million parameters"
            what = f"{model.name} ({model.path}), {model.architecture}, {size}, {model.weights}"
            yield name, f"{what} weights, context {model.context}"
            if model.sha256:
                yield f"{name}'s SHA-256", model.sha256
    memory = "" if machine.memory_bytes is None else f"{machine.memory_bytes / 2**30:.1f} GiB"
    device = f"{machine.device_name} ({machine.device})"
    parts = (device, machine.machine, f"{machine.cpu_count} cores", memory, machine.platform)
    yield "machine", ", ".join(filter(None, parts))
    versions = f"akunu {machine.akunu}, MLX {machine.mlx}, mlx-lm {machine.mlx_lm}"
    blas = f", BLAS {machine.blas}" if machine.blas else ""
    yield "versions", f"{versions}, Python {machine.python}{blas}"
    if machine.commit is not None:
        yield "commit", machine.commit
    if result.costs is not None and result.costs.costs:
        costs = ", ".join(f"{rows}: {cost:.2f}" for rows, cost in result.costs.costs.items())
        unit = f"a plain step {1e3 * result.costs.unit_s:.2f} ms"
        yield "costs of passes", f"{unit}; rows and steps {costs}"
    yield "run", f"{result.started}, {result.seconds:.0f} s, {len(result.items)} items"
