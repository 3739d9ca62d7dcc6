"""The content of a page of results, without its form: warnings and losses first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.tables import Table
from akunu_py.lab.plots.canvas import render, require_matplotlib, style
from akunu_py.lab.plots.pictures import LeftOut, count, mapping, number, pictures_of

_LOOPING = 0.25
"""Share of loops in the output that makes rates of drafting unreliable."""

_MOST_NAMED = 20
_MOST_RESULTS = 50

Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """A result, the name of its file, and the command that repeats it."""

    name: str
    command: str
    result: BenchResult


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as SVG; `file` is a unique name on the page."""

    file: str
    title: str
    caption: str
    svg: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """One result of a page."""

    anchor: str
    heading: str
    source: Source
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Drawn, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Sections in the order given, and all their warnings."""

    sections: tuple[Section, ...]

    @property
    def warnings(self) -> tuple[tuple[Section, str], ...]:
        """All warnings, each with its section."""
        return tuple(
            (section, warning) for section in self.sections for warning in section.warnings
        )


def make_page(sources: Sequence[Source], *, pictures: bool = True) -> Page:
    """Return the page of some results; raises ConfigError if matplotlib is missing."""
    if pictures:
        require_matplotlib()
    sections = [
        _section(number, source, pictures=pictures)
        for number, source in enumerate(sources[:_MOST_RESULTS], start=1)
    ]
    return Page(tuple(sections))


def _section(number: int, source: Source, *, pictures: bool) -> Section:
    drawn, left_out = _pictures(number, source.result) if pictures else ((), ())
    return Section(
        anchor=f"result-{number}",
        heading=f"{number}. {source.result.command}",
        source=source,
        warnings=tuple(warnings_of(source.result)),
        facts=tuple(_facts(source.result)),
        tables=source.result.tables,
        pictures=drawn,
        left_out=left_out,
    )


def _pictures(section: int, result: BenchResult) -> tuple[tuple[Drawn, ...], tuple[LeftOut, ...]]:
    drawn: list[Drawn] = []
    left_out: list[LeftOut] = []
    with style():
        for picture in pictures_of(result):
            if isinstance(picture, LeftOut):
                left_out.append(picture)
            else:
                # Named by place in the page, not by command, since that word comes from a file.
                name = f"{section}-{picture.name}"
                svg = render(picture.draw(), "svg")
                drawn.append(Drawn(name, picture.title, picture.caption, svg))
    return tuple(drawn), tuple(left_out)


def warnings_of(result: BenchResult) -> Iterator[str]:
    """Yield the warnings: unfinished runs, failures, differing replies, slower ratios."""
    if not result.finished:
        yield f"unfinished: the run was interrupted after {len(result.items)} items"
    if result.failures:
        named = [f"{failure.item}: {failure.error}" for failure in result.failures[:_MOST_NAMED]]
        more = len(result.failures) - len(named)
        rest = f"; and {more} more" if more else ""
        yield f"{len(result.failures)} items failed: {'; '.join(named)}{rest}"
    yield from _differing(result)
    yield from _slower(result)
    for name, figures in _groups(result):
        share = number(figures.get("looping_share"))
        if share is not None and share >= _LOOPING:
            yield (
                f"{name}: {share:.0%} of the output repeats itself in loops, which drafts predict "
                "and readers do not want"
            )
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
    for name, figures in _groups(result):
        same, prompts = count(figures.get("identical")), count(figures.get("prompts"))
        if same is not None and prompts is not None and same < prompts:
            yield f"{name}: {prompts - same} of {prompts} replies differ from plain decoding"


def _slower(result: BenchResult) -> Iterator[str]:
    for name, found in result.ratios.items():
        ratio, low, high = found.ratio, found.low, found.high
        # A ratio without an interval is not reliable.
        if ratio is None or ratio >= 1 or low is None or high is None:
            continue
        perhaps = "" if high < 1 else "perhaps "
        yield f"{perhaps}slower: {name} is {ratio:.2f} ({low:.2f} to {high:.2f})"


def _facts(result: BenchResult) -> Iterator[Fact]:
    environment = result.environment
    for name, model in (("model", result.model), ("draft model", result.draft_model)):
        if model is not None:
            size = f"{model.parameters / 1e6:.1f} million parameters"
            told = f"{model.name} ({model.path}), {model.architecture}, {size}, {model.weights}"
            yield name, f"{told} weights, context {model.context}"
            if model.sha256:
                yield f"{name}'s SHA-256", model.sha256
    machine = [f"{environment.device_name} ({environment.device})", environment.machine]
    machine += [f"{environment.cpu_count} cores"]
    if environment.memory_bytes is not None:
        machine.append(f"{environment.memory_bytes / 2**30:.1f} GiB")
    yield "machine", ", ".join([*machine, environment.platform])
    versions = [f"akunu {environment.akunu}", f"MLX {environment.mlx}"]
    versions += [f"mlx-lm {environment.mlx_lm}", f"Python {environment.python}"]
    if environment.blas:
        versions.append(f"BLAS {environment.blas}")
    yield "versions", ", ".join(versions)
    if environment.commit is not None:
        yield "commit", environment.commit
    if result.costs is not None and result.costs.costs:
        costs = ", ".join(f"{rows}: {cost:.2f}" for rows, cost in result.costs.costs.items())
        yield (
            "costs of passes",
            (f"a plain step {1e3 * result.costs.unit_s:.2f} ms; rows and steps {costs}"),
        )
    yield "run", f"{result.started}, {result.seconds:.0f} s, {len(result.items)} items"
