"""Rows as JSON: what is written is read again, what no file may hold is refused by its place."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.reply import Pass
from akunu_py.bench.rows import encode, parse, plain, typed
from akunu_py.bench.run import BenchRun, Findings
from akunu_py.bench.tables import Column, Table
from akunu_py.system.errors import ConfigError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_what_json_can_say_survives(value):
    assert parse(encode(value), "it") == plain(value)
    assert json.loads(encode(value, indent=1)) == plain(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [0.0, float("nan")]}, r"it\.a\[1\] is nan; JSON has no such value"),
        ({"a": float("-inf")}, r"it\.a is -inf"),
        ({"a": 2**64}, r"it\.a is 18446744073709551616"),
        ({"a": object()}, "it cannot be written as JSON"),
    ],
)
def test_what_json_cannot_say(value, words):
    with pytest.raises(ConfigError, match=words):
        encode(value, "it")


def test_nesting_ends():
    value = []
    for _ in range(40):
        value = [value]
    with pytest.raises(ConfigError, match="nested more than 32 levels deep"):
        encode(value)
    with pytest.raises(ConfigError, match="it is not valid JSON"):
        parse("[" * 100_000, "it")


def test_names_that_are_not_unicode_can_be_written():
    """A path of bytes that are not UTF-8 is a text with half surrogate pairs in Python."""
    assert parse(encode({"model": "m\udcff.gguf"}), "it") == {"model": "m?.gguf"}


def test_a_pass_is_three_numbers():
    assert encode((Pass(4, 2, 3),)) == "[[4,2,3]]"
    assert typed([[4, 2, 3]], tuple[Pass, ...], "it") == (Pass(4, 2, 3),)
    with pytest.raises(ConfigError, match=r"it: field \[0\]\[1\]: Expected int >= 0"):
        typed([[4, -2, 3]], tuple[Pass, ...], "it")


def test_a_table_takes_a_ratio_apart():
    columns = (
        Column("name", "name"),
        *Column.ratio("speed", "the\nspeed", ".3f", "x", range_form=".1f"),
    )
    records = [
        {"name": "a", "speed": Ratio(1.25, 1.11, 1.39, 9)},
        {"name": "b", "speed": Ratio(None, None, None, 2)},
        {"name": "c", "speed": None},
    ]
    table = Table.of("t", "T", columns, records, total_rows=1)
    assert table.rows == (
        ("a", 1.25, "1.1-1.4", 1.11, 1.39),
        ("b", None, "not enough items", None, None),
        ("c", None, None, None, None),
    )
    assert [column.name for column in table.on_terminal().columns] == [
        "name",
        "speed",
        "speed_range",
    ]
    texts = [column.text(cell) for column, cell in zip(columns, table.rows[0], strict=True)]
    assert texts[1:4] == ["1.250x", "1.1-1.4", "1.110x"]
    with pytest.raises(KeyError):
        Table.of("t", "T", columns, [{"name": "a"}])


def test_a_run_becomes_a_result():
    run = BenchRun("replay", {"limit": 2, "drafter": ("a", "b"), "traces": (Path("t.jsonl"),)})
    findings = Findings(
        deterministic={"speed": Ratio(1.0, 0.9, 1.1, 5)},
        items=({"id": "a", "category": "c"},),
        finished=False,
    )
    result = run.result(findings)
    assert result.command == "replay"
    assert result.arguments == {"limit": 2, "drafter": ["a", "b"], "traces": ["t.jsonl"]}
    assert 0 <= result.seconds < 60
    assert not result.finished
    assert result.deterministic["speed"] == {"ratio": 1.0, "low": 0.9, "high": 1.1, "pairs": 5}
