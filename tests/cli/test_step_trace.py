"""`akunu generate --trace`: the steps as it prints them."""

import re

import pytest

from akunu_py.cli import step_trace
from akunu_py.cli.step_trace import StepTrace
from akunu_py.values.decode_stats import DraftedToken, StepDetail, StepStats
from akunu_py.values.types import StreamEvent

NAMES = {1: "a", 2: '"\x1b[2J', 3: "\n", 4: "\x9b\u2028", 5: "é"}


def event(text, detail):
    stats = StepStats("x", 0, 0, 0, 0, "bonus", 0.0, 0.0, 0.0, lambda: detail)
    return StreamEvent(text, (), stats)


def printed(capsys, *events):
    trace = StepTrace(lambda ids: "".join(NAMES[token] for token in ids))
    for each in events:
        trace.feed(each)
    return capsys.readouterr().out.splitlines()


def test_a_step_by_rejection(capsys):
    drafted = (
        DraftedToken(1, -1, True, None, 0.5, 0.25, 0.125, "ngram"),
        DraftedToken(5, 0, False, None, 0.1, 0.4, 0.75),
        DraftedToken(1, 1, None),
    )
    detail = StepDetail(20, "draft-model", 0, drafted, 3, "recovered", "residual", 0.25, 5)
    assert printed(capsys, event("aé", detail)) == [
        "step 1 · position 20 · 3 drafted by draft-model · H 0.250 · gamma 5",
        '  ✓ "a" (1)  by ngram  p 0.5  q 0.25  p/q 2  uniform 0.125',
        '  ✗ "é" (5)  p 0.1  q 0.4  p/q 0.25  uniform 0.75',
        '  · "a" (1)',
        '  1 accepted, recovered "\\n" (3): from the residual',
        '  text: "aé"',
    ]


def test_matches_trees_and_plain_steps(capsys):
    tree = (DraftedToken(1, -1, False, 0.5), DraftedToken(5, -1, True), DraftedToken(1, 1, True))
    details = [
        StepDetail(4, "tree", 3, tree, 3, "bonus", "target"),
        StepDetail(7, "", 0, (), 1, "bonus", "target"),
    ]
    lines = printed(capsys, *(event("x" * 50, detail) for detail in details))
    assert lines[0] == "step 1 · position 4 · 3 drafted by tree · context of 3"
    assert lines[1] == '  ✗ "a" (1)  first  confidence 0.5'
    assert lines[3] == '  ✓ "a" (1)  after 1'
    assert lines[4] == '  2 accepted, bonus "\\n" (3): from the target\'s distribution'
    assert lines[6] == "step 2 · position 7 · nothing drafted"
    assert lines[7] == '  bonus "a" (1): from the target\'s distribution'
    assert lines[8] == f'  text: …"{"x" * 72}"'


@pytest.mark.parametrize("terminal", [False, True])
def test_no_control_character_reaches_the_terminal(capsys, monkeypatch, terminal):
    monkeypatch.setattr(step_trace.sys.stdout, "isatty", lambda: terminal)
    drafted = (DraftedToken(2, -1, True), DraftedToken(4, 0, True))
    detail = StepDetail(0, "mine\x1b[2J" if terminal else "mine", 0, drafted, 2, "bonus", "target")
    lines = printed(capsys, event(NAMES[2] + NAMES[4], detail))
    assert lines[1] == '  ✓ "\\"\\u001b[2J" (2)'
    assert lines[2] == '  ✓ "\\u009b\\u2028" (4)'
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "".join(lines))


def test_an_event_without_a_step_prints_nothing(capsys):
    assert printed(capsys, StreamEvent("", ())) == []
