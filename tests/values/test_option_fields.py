"""Options declared as fields: what each kind takes, and what its message says."""

import math
from dataclasses import dataclass

import pytest

from akunu_py.system.errors import ConfigError
from akunu_py.values.option_fields import (
    Biases,
    Choice,
    Count,
    Number,
    Switch,
    Texts,
    Value,
    check_options,
    option,
    options_of,
)

SHARE = Number(0, 1, "a share", excluded=0)
DEGREES = Number(2, 5, "0, or 2 to 5", or_zero=True)
FEW = Count(1, "1 to 3", most=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meal:
    guests: int = option(2, FEW, "Set the table for N.", metavar="N", group="table")
    sugar: float | None = option(None, SHARE)
    notes: dict[int, float] = option({}, Biases())

    def __post_init__(self):
        check_options(self)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        (SHARE, [0.1, 1, 1.0]),
        (DEGREES, [0, 0.0, -0.0, 2, 5.0]),
        (FEW, [1, 3]),
        (Count(0, "any"), [0, 10**30]),
        (Switch(), [True, False]),
        (Choice(("a", "b")), ["a", "b"]),
        (Value(str, "a name"), ["", "a"]),
        (Texts(2, 3), [(), ("a",), ["a", "bcd"]]),
        (Biases(), [{}, {0: 1, 7: -2.5}]),
    ],
)
def test_what_is_in_range_is_taken(kind, taken):
    for value in taken:
        kind.check("x", value)


@pytest.mark.parametrize(
    ("kind", "refused", "words"),
    [
        (SHARE, [0, 1.01, -1, math.nan, math.inf, True, "1", None, [1]], "give a share"),
        (DEGREES, [1, 1e-9, -2, 6, math.nan, -math.inf, False], "give 0, or 2 to 5"),
        (FEW, [0, 4, 1.0, True, "1", None, math.nan], "give 1 to 3"),
        (Count(0, "any"), [-1, math.inf], "give any"),
        (Switch(), [0, 1, "on", None], "give True or False"),
        (Choice(("a", "b")), ["c", 1, None, []], "give 'a' or 'b'"),
        (Value(str, "a name"), [1, None, b"a"], "give a name"),
        (
            Texts(2, 3),
            ["a", None, [1], ("a", ""), {"a"}],
            "give a tuple of texts, none of them empty",
        ),
        (Biases(), [[1], None, "1"], "give a dict of id and bias"),
    ],
)
def test_what_is_out_of_range_is_named(kind, refused, words):
    for value in refused:
        with pytest.raises(ConfigError) as caught:
            kind.check("x", value)
        assert str(caught.value) == f"x is {value!r}; {words}"


A, NO_EMPTY = "'a', ", "a tuple of texts, none of them empty"


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Texts(2, 3), ["a", "b", "c"], "x has 3 texts; give 2 or fewer"),
        (Texts(2, 3), ["a"] * 1_000_000, "x has 1,000,000 texts; give 2 or fewer"),
        (Texts(2, 3), ["a", "bcde"], "x has a text of 4 characters; give 3 or fewer"),
        (Texts(2, 3), ["a"] * 100 + [""], f"x is [{A * 11}'a',; give {NO_EMPTY}"),
        (Biases(), {-1: 1.0}, "a token id in x is -1; give ids of the vocabulary"),
        (Biases(), {"1": 1.0}, "a token id in x is '1'; give ids of the vocabulary"),
        (Biases(), {1: math.inf}, "the bias of token 1 is inf; give a finite number"),
        (Biases(), {1: "a"}, "the bias of token 1 is 'a'; give a finite number"),
    ],
)
def test_the_part_at_fault_is_named(kind, value, words):
    with pytest.raises(ConfigError) as caught:
        kind.check("x", value)
    assert str(caught.value) == words


def test_no_two_objects_share_a_default_that_changes():
    Meal().notes[1] = 2.0
    assert Meal().notes == {}


def test_what_is_changed():
    guests, sugar, notes = options_of(Meal)
    meal = Meal(guests=2, sugar=0.5)
    assert [one.is_changed(meal) for one in (guests, sugar, notes)] == [False, True, False]
