"""Cells of a sweep: every combination, what drafters lack, what cannot be."""

from dataclasses import replace
from itertools import product

import pytest

from akunu_lab.replay.cells import PLAIN, Cell, default_cell
from akunu_lab.sweep.grid import MOST_CELLS, make_grid, parse_numbers, varied
from akunu_lab.sweep.heat_map import choose_axes, make_heat_map
from akunu_lab.sweep.plan import drafter_choices, make_plan
from akunu_py.bench.metrics import reply_exactness
from akunu_py.drafting.registry import make_drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["4"], [4]),
        (["1..4"], [1, 2, 3, 4]),
        (["8,2", "1..3", "2"], [1, 2, 3, 8]),
        (["7..7"], [7]),
    ],
)
def test_numbers(texts, numbers):
    assert parse_numbers(texts) == numbers


@pytest.mark.parametrize(
    "text", ["", "x", "1..", "..4", "4..1", "1...3", "-1", "1.5", "1..99999999", "²", "1;2"]
)
def test_what_is_no_number(text):
    with pytest.raises(ConfigError, match=r"is not a (number|range)"):
        parse_numbers([text])


def test_all_combinations_of_what_a_drafter_has():
    axes = {"num_draft_tokens": (2, 4), "order": (2, 3, 4), "window": (64, 512)}
    grid = make_grid(["ngram", "ngram-window"], axes)
    expected = {Cell("ngram", n, o, None, 1) for n, o in product((2, 4), (2, 3, 4))}
    expected |= {
        Cell("ngram-window", n, o, w, 1) for n, o, w in product((2, 4), (2, 3, 4), (64, 512))
    }
    assert set(grid.cells) == expected
    assert len(grid.cells) == len(expected)
    assert grid.notes == ("ngram has no window: not varied",)
    # As it ships before others: where two are alike the earlier one is taken.
    assert grid.cells[0] == Cell("ngram", 4, 4, None, 1)


def test_each_drafter_is_there_as_it_ships():
    grid = make_grid(["lookup", "auto", "none"], {"num_draft_tokens": (3,)}, always=[PLAIN])
    assert grid.cells == (
        PLAIN,
        Cell("lookup", 10, 4, None, 1),
        Cell("lookup", 3, 4, None, 1),
        Cell("auto", 48),
        Cell("auto", 3),
    )
    assert grid.notes == ()


def test_what_no_drafter_could_have_is_left_out():
    axes = {"order": (1, 2, 4), "min_match": (1, 2), "window": (3,)}
    grid = make_grid(["ngram-window"], axes)
    # A window of 3 holds bigrams; order 1 is none; a match of 2 needs an order of 3.
    assert set(grid.cells) == {Cell("ngram-window", 4, 4, 512, 1), Cell("ngram-window", 4, 2, 3, 1)}
    assert grid.notes == ("ngram-window: 5 combinations left out that it cannot have",)


def test_too_many_cells():
    axes = {"num_draft_tokens": range(1, 65), "window": range(16, 16 + MOST_CELLS)}
    with pytest.raises(ConfigError, match="more than 5000 cells"):
        make_grid(["ngram-window"], axes)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        (PLAIN, "--drafter none"),
        (
            Cell("ngram", 4, draft_length="fixed"),
            "AKUNU_DRAFT_BUDGET=always --drafter ngram --num-draft-tokens 4",
        ),
        (Cell("ngram", 4, draft_length="budget"), "--drafter ngram --num-draft-tokens 4"),
        (
            Cell("draft-model", draft_length="entropy"),
            "AKUNU_DRAFT_BUDGET=always --drafter draft-model --draft-length entropy",
        ),
        (
            Cell("ngram-window", 6, 3, 128, 2),
            (
                "--drafter ngram-window --num-draft-tokens 6 --ngram-order 3 --ngram-window 128 "
                "--ngram-min-match 2"
            ),
        ),
    ],
)
def test_a_cell_as_options(cell, options):
    assert cell.options == options
    assert cell.title == cell.options


def test_keys_differ():
    cells = make_plan((), {}, live=False).grid.cells
    assert len({cell.key for cell in cells}) == len(cells) > 300
    assert Cell("ngram-window", 6, 3, 128, 2).key == (
        "ngram-window num_draft_tokens=6 order=3 window=128 min_match=2"
    )


@pytest.mark.parametrize("live", [False, True])
def test_every_cell_of_a_plan_is_a_configuration_that_works(live):
    plan = make_plan(("ngram", "ngram-window", "lookup", "counts", "auto"), {}, live=live)
    for cell in plan.grid.cells:
        config = cell.config(GenerationConfig(seed=3))
        assert config.seed == 3
        drafter = make_drafter(cell.drafter, num_draft_tokens=cell.num_draft_tokens, config=config)
        if cell.order is not None:
            assert drafter.min_match == cell.min_match
            assert cell.window in {None, drafter.history.maxlen if cell.window else None}
    assert plan.default.drafter == "auto"
    assert plan.grid.cells[:2] == (plan.default, PLAIN)


def test_rules_of_length():
    choices = drafter_choices(["ngram", "counts"], {}, live=True)
    assert choices == {
        "ngram": {"draft_length": ("budget", "fixed")},
        "counts": {"draft_length": ("budget", "fixed", "entropy", "lower-bound")},
    }
    assert drafter_choices(["ngram", "counts"], {}, live=False) == {
        "ngram": {},
        "counts": {"draft_length": ("fixed", "entropy", "lower-bound")},
    }
    axes = {"draft_length": ("entropy", "fixed")}
    grid = make_grid(["ngram", "counts"], axes, choices=choices)
    assert [(cell.drafter, cell.draft_length) for cell in grid.cells] == [
        ("ngram", "budget"), ("ngram", "fixed"),
        ("counts", "budget"), ("counts", "entropy"), ("counts", "fixed"),
    ]  # fmt: skip
    assert default_cell("counts", choices).draft_length == "budget"
    config = GenerationConfig()
    drawn = [
        (config.draft_budget, config.draft_options.get("draft_length"))
        for config in (cell.config(config) for cell in grid.cells)
    ]
    assert drawn == [
        ("auto", None), ("always", None), ("auto", None), ("always", "entropy"), ("always", "fixed"),
    ]  # fmt: skip


REJECTION = {"adjust": ("yes", "no"), "draft_sampling": ("rejection",)}


@pytest.mark.parametrize(
    ("drafter", "values", "message"),
    [
        ("recycling", {}, "recycling cannot be replayed: it learns from the target"),
        ("draft-model-ngram", {}, "cannot be replayed: it is a model that would have to run"),
        ("ngrams", {}, "there is no drafter named 'ngrams'; .* did you mean 'ngram'"),
        ("corpus", {}, "corpus cannot be replayed: it needs counts"),
        ("ngram", {"draft_length": ("entropy",)}, "length rule 'entropy'; decode with --live"),
        ("counts", {"draft_length": ("budget",)}, "they have fixed, entropy, lower-bound"),
        ("counts", {"lenience": (0.5,)}, "lenience needs the models .* decode with --live"),
        ("ngram", {"num_draft_tokens": (65,)}, "num_draft_tokens is 65; give 1 to 64"),
        ("ngram", {"order": (0,)}, "order is 0; give 1 to 16"),
        ("ngram", {"window": ("x",)}, "window is 'x'; give 1 to 1000000"),
        ("ngram", {"depth": (1,)}, "there is no axis named 'depth'"),
    ],
)
def test_what_cannot_be_replayed_is_said(drafter, values, message):
    with pytest.raises(ConfigError, match=message):
        make_plan([drafter], values, live=False)


@pytest.mark.parametrize(
    ("drafter", "values", "temperature", "message"),
    [
        ("ngrams", {}, 0, "there is no drafter named 'ngrams'"),
        ("corpus", {}, 0, "corpus needs counts of a corpus"),
        ("sam", {}, 0, "sam is a baseline of replays"),
        ("mtp", {}, 0, "mtp asks a prediction head, and a sweep has none"),
        ("draft-model", {}, 0, "draft-model asks a draft model; give one"),
        ("ngram", {"draft_length": ("entropy",)}, 0, "they have budget, fixed"),
        ("ngram", {"num_proposals": (2,)}, 0, "no drafter .* several tokens"),
        ("ngram", {"num_proposals": (9,)}, 0, "give 1 to 8"),
        ("ngram", {"lenience": (1.5,)}, 0, "above 0, at most 1"),
        ("ngram", {"lenience": (0.0,)}, 0, "above 0, at most 1"),
        ("ngram", {"lenience": (0.5,)}, 0.8, "is a form of rejection sampling"),
        ("ngram", REJECTION, 0, "without adjust nothing changes but rejection sampling"),
    ],
)
def test_what_cannot_be_decoded_is_said(drafter, values, temperature, message):
    with pytest.raises(ConfigError, match=message):
        make_plan([drafter], values, live=True, temperature=temperature)


def test_baselines_are_swept_by_their_only_setting():
    plan = make_plan(["sam"], {"num_draft_tokens": (8,), "order": (3,)}, live=False)
    assert plan.grid.cells[2:] == (Cell("sam", 40), Cell("sam", 8))
    assert plan.grid.notes == ("sam has no order: not varied",)


def test_methods_are_varied_for_the_drafters_that_have_them():
    values = {"num_draft_tokens": (4,), "draft_sampling": ("rejection",), "num_proposals": (1, 2)}
    plan = make_plan(["ngram", "draft-model"], values, live=True, has_draft_model=True)
    ngram = Cell("ngram", 4, 4, None, 1, "budget", "coupled")
    draft = Cell("draft-model", 8, None, None, None, "budget", "coupled", 1)
    assert plan.own == {"ngram": ngram, "draft-model": draft, "none": PLAIN}
    assert plan.grid.cells == (
        draft,
        PLAIN,
        ngram,
        replace(ngram, draft_sampling="rejection"),
        replace(draft, num_draft_tokens=4, draft_sampling="rejection"),
        replace(draft, num_draft_tokens=4, draft_sampling="rejection", num_proposals=2),
    )
    assert plan.grid.notes == ("ngram has no proposals: not varied",)
    config = plan.grid.cells[-1].config(GenerationConfig(temperature=1))
    assert config.draft_options == {"num_proposals": 2, "draft_sampling": "rejection"}


def test_only_methods_that_go_together_at_the_temperature_are_cells():
    values = {
        "draft_sampling": ("coupled", "rejection"),
        "lenience": (1.0, 0.5),
        "adjust": ("yes", "no"),
    }
    plan = make_plan(["counts"], values, live=True, temperature=1)
    counts = [cell for cell in plan.grid.cells if cell.drafter == "counts"]
    assert [(cell.draft_sampling, cell.lenience, cell.adjust) for cell in counts] == [
        ("coupled", 1.0, "yes"),
        ("rejection", 1.0, "yes"), ("rejection", 1.0, "no"),
        ("rejection", 0.5, "yes"), ("rejection", 0.5, "no"),
    ]  # fmt: skip
    assert plan.grid.notes == ("counts: 3 combinations left out that it cannot have",)
    config = GenerationConfig(temperature=1)
    assert [reply_exactness(cell.config(config)) for cell in counts] == [
        "stream", "distribution", "none", "none", "none",
    ]  # fmt: skip
    assert [cell.is_exact for cell in counts] == [True, True, False, False, False]
    assert counts[-1].config(config).draft_options == {
        "draft_sampling": "rejection", "lenience": 0.5, "adjust": False,
    }  # fmt: skip
    # Greedily rejection gives the likeliest token, and lenience needs no rejection.
    greedy = make_plan(["counts"], {"lenience": (0.5,)}, live=True).grid.cells[-1]
    assert (greedy.draft_sampling, greedy.lenience) == (None, 0.5)
    assert (
        reply_exactness(Cell("ngram", draft_sampling="rejection").config(GenerationConfig()))
        == "stream"
    )


def test_what_is_not_exact_says_so_wherever_it_is_named():
    cell = Cell("counts", 4, draft_sampling="rejection", lenience=0.5, adjust="no")
    assert cell.key == (
        "counts num_draft_tokens=4 draft_sampling=rejection lenience=0.5 adjust=no (not exact)"
    )
    assert cell.options == (
        "--drafter counts --num-draft-tokens 4 --draft-sampling rejection --lenience 0.5 "
        "--no-adjust"
    )
    assert cell.title == f"{cell.options} (not exact)"
    assert cell.relaxed == ("lenience", "adjust")
    law = Cell("draft-model", 8, draft_sampling="rejection", num_proposals=3, lenience=1.0)
    assert law.key.endswith(" num_proposals=3 lenience=1.0")
    assert law.title == law.options
    assert law.options.endswith("--draft-sampling rejection --num-proposals 3")
    assert law.relaxed == ("draft_sampling",)
    assert Cell("ngram", 4, draft_sampling="coupled", adjust="yes").relaxed == ()


def test_with_a_draft_model_it_is_the_default():
    plan = make_plan((), {}, live=True, has_draft_model=True)
    assert plan.default == Cell("draft-model", 8, draft_length="budget")
    assert {"auto", "ngram", "recycling", "draft-model"} <= {c.drafter for c in plan.grid.cells}


def test_what_varies_has_its_values_in_order():
    cells = [Cell("b", 10, 3), Cell("a", 2), Cell("b", 4, 3)]
    assert varied(cells) == {"drafter": ("b", "a"), "num_draft_tokens": (2, 4, 10)}


def test_the_heat_map_takes_the_best_of_the_rest():
    speeds = {
        Cell("ngram", 2, 3, None, 1): 1.0,
        Cell("ngram", 2, 3, None, 2): 1.3,
        Cell("lookup", 2, 3, None, 1): 1.2,
        Cell("ngram", 4, 3, None, 1): 0.9,
        Cell("ngram", 2, 5, None, 1): 1.1,
        Cell("auto", 8): 2.0,
        PLAIN: 1.0,
    }
    assert choose_axes(speeds, None, "auto") == ("num_draft_tokens", "drafter")
    one = {cell: speed for cell, speed in speeds.items() if cell.drafter != "lookup"}
    assert choose_axes(one, None, "auto") == ("num_draft_tokens", "order")
    heat_map = make_heat_map(speeds, ("num_draft_tokens", "order"))
    # auto has no order: its 8 tokens are no column.
    assert (heat_map.columns, heat_map.rows) == ((2, 4), (3, 5))
    assert heat_map.values == {(2, 3): 1.3, (4, 3): 0.9, (2, 5): 1.1}
    # The default drafter is compared all the same.
    with_default = make_heat_map(speeds, ("num_draft_tokens", "order"), "auto")
    assert (with_default.columns, with_default.rows) == ((2, 4, 8), (3, 5, "auto"))
    assert with_default.values[8, "auto"] == 2.0
    by_order = make_heat_map(speeds, ("order", "drafter"), "auto")
    assert by_order.columns == (3, 5, "as it ships")
    assert by_order.values["as it ships", "auto"] == 2.0
    by_drafter = make_heat_map(speeds, choose_axes(speeds, "drafter,num-draft-tokens"))
    assert by_drafter.values["auto", 8] == 2.0
    assert by_drafter.columns == ("ngram", "lookup", "auto")
    assert choose_axes({PLAIN: 1.0, Cell("auto", 3): 1.0}, None) is None
    for wanted in ("order", "order,order", "order,window", "a,b"):
        with pytest.raises(ConfigError, match="give two of what is varied, with a comma: drafter"):
            choose_axes(speeds, wanted)
