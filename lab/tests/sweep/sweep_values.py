"""Outcomes of cells made up by hand, for the tests of sweeps."""

import random

from akunu_lab.replay.cells import PLAIN, Cell
from akunu_lab.replay.results import cost_by_curve
from akunu_lab.replay.runner import ItemCounts, ReplayItem
from akunu_lab.replay.traces import half_of
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats

CURVE = CostCurve({1: 1.0, 3: 1.3, 9: 2.5})
AUTO, NGRAM = Cell("auto", 48), Cell("ngram", 4, 4, None, 1)
FAST = Cell("ngram", 8, 3, None, 1)


def items_of(sessions, per_session=2, length=60):
    """Texts that go round in circles and leave them now and then."""
    items = []
    for number in range(sessions):
        rng = random.Random(number)
        circle = [rng.randrange(40) for _ in range(12)]
        for turn in range(per_session):
            text = [t if rng.random() > 0.15 else rng.randrange(40) for t in circle * 8]
            items.append(
                ReplayItem(
                    f"{number}-{turn}", "code" if number % 2 else "prose", f"session {number}",
                    half_of(f"session {number}"), tuple(text[:20]), tuple(text[20 : 20 + length]),
                )
            )  # fmt: skip
    return items


def outcome(tokens, passes, decode_s=None, *, identical=None):
    """Passes of which as many drafted a token, accepted, as it takes to make the tokens."""
    accepted = tokens - passes
    return ItemCounts(
        DecodeStats(
            steps=passes, steps_with_draft=accepted, drafted=accepted, accepted=accepted,
            tested=accepted, output_tokens=tokens,
            drafted_per_position=(accepted,) * (accepted > 0),
            accepted_per_position=(accepted,) * (accepted > 0),
        ),
        observe_s=0.001, decode_s=decode_s, identical=identical,
    )  # fmt: skip


def made_up(speeds, sessions=24):
    """Outcomes of cells on sessions of one item, each with (passes on half 0, on half 1)."""
    traces = {"t": items_of(sessions, per_session=1)}
    outcomes = {
        cell: {"t": [outcome(60, passes[i.half] + n % 3) for n, i in enumerate(traces["t"])]}
        for cell, passes in speeds.items()
    }
    assert {item.half for item in traces["t"]} == {0, 1}
    return traces, outcomes


FLAT = cost_by_curve(CostCurve({1: 1.0, 2: 1.0}))
OWN = {"auto": AUTO, "ngram": NGRAM, "none": PLAIN}
