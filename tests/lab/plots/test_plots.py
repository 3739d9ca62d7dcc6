"""Pictures: nothing overlaps or leaves the picture, grey keeps them apart, the bytes do not change."""

import itertools
import random
import re

import pytest
from bench.result_values import HIT_RATE, result

from akunu_py.lab.plots import canvas, charts, heat_map, theory_curve
from akunu_py.lab.plots.pictures import LeftOut, Picture, pictures_of
from akunu_py.lab.sweep.heat_map import HeatMap
from akunu_py.system.errors import ConfigError
from akunu_py.system.extras import install_command

pytest.importorskip("matplotlib", reason="the extra bench is not installed")

CATEGORIES = ("completion", "edit", "boilerplate", "config", "session", "prose", "novel", "all")
LONG = "a very long name of a category, with $x^2$ and more words than fit"


def bars(count, low=0.5):
    return tuple(
        charts.Speedup(name, low + 0.2 * n, low + 0.1 * n, low + 0.35 * n)
        for n, name in enumerate(itertools.islice(itertools.cycle((*CATEGORIES, LONG)), count))
    )


def points(count):
    rng = random.Random(1)
    names = itertools.islice(itertools.cycle((*CATEGORIES, LONG)), count)
    return tuple(
        theory_curve.Point(f"{name} {n}", rng.random(), rng.uniform(0.4, 4))
        for n, name in enumerate(names)
    )


def grid(columns, rows):
    xs, ys = [f"lower-bound-{n}" for n in range(columns)], [f"{LONG} {n}" for n in range(rows)]
    values = {(x, y): 0.5 + 0.1 * i + 0.03 * j for i, x in enumerate(xs) for j, y in enumerate(ys)}
    if len(values) > 1:
        del values[xs[-1], ys[-1]]
    return HeatMap("length rule", "order", "best speed", tuple(xs), tuple(ys), values)


DRAWINGS = {
    "speedup, one": lambda: charts.draw_speedups(bars(1), "tokens a second, of those without"),
    "speedup, many": lambda: charts.draw_speedups(bars(8), "tokens a second, of those without"),
    "speedup, forty": lambda: charts.draw_speedups(bars(40), "tokens a second, of those without"),
    "speedup, all lose": lambda: charts.draw_speedups(bars(3, 0.2), "tokens a second"),
    "accepted": lambda: charts.draw_accepted(charts.AcceptedTokens((9, 4, 3, 2, 40), 30)),
    "accepted, one": lambda: charts.draw_accepted(charts.AcceptedTokens((12,), 0)),
    "accepted, long": lambda: charts.draw_accepted(
        charts.AcceptedTokens(tuple(range(65, 0, -1)), 3)
    ),
    "positions": lambda: charts.draw_positions(charts.Positions((9, 8, 7), (8, 6, 1))),
    "positions, one": lambda: charts.draw_positions(charts.Positions((9,), (8,))),
    "positions, long": lambda: charts.draw_positions(
        charts.Positions(tuple(range(99, 35, -1)), tuple(range(90, 26, -1)))
    ),
    "theory": lambda: theory_curve.draw(theory_curve.Promise(points(7), 4, 0.02, 3.6)),
    "theory, many": lambda: theory_curve.draw(theory_curve.Promise(points(24), 8)),
    "costs": lambda: charts.draw_costs({1: 1.0, 2: 1.1, 3: 1.3, 5: 2.6, 8: 3.0, 32: 9.0}),
    "costs, one": lambda: charts.draw_costs({1: 1.0}),
    "heat map": lambda: heat_map.draw(grid(4, 3)),
    "heat map, one": lambda: heat_map.draw(grid(1, 1)),
    "heat map, wide": lambda: heat_map.draw(grid(12, 2)),
    "heat map, large": lambda: heat_map.draw(grid(30, 20)),
}


OF_EACH_KIND = {name.partition(",")[0]: name for name in DRAWINGS}.values()


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
        assert box.x0 >= -1, said
        assert box.y0 >= -1, said
        assert box.x1 <= width + 1, said
        assert box.y1 <= height + 1, said
    for (one, first), (other, second) in itertools.combinations(texts, 2):
        # A dot of touching is none that is seen.
        apart = (
            first.x1 <= second.x0 + 1 or second.x1 <= first.x0 + 1
            or first.y1 <= second.y0 + 1 or second.y1 <= first.y0 + 1
        )  # fmt: skip
        assert apart, (one, other)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "png"])
@pytest.mark.parametrize(
    "name",
    ["speedup, many", "theory", "heat map"],
)
def test_a_picture_is_the_same_bytes_whenever_it_is_drawn(name, form):
    drawn = []
    for _ in range(2):
        with canvas.style():
            drawn.append(canvas.render(DRAWINGS[name](), form))
    assert drawn[0] == drawn[1]
    assert b"<date>" not in drawn[0].lower()


def lightness(colour):
    """L* of CIE 1976, 0 to 100: what is left of a colour in grey."""
    red, green, blue = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_colours_stay_apart_in_grey():
    values = sorted(map(lightness, (canvas.DARK, canvas.MIDDLE, canvas.LIGHT)))
    assert min(b - a for a, b in itertools.pairwise(values)) > 15


def test_losing_bars_differ_in_more_than_colour():
    with canvas.style():
        figure = charts.draw_speedups(
            (charts.Speedup("a", 0.5, 0.4, 0.6), charts.Speedup("b", 2.0, 1.9, 2.1)), "x"
        )
        hatches = {bar.get_hatch() for bar in figure.axes[0].patches}
    assert hatches == {None, "////"}


@pytest.mark.parametrize(
    "text", ["$\\frac{1}{0}$", "a\x1b[31mb\nc", "x" * 500, "\u202e", "日本語 🙂"]
)
def test_any_name_can_be_drawn(text):
    with canvas.style():
        bar = charts.Speedup(text, 1.5, 1.4, 1.6)
        assert canvas.render(charts.draw_speedups((bar,), "x"), "svg").startswith(b"<?xml")
    assert re.search(r"[\x00-\x1f\x7f\u202e]", canvas.label(text)) is None
    assert len(canvas.label(text)) <= 30


# From results.


def by_title(found):
    return {picture.title: picture for picture in found}


def test_a_result_without_figures_says_what_it_lacks():
    found = pictures_of(result(deterministic={}, timing={}, costs=None, tables=()))
    assert all(isinstance(picture, LeftOut) for picture in found)
    assert len(found) == 5
    assert all(picture.reason for picture in found)


def test_every_kind_is_drawn_from_a_result_that_has_its_figures():
    found = pictures_of(result(**HIT_RATE))
    assert [picture.title for picture in found if isinstance(picture, LeftOut)] == []
    assert len({picture.name for picture in found}) == len(found) == 6
    with canvas.style():
        for picture in found:
            assert canvas.render(picture.draw(), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "total",
    [
        {"accepted_per_pass": [1, -1], "passes": 3, "passes_with_draft": 2},
        {"accepted_per_pass": [1] * 1000, "passes": 3, "passes_with_draft": 2},
        {"accepted_per_pass": "12", "passes": 3, "passes_with_draft": 2},
        {"accepted_per_pass": [1], "passes": 1, "passes_with_draft": 2},
        {"drafted_per_position": [1, 0], "accepted_per_position": [1]},
        {"drafted_per_position": [1], "accepted_per_position": [1, 1]},
        {"drafted_per_position": [True], "accepted_per_position": [1e300]},
    ],
)
def test_figures_that_make_no_sense_are_left_out(total):
    found = by_title(pictures_of(result(deterministic={"total": total})))
    assert isinstance(found["Accepted tokens of a pass"], LeftOut)
    assert isinstance(found["Acceptance by position in the draft"], LeftOut)


def test_counts_that_depend_on_times_are_found_under_timing():
    moved = {
        **HIT_RATE,
        "deterministic": {},
        "timing": {**HIT_RATE["timing"], "drafting": HIT_RATE["deterministic"]},
    }
    assert isinstance(by_title(pictures_of(result(**moved)))["Accepted tokens of a pass"], Picture)


def test_without_matplotlib_the_way_to_install_it_is_said(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *rest, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=re.escape(install_command("bench"))):
        canvas.require_matplotlib()


def contrast(one, other):
    """Of WCAG 2: 1 to 21; 4.5 is enough for text."""

    def luminance(colour):
        parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [lambda colour: colour, canvas.ON_DARK.get], ids=["light", "dark"])
def test_text_can_be_read_on_every_colour_below_it(mode):
    assert contrast(mode(canvas.INK), mode(canvas.PAPER)) > 7
    assert contrast(mode(canvas.GREY), mode(canvas.PAPER)) > 4.5
    ends = (canvas.SHADES[0], canvas.SHADES[-1])
    for shade in canvas.SHADES:
        ink = canvas.PAPER if shade in ends else canvas.INK
        assert contrast(mode(ink), mode(shade)) > 4.5, shade


@pytest.mark.parametrize(
    "name",
    [
        # A large heat map takes as long as four others.
        pytest.param(
            name,
            marks=() if name in OF_EACH_KIND and name != "heat map, large" else pytest.mark.slow,
        )
        for name in DRAWINGS
    ],
)
def test_every_colour_of_a_picture_has_one_for_dark_pages(name):
    with canvas.style():
        svg = canvas.render(DRAWINGS[name](), "svg").decode()
    assert "@media (prefers-color-scheme: dark)" in svg
    drawn, styles = re.subn(r"<style>@media.*?</style>", "", svg)
    assert styles == 1
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawn))
    assert colours <= set(canvas.ON_DARK)
    assert canvas.PAPER in colours
    # Cells and bars are shapes: an image would keep its colours.
    assert "<image" not in drawn
    for colour in colours:
        assert f": {colour}" in svg.partition("@media")[2]


def test_the_shades_break_at_1():
    values = {("a", "x"): 2.0, ("b", "x"): 1.01, ("c", "x"): 1.0, ("d", "x"): 0.99, ("e", "x"): 0.9}
    shades = {value: HeatMap("", "", "", tuple("abcde"), ("x",), values).shade(value)
              for value in values.values()}  # fmt: skip
    assert shades == {2.0: 8, 1.01: 5, 1.0: 4, 0.99: 3, 0.9: 3}
    grid = HeatMap("", "", "", tuple("abcde"), ("x",), values)
    assert grid.bound(0) == 1
    assert grid.bound(4) == pytest.approx(2.0)
    assert grid.bound(-4) == pytest.approx(0.5)


def test_the_best_of_each_row_is_framed():
    values = {("a", "x"): 2.0, ("b", "x"): 1.5, ("a", "y"): 0.8, ("b", "y"): 0.9}
    with canvas.style():
        axes = heat_map.draw(HeatMap("", "", "", ("a", "b"), ("x", "y"), values)).axes[0]
    frames = [patch for patch in axes.patches if not patch.get_fill()]
    centres = {
        (round(f.get_x() + f.get_width() / 2), round(f.get_y() + f.get_height() / 2))
        for f in frames
    }
    assert centres == {(0, 0), (1, 1)}
    assert {t.get_text() for t in axes.texts if t.get_fontweight() == "bold"} == {"2.00", "0.90"}


def speed(ratio):
    return {"speed": {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1}}


def test_a_replay_has_its_drafters_and_its_categories():
    arms = {"auto": speed(1.6), "ngram": speed(0.8)}
    curve = {"total": arms, "categories": {"qa": arms, "edit": {"auto": speed(2.0)}}}
    bars, grid = pictures_of(result(command="replay", deterministic={"curves": {"mine": curve}}))
    assert bars.title == "Speed of each drafter, passes costing as mine"
    with canvas.style():
        axes = bars.draw().axes[0]
        cells = grid.draw().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["auto", "ngram"]
    assert [label.get_text() for label in cells.get_yticklabels()] == ["qa", "edit", "all items"]
    assert [label.get_text() for label in cells.get_xticklabels()] == ["auto", "ngram"]


def test_a_comparison_has_its_programs_and_what_drafting_brings():
    names = ("akunu-plain/mlx-lm-plain", "akunu-auto/akunu-plain", "akunu-auto/mlx-lm-plain",
             "llama.cpp-ngram-mod/llama.cpp-plain", "akunu-auto/mlx-lm-plain prompt")  # fmt: skip
    ratios = {name: {"ratio": 1.5, "low": 1.4, "high": 1.6, "pairs": 9} for name in names}
    programs, drafting, _ = pictures_of(result(command="compare", timing={"ratios": ratios}))
    labels = []
    with canvas.style():
        for picture in (programs, drafting):
            axes = picture.draw().axes[0]
            labels.append([label.get_text() for label in axes.get_yticklabels()])
            # Each bar has its interval.
            assert len([line for line in axes.lines if line.get_marker() == "|"]) == 4
    assert labels == [["akunu-plain", "akunu-auto"], ["akunu-auto", "llama.cpp-ngram-mod"]]


@pytest.mark.parametrize(
    "curves", [[], {"a": 1}, {"a": {"total": {"auto": {"speed": {"ratio": "x"}}}}}]
)
def test_a_replay_without_figures_says_so(curves):
    (found,) = pictures_of(result(command="replay", deterministic={"curves": curves}))
    assert isinstance(found, LeftOut)
