"""Costs of passes on Macs before anything is measured there, as others reported them.

They are of 4-bit weights with MLX 0.32, the oldest that akunu runs with: of the products alone, so
whole passes may be cheaper. Later versions are reported cheaper as well, without figures by number
of positions. A first reply is to be careful, and what it measures soon replaces these.
"""

import re

from akunu_py.values.cost_curve import CostCurve

_A_READ_A_ROW = {1: 1.0, 2: 1.83, 4: 3.26, 8: 6.12, 16: 6.32, 32: 6.4, 33: 12.6, 64: 12.8}
"""M3 Ultra (ml-explore/mlx#4265). Up to M2 there is no kernel for few rows at all
(ml-explore/mlx#3764), so each row reads the weights anew there as well."""

_BY_CHIP = (
    (r"M3 Ultra", _A_READ_A_ROW),
    # ml-explore/mlx#3863, an M3 Max.
    (
        r"M3",
        {1: 1.0, 2: 1.02, 4: 1.28, 6: 2.04, 8: 2.5, 9: 3.14, 10: 3.94, 32: 4.0, 33: 7.77, 64: 7.9},
    ),
    # M4 Pro: between products (ml-explore/mlx#3839 and #3852) and whole passes of 27 billion
    # parameters (mlx-dspark), which are cheaper at 8 and more expensive beyond.
    (
        r"M4",
        {1: 1.0, 2: 1.05, 4: 1.47, 5: 1.75, 8: 2.2, 9: 3.3, 16: 4.06, 32: 5.4, 33: 9.0, 64: 9.2},
    ),
    # ml-explore/mlx#3791, an M5 Max with 70 billion parameters. Later chips begin with it.
    (r"M([5-9]|\d\d)", {1: 1.0, 3: 1.11, 5: 1.45, 8: 2.2, 12: 3.2}),
)


def reported_costs(chip: str) -> CostCurve:
    """Return the curve of a chip such as "Apple M4 Pro"; the highest if nobody measured it."""
    for pattern, points in _BY_CHIP:
        if re.search(rf"\b{pattern}\b", chip):
            return CostCurve(points, stepped=True)
    return CostCurve(_A_READ_A_ROW, stepped=True)
