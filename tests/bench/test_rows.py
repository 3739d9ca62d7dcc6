"""Rows as JSON: what is written is read again, what no file may hold is refused by its place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.reply import Pass
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import encode, parse, plain, typed
from akunu_py.bench.run import BenchRun, Findings
from akunu_py.bench.tables import Column, ratio_columns, table_of
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import DecodeStats

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


@pytest.mark.lab
def test_counts_of_the_engine_are_checked_as_rows(tmp_path):
    from akunu_lab.replay.runner import ItemCounts

    counts = ItemCounts(DecodeStats(steps=3, drafted_per_position=(2, 1)), 0.5, None, True)
    with ItemStore(tmp_path, {}) as store:
        store.put("a", counts)
        with pytest.raises(ConfigError, match=r"the item b\.stats\.steps is -1"):
            store.put("b", ItemCounts(DecodeStats(steps=-1)))
    with ItemStore(tmp_path, {}) as store:
        assert store.get("a", ItemCounts) == counts
        with pytest.raises(ConfigError, match="the finished a: Object contains unknown field"):
            store.get("a", Ratio)
    path = tmp_path / "items.jsonl"
    path.write_text(path.read_text().replace('"steps":3', '"steps":-3') + '{"key":"b","item":1}\n')
    with pytest.raises(ConfigError, match=r"line 2 of .*steps is -3; it should be 0 or more"):
        ItemStore(tmp_path, {})


def test_a_pass_is_three_numbers():
    assert encode((Pass(4, 2, 3),)) == "[[4,2,3]]"
    assert typed([[4, 2, 3]], tuple[Pass, ...], "it") == (Pass(4, 2, 3),)
    with pytest.raises(ConfigError, match=r"it: field \[0\]\[1\]: Expected int >= 0"):
        typed([[4, -2, 3]], tuple[Pass, ...], "it")


def test_a_table_takes_a_ratio_apart():
    columns = (
        Column("name", "name"),
        *ratio_columns("speed", "the\nspeed", ".3f", "x", range_form=".1f"),
    )
    records = [
        {"name": "a", "speed": Ratio(1.25, 1.11, 1.39, 9)},
        {"name": "b", "speed": Ratio(None, None, None, 2)},
        {"name": "c", "speed": None},
    ]
    table = table_of("t", "T", columns, records, total_rows=1)
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
    assert "1.250x | 1.1-1.4 | 1.110x" in table.markdown()
    with pytest.raises(KeyError):
        table_of("t", "T", columns, [{"name": "a"}])


def test_a_run_becomes_a_result_and_counts_the_seconds_of_all_its_parts(tmp_path):
    arguments = {"limit": 2, "drafter": ("a", "b")}
    with BenchRun(tmp_path, "replay", arguments, inputs={"hash": "1"}) as run:
        run.store.put("row", {"n": 1})
    kept = json.loads((tmp_path / "items.jsonl").read_text().splitlines()[1])
    assert kept["seconds"] > 0
    path = tmp_path / "items.jsonl"
    path.write_text(path.read_text().replace(f'"seconds":{kept["seconds"]!r}', '"seconds":99.5'))
    with BenchRun(tmp_path, "replay", arguments, inputs={"hash": "1"}) as run:
        findings = Findings(
            deterministic={"speed": Ratio(1.0, 0.9, 1.1, 5)},
            items=({"id": "a", "category": "c"},),
            finished=False,
        )
        result = run.result(findings)
    assert (result.command, result.arguments["drafter"]) == ("replay", ["a", "b"])
    assert result.seconds > 99.5
    assert not result.finished
    assert result.deterministic["speed"] == {"ratio": 1.0, "low": 0.9, "high": 1.1, "pairs": 5}
    with pytest.raises(ConfigError, match="another run: hash was '1' and is '2'"):
        BenchRun(tmp_path, "replay", arguments, inputs={"hash": "2"})
