"""`akunu bench steps`: the steps as it prints them."""

import re

from akunu_lab.replay.step_text import step_lines
from akunu_lab.replay.trace_steps import TracedToken, TraceStep

NAMES = {1: "a", 2: '"\x1b[2J', 3: "\n", 4: "\x9b\u2028", 5: "é"}


def printed(*steps):
    return list(step_lines(steps, lambda ids: "".join(NAMES[token] for token in ids)))


def test_a_step_by_rejection():
    drafted = (
        TracedToken(1, -1, accepted=True, p=0.5, q=0.25, uniform=0.125, source="ngram"),
        TracedToken(5, 0, accepted=False, p=0.1, q=0.4, uniform=0.75),
        TracedToken(1, 1),
    )
    step = TraceStep(20, "draft-model", 0, drafted, 1, 3, "recovered", "residual", 0.25, 5)
    assert printed(step) == [
        "step 1 · position 20 · 3 drafted by draft-model · H 0.250 · gamma 5",
        '  ✓ "a" (1)  by ngram  p 0.5  q 0.25  p/q 2  uniform 0.125',
        '  ✗ "é" (5)  p 0.1  q 0.4  p/q 0.25  uniform 0.75',
        '  · "a" (1)',
        '  1 accepted, recovered "\\n" (3): from the residual',
    ]


def test_matches_trees_and_plain_steps():
    tree = (
        TracedToken(1, -1, accepted=False, confidence=0.5), TracedToken(5, -1, accepted=True),
        TracedToken(1, 1, accepted=True),
    )  # fmt: skip
    lines = printed(
        TraceStep(4, "tree", 3, tree, 2, 3, "bonus", "target"),
        TraceStep(7, "", 0, (), 0, 1, "bonus", "target"),
    )
    assert lines[:2] == [
        "step 1 · position 4 · 3 drafted by tree · context of 3",
        '  ✗ "a" (1)  first  confidence 0.5',
    ]
    assert lines[3:] == [
        '  ✓ "a" (1)  after 1',
        '  2 accepted, bonus "\\n" (3): from the target\'s distribution',
        "step 2 · position 7 · nothing drafted",
        '  bonus "a" (1): from the target\'s distribution',
    ]


def test_no_control_character_reaches_the_terminal():
    drafted = (TracedToken(2, -1, accepted=True), TracedToken(4, 0, accepted=True))
    lines = printed(TraceStep(0, "mine\x1b[2J", 0, drafted, 2, 2, "bonus", "target"))
    assert lines[0].endswith('2 drafted by "mine\\u001b[2J"')
    assert lines[1:3] == ['  ✓ "\\"\\u001b[2J" (2)', '  ✓ "\\u009b\\u2028" (4)']
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(lines))
