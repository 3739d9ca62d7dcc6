"""Time of `auto` after long prompts: the text before a reply's own prompt is not of its session."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from measure_auto_drafter import measure_contexts, preceded

from akunu_py.values.cost_curve import CostCurve


def item(number, session=None, size=40):
    """An item whose prompt and reply have tokens of its own."""
    first = 1000 * number
    return {"session": session}, (list(range(first, first + size)), [first + 900, first + 901])


def test_text_of_other_sessions_comes_before_the_prompt():
    items = [item(1, "a"), item(2, "a"), item(3, "b"), item(4, "b"), item(5)]
    prompt, reply = preceded(items, 0, 100)
    assert len(prompt) == 100
    assert prompt[-40:] == items[0][1][0]
    assert reply == items[0][1][1]
    assert {token // 1000 for token in prompt[:-40]} == {3, 4}


def test_items_without_a_session_are_sessions_of_their_own():
    prompt, _ = preceded([item(1), item(2), item(3)], 2, 80)
    assert {token // 1000 for token in prompt} == {1, 3}


def test_a_long_prompt_is_cut_to_its_end():
    items = [item(1), item(2)]
    assert preceded(items, 0, 15)[0] == items[0][1][0][-15:]


def test_too_little_text_of_other_sessions_gives_nothing():
    assert preceded([item(1, "a"), item(2, "a"), item(3, "b")], 0, 100) is None


def test_the_table_has_a_line_for_each_size_that_the_text_allows(capsys):
    files = {
        "short": [item(1), item(2, size=300)],
        "long": [item(1, size=5000), item(2, size=5000)],
    }
    measure_contexts(files, {"flat": CostCurve({1: 1.0, 9: 1.1})})
    rows = [line.split(" | ")[:4] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [["| flat", "long", "2000", "1.0"], ["| flat", "long", "8000", "1.0"]]
