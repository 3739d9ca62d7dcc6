"""Costs of passes, interpolated."""

import pytest

from akunu_py import ConfigError
from akunu_py.values.cost_curve import CostCurve


def test_a_flat_stretch_past_the_points():
    curve = CostCurve({1: 1.0, 4: 1.4, 8: 2.8}, flat=(13, 32))
    at_13 = 2.8 + 5 * 1.4 / 4
    found = [curve.cost(rows) for rows in (8, 13, 20, 32, 33)]
    assert found == pytest.approx([2.8, at_13, at_13, at_13, at_13 + 0.35])


def test_one_point_is_a_constant():
    assert CostCurve({1: 1.0}).cost(9) == 1.0


def test_least_slopes():
    curve = CostCurve({1: 1.0, 2: 2.0, 3: 2.0, 5: 4.0})
    assert curve.slopes(4) == pytest.approx([0.5, 0.0, 1.0, 1.0])


@pytest.mark.parametrize("points", [{}, {2: 1.0}, {1: 0.0}, {1: float("nan")}, {1: 1.0, 0: 1.0}])
def test_what_is_no_curve(points):
    with pytest.raises(ConfigError, match="cost curve"):
        CostCurve(points)


def test_a_fall_is_found_where_it_is_deepest():
    curve = CostCurve({1: 1.0, 5: 1.46, 9: 1.4, 33: 1.2})
    assert curve.fall() == (5, 33)
    assert curve.doubt == "C(33) = 1.20 is below C(5) = 1.46"
    assert CostCurve({1: 1.0, 2: 0.82, 3: 1.04}).fall() == (1, 2)


def test_a_fall_within_the_noise_is_not_doubted():
    curve = CostCurve({1: 1.0, 2: 0.91, 3: 1.5, 4: 1.4})
    assert curve.fall() == (1, 2)
    assert curve.doubt == ""
    assert CostCurve({1: 1.0, 2: 1.0}).fall() is None
