"""Pictures: nothing overlaps or leaves the picture, grey keeps them apart, the bytes do not change."""

import itertools
import random
import re

import pytest
from bench.result_values import HIT_RATE, result

from akunu_lab.install import install_command
from akunu_lab.plots import canvas, charts, heat_map, theory_curve
from akunu_lab.plots.pictures import LeftOut, pictures_of
from akunu_lab.sweep.heat_map import HeatMap
from akunu_py.bench.tables import Column, Table
from akunu_py.system.errors import ConfigError

pytest.importorskip("matplotlib", reason="the extra bench is not installed")

NAMES = ("completion", "edit", "all", "a very long name of a category, with $x^2$ and more words")


def names(count):
    return itertools.islice(itertools.cycle(NAMES), count)


def bars(count, low=0.5):
    return [
        charts.Speedup(name, low + 0.2 * n, low + 0.1 * n, low + 0.35 * n)
        for n, name in enumerate(names(count))
    ]


def points(count):
    rng = random.Random(1)
    return {
        f"{name} {n}": (rng.random(), rng.uniform(0.4, 4)) for n, name in enumerate(names(count))
    }


def grid(columns, rows):
    xs, ys = [f"lower-bound-{n}" for n in range(columns)], [f"{NAMES[-1]} {n}" for n in range(rows)]
    values = {(x, y): 0.5 + 0.1 * i + 0.03 * j for i, x in enumerate(xs) for j, y in enumerate(ys)}
    if len(values) > 1:
        del values[xs[-1], ys[-1]]
    return HeatMap("length rule", "order", "best speed", tuple(xs), tuple(ys), values)


DRAWINGS = {
    "speedup": lambda: charts.draw_speedups(bars(8), "tokens a second, of those without"),
    "speedup, forty": lambda: charts.draw_speedups(bars(40), "tokens a second, of those without"),
    "speedup, one loses": lambda: charts.draw_speedups(bars(1, 0.2), "tokens a second"),
    "accepted": lambda: charts.draw_accepted((9, 4, 3, 2, 40), 30),
    "accepted, one": lambda: charts.draw_accepted((12,), 0),
    "accepted, long": lambda: charts.draw_accepted(range(65, 0, -1), 3),
    "positions": lambda: charts.draw_positions((9, 8, 7), (8, 6, 1)),
    "positions, one": lambda: charts.draw_positions((9,), (8,)),
    "positions, long": lambda: charts.draw_positions(range(99, 35, -1), range(90, 26, -1)),
    "theory": lambda: theory_curve.draw(theory_curve.Promise(points(5), 4, 0.02, 3.6)),
    "theory, many": lambda: theory_curve.draw(theory_curve.Promise(points(24), 8)),
    "costs": lambda: charts.draw_costs({1: 1.0, 2: 1.1, 3: 1.3, 5: 2.6, 8: 3.0, 32: 9.0}),
    "costs, one": lambda: charts.draw_costs({1: 1.0}),
    "heat map": lambda: heat_map.draw(grid(4, 3)),
    "heat map, one": lambda: heat_map.draw(grid(1, 1)),
    "heat map, wide": lambda: heat_map.draw(grid(12, 2)),
    "heat map, large": lambda: heat_map.draw(grid(30, 20)),
}
# One of each kind is drawn in every run.
EACH = [pytest.param(n, marks=pytest.mark.slow if "," in n else ()) for n in DRAWINGS]


def drawn(picture):
    """Draw a picture; return its axes."""
    with canvas.style():
        return picture.draw().axes


def shown_texts(figure):
    """Texts of a drawn figure with their boxes, in dots; matplotlib keeps labels it does not draw."""
    texts = []
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes._left_title]
        for axis in (axes.xaxis, axes.yaxis):
            texts += [
                label for tick in axis._update_ticks() for label in (tick.label1, tick.label2)
            ]
        if axes.get_legend() is not None:
            texts += axes.get_legend().get_texts()
    renderer = figure.canvas.get_renderer()
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in texts
        if text.get_visible() and text.get_text().strip()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWINGS)
def test_texts_are_inside_the_picture_and_apart(name):
    """What an eye would find first: labels cut off, or one over another."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with canvas.style():
        figure = DRAWINGS[name]()
        FigureCanvasAgg(figure).draw()
        texts = shown_texts(figure)
        width, height = figure.canvas.get_width_height()
    assert texts
    for said, box in texts:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, said
    for (one, first), (other, second) in itertools.combinations(texts, 2):
        # A dot of touching is none that is seen.
        apart = (
            first.x1 <= second.x0 + 1 or second.x1 <= first.x0 + 1
            or first.y1 <= second.y0 + 1 or second.y1 <= first.y0 + 1
        )  # fmt: skip
        assert apart, (one, other)


@pytest.mark.parametrize("name", EACH)
def test_a_picture_is_the_same_whenever_it_is_drawn_and_dark_where_pages_are(name):
    with canvas.style():
        svg, again = (canvas.render(DRAWINGS[name]()).decode() for _ in range(2))
    assert svg == again
    assert "<date>" not in svg.lower()
    light, styles = re.subn(r"<style>@media \(prefers-color-scheme: dark\).*?</style>", "", svg)
    assert styles == 1
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", light))
    assert colours <= set(canvas.ON_DARK)
    assert canvas.PAPER in colours
    # Cells and bars are shapes: an image would keep its colours.
    assert "<image" not in light
    for colour in colours:
        assert f": {colour}" in svg.partition("@media")[2]


def luminance(colour):
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Of WCAG 2: 1 to 21; 4.5 is enough for text."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stay_apart_in_grey_and_losing_bars_differ_in_more():
    # L* of CIE 1976, 0 to 100.
    values = sorted(
        116 * luminance(colour) ** (1 / 3) - 16
        for colour in (canvas.DARK, canvas.MIDDLE, canvas.LIGHT)
    )
    assert min(b - a for a, b in itertools.pairwise(values)) > 15
    with canvas.style():
        speedups = (charts.Speedup("a", 0.5, 0.4, 0.6), charts.Speedup("b", 2.0, 1.9, 2.1))
        axes = charts.draw_speedups(speedups, "x").axes[0]
    assert [bar.get_hatch() for bar in axes.patches] == ["////", None]


@pytest.mark.parametrize("mode", [lambda colour: colour, canvas.ON_DARK.get], ids=["light", "dark"])
def test_text_can_be_read_on_every_colour_below_it(mode):
    assert contrast(mode(canvas.INK), mode(canvas.PAPER)) > 7
    assert contrast(mode(canvas.GREY), mode(canvas.PAPER)) > 4.5
    ends = (canvas.SHADES[0], canvas.SHADES[-1])
    for shade in canvas.SHADES:
        ink = canvas.PAPER if shade in ends else canvas.INK
        assert contrast(mode(ink), mode(shade)) > 4.5, shade


@pytest.mark.parametrize(
    "text", ["$\\frac{1}{0}$", "a\x1b[31mb\nc", "x" * 500, "\u202e", "日本語 🙂"]
)
def test_any_name_can_be_drawn(text):
    with canvas.style():
        bar = charts.Speedup(text, 1.5, 1.4, 1.6)
        assert canvas.render(charts.draw_speedups((bar,), "x")).startswith(b"<?xml")
    assert re.search(r"[\x00-\x1f\x7f\u202e]", canvas.label(text)) is None
    assert len(canvas.label(text)) <= 30


def test_without_matplotlib_the_way_to_install_it_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=re.escape(install_command("bench"))):
        canvas.require_matplotlib()


def test_the_shades_break_at_1():
    values = {("a", "x"): 2.0, ("b", "x"): 1.01, ("c", "x"): 1.0, ("d", "x"): 0.99, ("e", "x"): 0.9}
    grid = HeatMap("", "", "", tuple("abcde"), ("x",), values)
    assert list(map(grid.shade, values.values())) == [8, 5, 4, 3, 3]
    assert [grid.bound(step) for step in (-4, 0, 4)] == pytest.approx([0.5, 1, 2])


def test_the_best_of_each_row_is_framed():
    values = {("a", "x"): 2.0, ("b", "x"): 1.5, ("a", "y"): 0.8, ("b", "y"): 0.9}
    with canvas.style():
        axes = heat_map.draw(HeatMap("", "", "", ("a", "b"), ("x", "y"), values)).axes[0]
    frames = [patch for patch in axes.patches if not patch.get_fill()]
    centres = {tuple(map(round, frame.get_center())) for frame in frames}
    assert centres == {(0, 0), (1, 1)}
    assert {t.get_text() for t in axes.texts if t.get_fontweight() == "bold"} == {"2.00", "0.90"}


# From results.


def empty(**changes):
    return result(**{"deterministic": {}, "timing": {}, "costs": None, "tables": ()} | changes)


def test_pictures_follow_from_what_a_result_has():
    assert pictures_of(empty()) == ()
    everything = pictures_of(result(**HIT_RATE, command="of tomorrow"))
    assert [picture.name for picture in everything] == [
        "speedup-0", "accepted", "positions", "theory-0", "costs", "heat-map"
    ]  # fmt: skip
    # Where drafts depend on times, their counts are among what times decide.
    counts = {**HIT_RATE["timing"], "drafting": HIT_RATE["deterministic"]}
    moved = pictures_of(result(**{**HIT_RATE, "deterministic": {}, "timing": counts}))
    assert [picture.caption for picture in moved] == [picture.caption for picture in everything]
    assert all(map(drawn, everything))


ACCEPTED = {"passes": 3, "passes_with_draft": 2}
FEW = {"ratio": None, "low": None, "high": None, "pairs": 1}


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"deterministic": {"total": total}}, title)
        for title, totals in {
            "Accepted tokens of a pass": [
                {"accepted_per_pass": [1, -1], **ACCEPTED},
                {"accepted_per_pass": [1] * 1000, **ACCEPTED},
                {"accepted_per_pass": "12", **ACCEPTED},
                {"accepted_per_pass": [1], **ACCEPTED, "passes": 1},
                {"accepted_per_pass": []},
            ],
            "Acceptance by position in the draft": [
                {"drafted_per_position": [1, 0], "accepted_per_position": [1]},
                {"drafted_per_position": [1], "accepted_per_position": [1, 1]},
                {"drafted_per_position": [True], "accepted_per_position": [1e300]},
            ],
        }.items()
        for total in totals
    ] + [
        ({"timing": {"ratios": {"decode": FEW}}}, "Speedup"),
        ({"timing": {"predictions": [{"drafter": "x"}]}}, "Speedup against acceptance: x"),
        ({"deterministic": {"categories": {"edit": {"alpha": 0.9}}}}, "Speedup against acceptance"),
        ({"deterministic": {"curves": {"a": 1}}}, "Speed of each drafter, passes costing as a"),
        (
            {"tables": (Table("heat_map", "Map", (Column("x", "x"),), (("1",),)),)},
            "Map",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_named_with_the_reason(changes, title):
    (found,) = pictures_of(empty(**changes))
    assert isinstance(found, LeftOut)
    assert found.title == title
    assert found.reason


RATIO = {"low": 1.4, "high": 1.6, "pairs": 9}


@pytest.mark.parametrize(
    ("ratios", "charts"),
    [
        (
            {"decode": 1.5, "end_to_end": 1.4, "decode/edit": 1.3, "decode/prose": 1.6},
            [("Speedup", "ratio of speeds: decode", ["edit", "prose", "all"])],
        ),
        ({"none": 1.1, "auto": 1.6}, [("Speedup", "ratio of speeds", ["none", "auto"])]),
        (
            {"auto order=3 over auto": 1.1, "auto order=3 over none": 1.6},
            [("Speedup", "ratio of speeds: auto order=3", ["auto", "none"])],
        ),
        (
            {
                "akunu-plain/mlx-lm-plain": 1.2, "akunu-auto/akunu-plain": 1.5,
                "akunu-auto/mlx-lm-plain": 1.5, "akunu-auto/mlx-lm-plain prompt": 1.5,
                "akunu-auto/mlx-lm-plain end to end": 1.5,
            },
            [
                (
                    "Speed next to mlx-lm-plain",
                    "speed, of mlx-lm-plain's",
                    ["akunu-auto", "akunu-plain"],
                ),
                ("Speed next to akunu-plain", "speed, of akunu-plain's", ["akunu-auto"]),
            ],
        ),
    ],
    ids=["parts", "arms", "one and others", "pairs"],
)  # fmt: skip
def test_ratios_are_drawn_with_what_they_are_of(ratios, charts):
    ratios = {name: {"ratio": ratio, **RATIO} for name, ratio in ratios.items()}
    found = []
    for picture in pictures_of(empty(timing={"ratios": ratios})):
        (axes,) = drawn(picture)
        bars = [label.get_text() for label in axes.get_yticklabels()]
        found.append((picture.title, axes.get_xlabel(), bars))
        # Each bar has its interval.
        ends = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"]
        assert ends == [[1.4, 1.6]] * len(bars)
    assert found == charts


def test_speeds_by_curve_are_drawn_by_drafter_and_category():
    def speed(ratio):
        return {"speed": {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1}}

    arms = {"ngram": speed(0.8), "auto": speed(1.6)}
    curve = {"total": arms, "categories": {"qa": arms, "edit": {"auto": speed(2.0)}}}
    bars, cells = pictures_of(empty(deterministic={"curves": {"mine": curve}}))
    assert bars.title == "Speed of each drafter, passes costing as mine"
    assert [label.get_text() for label in drawn(bars)[0].get_yticklabels()] == ["auto", "ngram"]
    axes = drawn(cells)[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["qa", "edit", "all items"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ngram", "auto"]
    numbers = [text.get_text() for text in axes.texts]
    assert numbers == ["0.80", "1.60", "–", "2.00", "0.80", "1.60"]


def test_predictions_have_a_picture_for_each_drafter():
    entry = {"acceptance": 0.8, "num_draft_tokens": 4, "draft_cost": 0.0, "pass_cost": 1.5}
    measured = [
        {"drafter": name, "temperature": t, "measured": {"ratio": 2.0}, **entry}
        for name in ("a", "b") for t in (0.0, 1.0)
    ]  # fmt: skip
    found = pictures_of(empty(timing={"predictions": measured}))
    assert [picture.name for picture in found] == ["theory-0", "theory-1"]
    (axes,) = drawn(found[0])
    points = [(*line.get_xdata(), *line.get_ydata()) for line in axes.lines[-2:]]
    assert points == [(0.8, 2.0)] * 2
