"""Recorded replies at once: text that repeats is drafted where that pays, new text never costs.

Mutants that die here: passes counted that have a free place; a cost without the drafted rows; plain
passes of one reply in the place of as many; a recorded token left out or taken twice.
"""

import random

import pytest

from akunu_lab.replay.company import company_tables
from akunu_lab.replay.runner import ReplayItem
from akunu_py.testing import play_together
from akunu_py.values.cost_curve import CostCurve

CHEAP = CostCurve({1: 1.0, 8: 1.7, 72: 8.1})
"""At 8 replies a drafted row costs 6 % of a pass, and a token is worth 12.5 %."""

DEAR = CostCurve({1: 1.0, 8: 8.0, 72: 72.0})
"""Rows cost what they bring at most."""


def items(kind, count=12, size=120):
    """Outputs that repeat their prompt, or new ones."""
    rng = random.Random(3)
    for number in range(count):
        text = tuple(rng.randrange(5000) for _ in range(size))
        output = text if kind == "copied" else tuple(rng.randrange(5000) for _ in range(size))
        yield ReplayItem(str(number), kind, str(number), 0, text, output)


def texts(*kind, **size):
    return ((item.prompt, item.output) for item in items(*kind, **size))


@pytest.mark.parametrize(("curve", "streams", "least"), [(CHEAP, 4, 1.5), (CHEAP, 8, 1.2)])
def test_copied_text_is_drafted_where_rows_are_cheap(curve, streams, least):
    found = list(play_together(texts("copied"), curve, streams))
    tokens, cost = sum(one.tokens for one in found), sum(one.cost for one in found)
    assert tokens / cost * curve.cost(streams) / streams > least
    assert all(one.cost == curve.cost(streams + one.drafted) for one in found)
    assert all(streams <= one.tokens <= streams + one.drafted for one in found)


@pytest.mark.parametrize(("kind", "curve"), [("new", CHEAP), ("copied", DEAR)])
def test_nothing_is_lost_where_drafts_cannot_pay(kind, curve):
    found = list(play_together(texts(kind), curve, 4))
    tokens, cost = sum(one.tokens for one in found), sum(one.cost for one in found)
    assert tokens / cost * curve.cost(4) / 4 > 0.995


def test_only_passes_with_all_places_taken_count():
    """Without drafts the last three of seven replies leave a place free."""
    found = list(play_together(texts("new", count=7), DEAR, 4))
    assert sum(one.tokens for one in found) == 4 * 120
    assert list(play_together(texts("new", count=3), DEAR, 4)) == []


def test_the_table_has_an_interval_of_each_kind():
    traces = {"mixed": [item for kind in ("copied", "new") for item in items(kind, count=40)]}
    done = []
    (table,) = company_tables(
        traces, {"cheap": CHEAP}, (2, 4), by="category", progress=lambda *part: done.append(part)
    )
    assert [row[:2] for row in table.rows] == [
        (kind, count) for kind in ("copied", "new") for count in (2, 4)
    ]
    copied, new = table.rows[0], table.rows[2]
    assert copied[2] > 1.5
    assert new[2] == pytest.approx(1.0, abs=0.005)
    assert done == [(number, 4) for number in range(1, 5)]
