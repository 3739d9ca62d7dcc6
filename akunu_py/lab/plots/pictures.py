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
from akunu_py.lab.sweep.heat_map import HeatMap, heat_map_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_DRAFT = 256
_MOST_BARS = 40
_MOST_POINTS = 24
_MOST_CELLS = 40
_MOST_THEORY = 4
_MOST_CURVES = 4
_MLX_LM = "mlx-lm-plain"
_MOST = 1e9
"""Limit of figures, far above any real one; larger floats overflow a scale."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that can be drawn.

    Attributes:
        name: for a file, of lower-case letters, digits and hyphens.
        title: what it shows.
        caption: how it is read.
        draw: gives the figure; call it inside `canvas.style`.
        is_wide: whether it is too wide to stand beside another.

    """

    name: str
    title: str
    caption: str
    draw: Callable[[], "Figure"]
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A picture whose figures a result lacks, with the reason."""

    title: str
    reason: str


def pictures_of(result: BenchResult) -> tuple[Picture | LeftOut, ...]:
    """Return the pictures of the result's command in their order, drawn or with what they lack."""
    if result.command == "replay":
        return tuple(_replays(result))
    if result.command == "compare":
        return (*_programs(result), _costs(result))
    if result.command == "sweep":
        return (_speedups(result), *_heat_map(result))
    return (
        _speedups(result),
        *_drafts(result),
        *_theory(result),
        _costs(result),
        *_heat_map(result),
    )


def _bar(name: str, ratio: Ratio) -> charts.Speedup | None:
    """Return the bar of a ratio; None for one without an interval, or beyond what is drawn."""
    ends = (ratio.ratio, ratio.low, ratio.high)
    middle, low, high = map(number, ends)
    return (
        None
        if middle is None or low is None or high is None
        else charts.Speedup(name, middle, low, high)
    )


def _bars(named: Iterable[tuple[str, Ratio]]) -> list[charts.Speedup]:
    return [bar for name, ratio in named if (bar := _bar(name, ratio)) is not None]


def _replays(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Give, for each cost curve, the drafters over all items, and by category or trace."""
    groups = "traces" if result.arguments.get("by") == "trace" else "categories"
    curves = mapping(result.deterministic, "curves")
    if not curves:
        yield LeftOut("Speed of each drafter", "the result has no curves with figures")
    for index, curve in enumerate(list(curves)[:_MOST_CURVES]):
        total = _replayed(mapping(curves, curve, "total"))
        title = f"Speed of each drafter, passes costing as {curve}"
        bars = sorted(_bars(total.items()), key=lambda bar: -bar.ratio)[:_MOST_BARS]
        if not bars:
            yield LeftOut(title, "the result has no speeds with an interval")
            continue
        yield _speedup_picture(f"replay-{index}", title, bars, "speed over all items")
        rows = {
            name: _replayed(mapping(curves, curve, groups, name))
            for name in mapping(curves, curve, groups)
        }
        rows["all items"] = total
        group = "trace" if groups == "traces" else "category"
        grid = HeatMap(
            "drafter",
            group,
            "speed",
            columns=tuple(total),
            rows=tuple(name for name in rows if rows[name]),
            values={
                (arm, name): ratio.ratio
                for name, found in rows.items()
                for arm, ratio in found.items()
                if arm in total and ratio.ratio is not None
            },
        )
        title = f"Speed by drafter and {group}, passes costing as {curve}"
        yield _grid_picture(f"replay-map-{index}", title, grid)


def _replayed(arms: Mapping[str, object]) -> dict[str, Ratio]:
    """Return the speed of each drafter; those without one are left out."""
    found: dict[str, Ratio] = {}
    for arm in arms:
        speed = mapping(arms, arm, "speed")
        ratio, low, high = (number(speed.get(name)) for name in ("ratio", "low", "high"))
        if ratio is not None:
            found[arm] = Ratio(ratio, low, high, 0)
    return found


def _programs(result: BenchResult) -> Iterator[Picture | LeftOut]:
    """Give the arms next to mlx-lm, and what drafts by next to the same program without drafts.

    Ratios are called "arm/other arm"; those of other parts of a reply have more behind that.
    """
    next_to_mlx_lm: list[tuple[str, Ratio]] = []
    drafting: list[tuple[str, Ratio]] = []
    for name, ratio in result.ratios.items():
        arm, _, other = name.partition("/")
        if other == _MLX_LM:
            next_to_mlx_lm.append((arm, ratio))
        if other.endswith("-plain") and arm.startswith(other.removesuffix("plain")):
            drafting.append((arm, ratio))
    for name, title, heading, named in (
        ("programs", "Speed of each program", "tokens a second, of mlx-lm's", next_to_mlx_lm),
        ("drafting", "What drafting brings", "tokens a second, of the same program's", drafting),
    ):
        bars = sorted(_bars(named), key=lambda bar: -bar.ratio)
        if bars:
            yield _speedup_picture(name, title, bars, heading)
        else:
            yield LeftOut(title, "the result has no such ratios with an interval")


def _speedups(result: BenchResult) -> Picture | LeftOut:
    title = "Speedup"
    found = _bars(_ratios(result))
    if not found:
        return LeftOut(title, "the result has no ratios of times with an interval")
    heading = {
        "hit-rate": "tokens a second with drafting, of those without",
        "speed": "tokens a second, of mlx-lm's; median of pairs",
        "sweep": "speed of the best cell, of the other's",
    }.get(result.command, "ratio of speeds")
    return _speedup_picture("speedup", title, found, heading)


def _speedup_picture(
    name: str, title: str, bars: Sequence[charts.Speedup], heading: str
) -> Picture:
    shown = tuple(bars[:_MOST_BARS])
    caption = "Bars begin at 1, no change; pale and hatched ones lose. Lines are 95 % intervals."
    if len(shown) < len(bars):
        caption = f"{caption} The first {len(shown)} of {len(bars)} ratios."
    return Picture(name, title, caption, lambda: charts.draw_speedups(shown, heading))


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


def _heat_map(result: BenchResult) -> Iterator[Picture | LeftOut]:
    title = "Heat map of the sweep"
    table = next((table for table in result.tables if table.name == "heat_map"), None)
    grid = None if table is None else heat_map_of(table)
    if table is not None and grid is not None:
        yield _grid_picture("heat-map", table.title or title, grid)
    elif result.command == "sweep":
        yield LeftOut(title, "the result has no table heat_map with x, y and value")


def _grid_picture(name: str, title: str, grid: HeatMap) -> Picture | LeftOut:
    if max(len(grid.columns), len(grid.rows)) > _MOST_CELLS:
        return LeftOut(title, f"it has more than {_MOST_CELLS} columns or rows")
    caption = (
        "Blue is faster than plain decoding, orange slower. A frame marks the best of its row; a "
        "dash was not measured."
    )
    return Picture(
        name, title, caption, lambda: heat_map.draw(grid), is_wide=heat_map.is_wide(grid)
    )


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
