"""The content of a page of results, without its form: warnings and losses first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.tables import Table
from akunu_py.lab.plots.canvas import render, require_matplotlib, style
from akunu_py.lab.plots.pictures import LeftOut, count, mapping, number, pictures_of

_LOOPING = 0.25
"""Share of loops in the output that makes rates of drafting unreliable."""

_MOST_NAMED = 20
_MOST_RESULTS = 50
_MOST_IN_TITLE = 4

Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """A result, the name of its file, and the command that repeats it."""

    name: str
    command: str
    result: BenchResult


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as SVG; `file` is a name for it that no other picture of the page has.

    `is_wide`: too wide to stand beside another.
    """

    file: str
    title: str
    caption: str
    svg: bytes
    is_wide: bool = False


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

    @property
    def main(self) -> Table | None:
        """The table that stands above the pictures: of a replay the one over everything."""
        shown = [table for table in self.tables if not table.detail]
        last = -1 if self.source.result.command == "replay" else 0
        return shown[last] if shown else None


@dataclass(frozen=True, slots=True)
class Page:
    """Sections in the order given, and all their warnings."""

    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        """What was measured; of several results what they have in common."""
        headings = dict.fromkeys(section.heading for section in self.sections)
        if len(headings) == 1:
            return next(iter(headings))
        results = [section.source.result for section in self.sections]
        common = [
            next(iter(found))
            for found in (
                {"" if result.model is None else f" of {result.model.name}" for result in results},
                {_machine(result) for result in results},
            )
            if len(found) == 1
        ]
        return f"{len(self.sections)} measurements{''.join(common)}"

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
        heading=heading_of(source.result),
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
                drawn.append(Drawn(name, picture.title, picture.caption, svg, picture.is_wide))
    return tuple(drawn), tuple(left_out)


def heading_of(result: BenchResult) -> str:
    """Return what was measured: by which command, with what, on how many items and where."""
    arguments = result.arguments
    model = "" if result.model is None else result.model.name
    drafters = _listed(arguments, "drafter", "drafters")
    items = len(result.items)
    if result.command == "replay":
        traces = _listed(arguments, "traces")
        what = f"{_words(drafters, 'drafters')} replayed on {_words(traces, 'traces')}"
        # Times of drafters alone are this machine's.
        return f"{what}, passes costing as {_words(_listed(arguments, 'curve'), 'curves')}"
    if result.command == "compare":
        programs = ["akunu", *_listed(arguments, "programs")]
        return f"{_words(programs, 'programs')} with {model}, {items} prompts{_machine(result)}"
    if result.command == "speed":
        cases = len({str(item.get("case")) for item in result.items})
        return f"akunu and mlx-lm with {model}, {cases} prompts{_machine(result)}"
    with_model = f" with {model}" if model else ""
    if result.command == "hit-rate":
        what = f"Hit rate of {_words(drafters, 'drafters')}{with_model}, {items} prompts"
    elif result.command == "sweep":
        what = (
            f"Settings of {_words(drafters, 'drafters') or 'drafters'}{with_model}, {items} items"
        )
    elif result.command == "alpha":
        what = f"Acceptance of drafted tokens{with_model}"
    else:
        what = f"{result.command}{with_model}, {items} items"
    return f"{what}{_machine(result)}"


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
    found: list[str] = []
    for name, figures in _groups(result):
        share = number(figures.get("looping_share"))
        if share is not None and share >= _LOOPING:
            found.append(f"{name} {share:.0%}")
    if found:
        yield (
            "output repeats itself in loops, which drafts predict and readers do not want: "
            f"{_some(found)}"
        )


def _slower(result: BenchResult) -> Iterator[str]:
    surely: list[str] = []
    perhaps: list[str] = []
    for name, found in result.ratios.items():
        if result.command == "compare" and not name.startswith("akunu-"):
            # How other programs compare with each other warns nobody.
            continue
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
