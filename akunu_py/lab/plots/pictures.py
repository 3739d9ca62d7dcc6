"""The pictures of a result with their figures, and the reasons for missing pictures.

Each command nests its figures by its own names, and files are not trusted. A figure that is missing
or of another type is None, and its picture is replaced by the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.result_file import BenchResult
from akunu_py.lab.plots import charts, heat_map, theory_curve
from akunu_py.lab.sweep.heat_map import heat_map_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_DRAFT = 256
_MOST_BARS = 40
_MOST_POINTS = 24
_MOST_CELLS = 40
_MOST_THEORY = 4
_MOST = 1e9
"""Limit of figures, far above any real one; larger floats overflow a scale."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that can be drawn.

    Attributes:
        name: for a file, of lower-case letters, digits and hyphens.
        title: subject of the picture.
        caption: how to read it.
        draw: returns the figure; call it inside `canvas.style`.

    """

    name: str
    title: str
    caption: str
    draw: Callable[[], "Figure"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A picture whose figures a result lacks, with the reason."""

    title: str
    reason: str


def pictures_of(result: BenchResult) -> tuple[Picture | LeftOut, ...]:
    """Return the six kinds of pictures in their order, each with its figures or the reason."""
    return (
        _speedups(result),
        *_drafts(result),
        *_theory(result),
        _costs(result),
        _heat_map(result),
    )


def _speedups(result: BenchResult) -> Picture | LeftOut:
    title = "Speedup"
    found = [
        charts.Speedup(name, entry.ratio, entry.low, entry.high)
        for name, entry in _ratios(result)
        if entry.ratio is not None
        and entry.low is not None
        and entry.high is not None
        and entry.low >= 0
        and entry.high <= _MOST
        and 0 <= entry.ratio <= _MOST
    ]
    if not found:
        return LeftOut(title, "the result has no ratios of times with an interval")
    shown = tuple(found[:_MOST_BARS])
    heading = {
        "hit-rate": "tokens a second with drafting, of those without",
        "compare": "tokens a second, of the other arm's",
        "speed": "tokens a second, of mlx-lm's; median of pairs",
        "sweep": "speed of the best cell, of the other's; half of the sessions",
    }.get(result.command, "ratio of speeds")
    caption = "Bars begin at 1, no change; pale and hatched ones lose. Lines are 95 % intervals."
    if len(shown) < len(found):
        caption = f"{caption} The first {len(shown)} of {len(found)} ratios."
    return Picture("speedup", title, caption, lambda: charts.draw_speedups(shown, heading))


def _ratios(result: BenchResult) -> Iterator[tuple[str, Ratio]]:
    """Yield the ratios of decoding with the names of their bars; the overall ratio is last."""
    ratios = result.ratios
    if result.command == "hit-rate":
        for name in ratios:
            if name.startswith("decode/"):
                yield name.partition("/")[2], ratios[name]
        if "decode" in ratios:
            yield "all", ratios["decode"]
        return
    for name, ratio in ratios.items():
        if result.command == "sweep":
            yield name.partition(" over ")[2] or name, ratio
        elif not name.endswith((" end to end", " prompt")):
            yield name, ratio


def _counted(result: BenchResult) -> Mapping[str, object]:
    """Return the counts of drafts, which are in `timing` if drafts depend on times."""
    where = result.timing if "drafting" in result.timing else {"drafting": result.deterministic}
    return mapping(where, "drafting")


def _drafts(result: BenchResult) -> Iterator[Picture | LeftOut]:
    total = mapping(_counted(result), "total")
    title = "Accepted tokens of a pass"
    accepted = counts(total.get("accepted_per_pass"), _LONGEST_DRAFT)
    passes, with_draft = count(total.get("passes")), count(total.get("passes_with_draft"))
    if not accepted or passes is None or with_draft is None or passes < with_draft:
        yield LeftOut(title, "the result does not count what each pass accepted, or none drafted")
    else:
        tokens = charts.AcceptedTokens(accepted, passes - with_draft)
        caption = "How many passes accepted 0, 1, 2, ... of their drafted tokens."
        yield Picture("accepted", title, caption, lambda: charts.draw_accepted(tokens))
    title = "Acceptance by position in the draft"
    drafted = counts(total.get("drafted_per_position"), _LONGEST_DRAFT)
    taken = counts(total.get("accepted_per_position"), _LONGEST_DRAFT)
    if not drafted or taken is None or len(taken) > len(drafted) or not all(drafted):
        yield LeftOut(title, "the result has no counts by position, or nothing was drafted")
    else:
        taken = (*taken, *([0] * (len(drafted) - len(taken))))
        places = charts.Positions(drafted, taken)
        caption = (
            "Of the drafts that have a token at a place, those in which it was accepted: with all "
            "before it. Bars: how many drafts reach it."
        )
        yield Picture("positions", title, caption, lambda: charts.draw_positions(places))


_THEORY = "Speedup against acceptance"


def _theory(result: BenchResult) -> Iterator[Picture | LeftOut]:
    if result.command == "alpha":
        yield from _predictions(result)
        return
    promise = _hit_rate_promise(result)
    if promise is None:
        yield LeftOut(_THEORY, "no category has both an acceptance and a speedup")
        return
    caption = (
        "Points: categories as measured. Curves: what theorem 3.8 of arXiv:2211.17192 promises if "
        f"every pass drafts {promise.num_draft_tokens} tokens; passes with a shorter draft or none "
        "keep points below them."
    )
    yield Picture("theory", _THEORY, caption, lambda: theory_curve.draw(promise))


def _hit_rate_promise(result: BenchResult) -> theory_curve.Promise | None:
    counted, ratios = _counted(result), mapping(result.timing, "ratios")
    points: list[theory_curve.Point] = []
    for name in mapping(counted, "categories"):
        alpha = number(mapping(counted, "categories", name).get("alpha"))
        ratio = number(mapping(ratios, f"decode/{name}").get("ratio"))
        if alpha is not None and alpha <= 1 and ratio is not None:
            points.append(theory_curve.Point(name, alpha, ratio))
    gamma = count(result.arguments.get("num_draft_tokens"))
    if not points or not gamma or gamma > _LONGEST_DRAFT:
        return None
    draft_cost, pass_cost = 0.0, None
    if result.costs is not None and result.costs.costs:
        drafted = count(mapping(counted, "total").get("drafted"))
        seconds = number(mapping(result.timing, "total").get("propose_s"))
        if drafted and seconds is not None and result.costs.unit_s > 0:
            draft_cost = seconds / drafted / result.costs.unit_s
        pass_cost = result.costs.curve().cost(gamma + 1)
    return theory_curve.Promise(tuple(points[:_MOST_POINTS]), gamma, draft_cost, pass_cost)


def _predictions(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Yield a picture for each drafter of `bench alpha --speed`, since their costs differ."""
    made: dict[str, list[Mapping[str, object]]] = {}
    listed = result.timing.get("predictions")
    for entry in listed if isinstance(listed, list | tuple) else ():
        made.setdefault(str(mapping(entry).get("drafter")), []).append(mapping(entry))
    if not made:
        yield LeftOut(_THEORY, "the result has no speeds: alpha measures them with --speed")
    for index, (drafter, entries) in enumerate(list(made.items())[:_MOST_THEORY]):
        promise = _predicted(entries)
        title = f"{_THEORY}: {drafter}"
        if promise is None:
            yield LeftOut(title, "the result's predictions lack figures")
            continue
        caption = (
            "Points: temperatures as measured. Curves: what theorem 3.8 of arXiv:2211.17192 "
            f"promises if every pass drafts {promise.num_draft_tokens} tokens."
        )
        yield Picture(f"theory-{index}", title, caption, _drawing(promise))


def _drawing(promise: theory_curve.Promise) -> Callable[[], "Figure"]:
    return lambda: theory_curve.draw(promise)


def _predicted(entries: Iterable[Mapping[str, object]]) -> theory_curve.Promise | None:
    promises: list[theory_curve.Promise] = []
    for entry in entries:
        alpha, ratio = (
            number(entry.get("acceptance")),
            number(mapping(entry, "measured").get("ratio")),
        )
        gamma = count(entry.get("num_draft_tokens"))
        draft_cost, pass_cost = number(entry.get("draft_cost")), number(entry.get("pass_cost"))
        if alpha is None or alpha > 1 or ratio is None or draft_cost is None or not pass_cost:
            return None
        if not gamma or gamma > _LONGEST_DRAFT:
            return None
        point = theory_curve.Point(f"temperature {entry.get('temperature')}", alpha, ratio)
        promises.append(theory_curve.Promise((point,), gamma, draft_cost, pass_cost))
    points = [point for promise in promises for point in promise.points]
    # Each temperature measures the costs again; the curves use the first.
    return replace(promises[0], points=tuple(points[:_MOST_POINTS])) if promises else None


def _costs(result: BenchResult) -> Picture | LeftOut:
    title = "What a pass costs"
    if result.costs is None or not result.costs.costs:
        return LeftOut(title, "the result has no measured costs")
    known = {rows: cost for rows, cost in result.costs.costs.items() if number(cost) is not None}
    if len(known) != len(result.costs.costs) or len(known) > _LONGEST_DRAFT or max(known) > 1e6:
        return LeftOut(title, "the result's costs are beyond what can be drawn")
    caption = (
        "C(m): the time of a pass over m rows, in steps of plain decoding of "
        f"{1e3 * result.costs.unit_s:.3g} ms. Far below the dashed line drafted tokens are cheap."
    )
    return Picture("costs", title, caption, lambda: charts.draw_costs(known))


def _heat_map(result: BenchResult) -> Picture | LeftOut:
    title = "Heat map of the sweep"
    table = next((table for table in result.tables if table.name == "heat_map"), None)
    grid = None if table is None else heat_map_of(table)
    if table is None or grid is None:
        return LeftOut(title, "the result has no table heat_map with x, y and value")
    if max(len(grid.columns), len(grid.rows)) > _MOST_CELLS:
        return LeftOut(title, f"it has more than {_MOST_CELLS} columns or rows")
    caption = "Light is fast; the frame is the best cell; a dash was not measured."
    return Picture("heat-map", table.title or title, caption, lambda: heat_map.draw(grid))


def mapping(value: object, *names: str) -> Mapping[str, object]:
    """Return the object under these nested names; an empty one if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> float | None:
    """Return a number, 0 to 1e9."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST else None  # NaN is refused, too


def count(value: object) -> int | None:
    """Return a whole number, 0 to 1e9."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST else None


def counts(value: object, longest: int) -> tuple[int, ...] | None:
    """Return a list of up to `longest` such whole numbers."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > longest:
        return None
    found = [known for entry in value if (known := count(entry)) is not None]
    return tuple(found) if len(found) == len(value) else None
