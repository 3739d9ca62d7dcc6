"""The pictures of a result: each follows from figures that the result has, whatever its command.

Files are not trusted. Where figures are there and cannot be drawn, the reason stands in place of
their picture.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from akunu_lab.plots import charts, heat_map, theory_curve
from akunu_lab.sweep.heat_map import HeatMap, heat_map_of
from akunu_py.api import BenchResult, Ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_DRAFT = 256
_MOST_BARS = 40
_MOST_POINTS = 24
_MOST_CELLS = 40
_MOST_ALIKE = 4
"""Pictures of one kind."""

_MOST = 1e9
"""Limit of figures, far above any real one; larger floats overflow a scale."""

_PROMPT_INCLUDED = ("end_to_end", " end to end", " prompt")
"""Beginnings and ends of the names of ratios that are not of decoding alone."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that can be drawn; call `draw` inside `canvas.style`."""

    name: str
    """For a file: lower-case letters, digits and hyphens."""
    title: str
    caption: str
    draw: Callable[[], "Figure"]
    is_wide: bool = False
    """Too wide to stand beside another."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A picture that cannot be drawn, with the reason."""

    title: str
    reason: str


def pictures_of(result: BenchResult) -> tuple[Picture | LeftOut, ...]:
    """Return the pictures of what a result has, in the order in which a page shows them."""
    return (
        *_speeds_by_curve(result),
        *_ratios(result),
        *_drafts(result),
        *_theory(result),
        *_costs(result),
        *_heat_map(result),
    )


def _ratios(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Yield the paired ratios of decoding, which are named WHAT, WHAT/OTHER or WHAT over OTHER.

    Ratios of one WHAT are in one picture, and others in a picture for each OTHER.
    """
    found: list[tuple[str, str, Ratio]] = []
    for name, ratio in result.ratios.items():
        if not name.startswith(_PROMPT_INCLUDED) and not name.endswith(_PROMPT_INCLUDED):
            what, _, other = name.replace(" over ", "/", 1).partition("/")
            found.append((what, other, ratio))
    is_one = len(found) > 1 and len({what for what, _, _ in found}) == 1
    charted: dict[str, dict[str, Ratio]] = {}
    # The ratio of all stands below those of its parts.
    for what, other, ratio in sorted(found, key=lambda one: not one[1]):
        group, name = (what, other or "all") if is_one else (other, what)
        charted.setdefault(group, {})[name] = ratio
    for index, (group, ratios) in enumerate(list(charted.items())[:_MOST_ALIKE]):
        name, bars = f"speedup-{index}", _bars(ratios)
        if is_one:
            yield _bar_chart(name, "Speedup", bars, f"ratio of speeds: {group}")
        elif not group:
            yield _bar_chart(name, "Speedup", bars, "ratio of speeds")
        else:
            bars.sort(key=lambda bar: -bar.ratio)
            yield _bar_chart(name, f"Speed next to {group}", bars, f"speed, of {group}'s")


def _bars(ratios: Mapping[str, Ratio]) -> list[charts.Speedup]:
    """Return bars of the ratios that have an interval and are within what is drawn."""
    bars: list[charts.Speedup] = []
    for name, ratio in ratios.items():
        middle, low, high = map(number, (ratio.ratio, ratio.low, ratio.high))
        if middle is not None and low is not None and high is not None:
            bars.append(charts.Speedup(name, middle, low, high))
    return bars


def _bar_chart(
    name: str, title: str, bars: Sequence[charts.Speedup], heading: str
) -> Picture | LeftOut:
    if not bars:
        return LeftOut(title, "no ratio of the result has an interval")
    shown = tuple(bars[:_MOST_BARS])
    caption = "Bars begin at 1, no change; pale and hatched ones lose. Lines are 95 % intervals."
    if len(shown) < len(bars):
        caption = f"{caption} The first {len(shown)} of {len(bars)} ratios."
    return Picture(name, title, caption, lambda: charts.draw_speedups(shown, heading))


def _speeds_by_curve(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Yield, for each cost curve, the drafters over all items, and by category or trace."""
    group, groups = "category", "categories"
    if result.arguments.get("by") == "trace":
        group, groups = "trace", "traces"
    curves = mapping(result.deterministic, "curves")
    for index, curve in enumerate(list(curves)[:_MOST_ALIKE]):
        total = _speeds(mapping(curves, curve, "total"))
        bars = sorted(_bars(total), key=lambda bar: -bar.ratio)
        costing = f"passes costing as {curve}"
        title = f"Speed of each drafter, {costing}"
        yield _bar_chart(f"curve-{index}", title, bars, "speed over all items")
        parts = mapping(curves, curve, groups)
        rows = {name: _speeds(mapping(parts, name)) for name in parts} | {"all items": total}
        grid = HeatMap(
            "drafter",
            group,
            "speed",
            columns=tuple(total),
            rows=tuple(name for name, found in rows.items() if found),
            values={
                (drafter, name): ratio.ratio
                for name, found in rows.items()
                for drafter, ratio in found.items()
                if drafter in total and ratio.ratio is not None
            },
        )
        if bars:
            yield _grid(f"curve-map-{index}", f"Speed by drafter and {group}, {costing}", grid)


def _speeds(drafters: Mapping[str, object]) -> dict[str, Ratio]:
    """Return the speed of each drafter that has one."""
    found: dict[str, Ratio] = {}
    for drafter in drafters:
        speed = mapping(drafters, drafter, "speed")
        ratio, low, high = (number(speed.get(name)) for name in ("ratio", "low", "high"))
        if ratio is not None:
            found[drafter] = Ratio(ratio, low, high, 0)
    return found


def _counted(result: BenchResult) -> Mapping[str, object]:
    """Return the counts of drafts, which are in `timing` if drafts depend on times."""
    where = result.timing if "drafting" in result.timing else {"drafting": result.deterministic}
    return mapping(where, "drafting")


def _drafts(result: BenchResult) -> Iterator[Picture | LeftOut]:
    total = mapping(_counted(result), "total")
    if "accepted_per_pass" in total:
        title = "Accepted tokens of a pass"
        accepted = counts(total["accepted_per_pass"], _LONGEST_DRAFT)
        passes, with_draft = count(total.get("passes")), count(total.get("passes_with_draft"))
        if not accepted or passes is None or with_draft is None or passes < with_draft:
            yield LeftOut(title, "its counts do not fit together, or nothing was drafted")
        else:
            caption = "How many passes accepted 0, 1, 2, ... of their drafted tokens."
            draw = partial(charts.draw_accepted, accepted, passes - with_draft)
            yield Picture("accepted", title, caption, draw)
    if "drafted_per_position" in total:
        title = "Acceptance by position in the draft"
        drafted = counts(total["drafted_per_position"], _LONGEST_DRAFT)
        taken = counts(total.get("accepted_per_position"), _LONGEST_DRAFT)
        if not drafted or taken is None or len(taken) > len(drafted) or not all(drafted):
            yield LeftOut(title, "its counts do not fit together, or nothing was drafted")
        else:
            caption = (
                "Of the drafts that have a token at a place, those in which it was accepted: with "
                "all before it. Bars: how many drafts reach it."
            )
            taken = (*taken, *([0] * (len(drafted) - len(taken))))
            draw = partial(charts.draw_positions, drafted, taken)
            yield Picture("positions", title, caption, draw)


def _theory(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Yield measured speedups next to the theorem's: of categories, or of predictions.

    Predictions have a picture for each drafter, since their costs differ.
    """
    listed = result.timing.get("predictions")
    made: dict[str, list[Mapping[str, object]]] = {}
    for entry in listed if isinstance(listed, list | tuple) else ():
        made.setdefault(str(mapping(entry).get("drafter")), []).append(mapping(entry))
    promised = {
        f": {drafter}": ("temperatures", _predicted(entries))
        for drafter, entries in list(made.items())[:_MOST_ALIKE]
    }
    if any(
        "alpha" in mapping(figures) for figures in mapping(_counted(result), "categories").values()
    ):
        promised[""] = ("categories", _measured(result))
    for index, (drafter, (points, promise)) in enumerate(promised.items()):
        title = f"Speedup against acceptance{drafter}"
        if promise is None:
            yield LeftOut(title, f"none of the {points} has both an acceptance and a speedup")
            continue
        caption = (
            f"Points: {points} as measured. Curves: what theorem 3.8 of arXiv:2211.17192 promises "
            f"if every pass drafts {promise.num_draft_tokens} tokens; passes with a shorter draft "
            "or none keep points below them."
        )
        yield Picture(f"theory-{index}", title, caption, partial(theory_curve.draw, promise))


def _measured(result: BenchResult) -> theory_curve.Promise | None:
    """Return categories with both figures, and the curves of the result's drafts and costs."""
    counted, ratios = _counted(result), mapping(result.timing, "ratios")
    points = [
        (name, mapping(figures).get("alpha"), mapping(ratios, f"decode/{name}").get("ratio"))
        for name, figures in mapping(counted, "categories").items()
    ]
    gamma = count(result.arguments.get("num_draft_tokens"))
    draft_cost, pass_cost = 0.0, None
    if gamma and result.costs is not None and result.costs.costs:
        drafted = count(mapping(counted, "total").get("drafted"))
        seconds = number(mapping(result.timing, "total").get("propose_s"))
        if drafted and seconds is not None and result.costs.unit_s > 0:
            draft_cost = seconds / drafted / result.costs.unit_s
        pass_cost = result.costs.curve().cost(gamma + 1)
    return _promise(points, gamma, draft_cost, pass_cost)


def _predicted(entries: Sequence[Mapping[str, object]]) -> theory_curve.Promise | None:
    """Return the points of one drafter's predictions, and the curves of the first of them.

    Each temperature measures the costs again.
    """
    first = entries[0]
    draft_cost, pass_cost = number(first.get("draft_cost")), number(first.get("pass_cost"))
    if draft_cost is None or not pass_cost:
        return None
    points = [
        (f"temperature {entry.get('temperature')}", entry.get("acceptance"),
         mapping(entry, "measured").get("ratio"))
        for entry in entries
    ]  # fmt: skip
    gamma = count(first.get("num_draft_tokens"))
    return _promise(points, gamma, draft_cost, pass_cost)


def _promise(
    points: Iterable[tuple[str, object, object]],
    gamma: int | None,
    draft_cost: float,
    pass_cost: float | None,
) -> theory_curve.Promise | None:
    """Return the promise next to the points that have both figures; None without any."""
    known: dict[str, tuple[float, float]] = {}
    for name, acceptance, ratio in points:
        alpha, speedup = number(acceptance), number(ratio)
        if alpha is not None and alpha <= 1 and speedup is not None and len(known) < _MOST_POINTS:
            known[name] = alpha, speedup
    if not known or not gamma or gamma > _LONGEST_DRAFT:
        return None
    return theory_curve.Promise(known, gamma, draft_cost, pass_cost)


def _costs(result: BenchResult) -> Iterator[Picture | LeftOut]:
    title = "What a pass costs"
    if result.costs is None or not result.costs.costs:
        return
    costs = result.costs.costs
    if len(costs) > _LONGEST_DRAFT or max(costs) > 1e6 or None in map(number, costs.values()):
        yield LeftOut(title, "the result's costs are beyond what can be drawn")
        return
    caption = (
        "C(m): the time of a pass over m rows, in steps of plain decoding of "
        f"{1e3 * result.costs.unit_s:.3g} ms. Far below the dashed line drafted tokens are cheap."
    )
    yield Picture("costs", title, caption, partial(charts.draw_costs, costs))


def _heat_map(result: BenchResult) -> Iterator[Picture | LeftOut]:
    for table in result.tables:
        if table.name == "heat_map":
            title, grid = table.title or "Heat map", heat_map_of(table)
            if grid is None:
                yield LeftOut(title, "the table heat_map has no x, y and value")
            else:
                yield _grid("heat-map", title, grid)


def _grid(name: str, title: str, grid: HeatMap) -> Picture | LeftOut:
    if max(len(grid.columns), len(grid.rows)) > _MOST_CELLS:
        return LeftOut(title, f"it has more than {_MOST_CELLS} columns or rows")
    caption = (
        "Blue is faster than plain decoding, orange slower. A frame marks the best of its row; a "
        "dash was not measured."
    )
    return Picture(name, title, caption, partial(heat_map.draw, grid), heat_map.is_wide(grid))


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
