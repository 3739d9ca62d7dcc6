"""Result files and their rows: what is written is read again, what is malformed is refused by name."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from bench.result_values import TABLE, result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.reply import Pass
from akunu_py.bench.result_file import BenchResult, Costs
from akunu_py.bench.rows import encode, parse, plain, typed
from akunu_py.bench.run import BenchRun, Findings
from akunu_py.bench.tables import Column, Table
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve

SCHEMA = msgspec.json.schema(BenchResult)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def record():
    return plain(result())


def test_the_schema_takes_results():
    """docs/measuring.md says how to get it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    VALIDATOR.validate(record())
    bare = result(model=None, costs=None, items=(), failures=(), tables=(), timing={})
    VALIDATOR.validate(plain(bare))


def _drop(*path):
    def change(value):
        for name in path[:-1]:
            value = value[name]
        del value[path[-1]]

    return change


def _put(new, *path):
    def change(value):
        for name in path[:-1]:
            value = value[name]
        value[path[-1]] = new

    return change


MALFORMED = {
    "another format": (_put("akunu bench result 9", "format"), "this version reads.*run its"),
    "the format before": (_put("akunu bench result 1", "format"), "this version reads.*run its"),
    "no environment": (_drop("environment"), "missing required field environment"),
    "a field too many": (_put(1, "extra"), "unknown field extra"),
    "a number for a text": (_put(1, "command"), "command: Expected str, got int"),
    "an empty command": (_put("", "command"), "command: Expected str of length >= 1"),
    "negative seconds": (_put(-1, "seconds"), "seconds: Expected float >= 0"),
    "finished by number": (_put(1, "finished"), "finished: Expected bool, got int"),
    "processors by text": (
        _put("2", "environment", "cpu_count"),
        "environment.cpu_count: Expected int, got str",
    ),
    "seconds that are deterministic": (_put(1.0, "deterministic", "total", "decode_s"), "decode_s"),
    "costs of half a row": (_put(1.0, "costs", "costs", "1.5"), "costs.costs: Expected int"),
    "a cost of zero": (_put(0, "costs", "costs", "2"), "cost curve needs positive"),
    "a ratio without pairs": (_drop("timing", "ratios", "speedup", "pairs"), "field pairs"),
    "a ratio by text": (
        _put("1", "timing", "ratios", "speedup", "ratio"),
        "ratios.*Expected float",
    ),
    "an item without a category": (_drop("items", 0, "category"), "no id or no category"),
    "an item that is not an object": (_put(3, "items", 0), r"items\[0\]: Expected object, got int"),
    "a short row": (_put(["edit"], "tables", 0, "rows", 0), "1 cells for 3 columns"),
    "a list in a cell": (
        _put(["a", [1], 2], "tables", 0, "rows", 0),
        r"rows\[0\]\[1\]: Expected .*got array",
    ),
    "a long row": (_put([None] * 4, "tables", 0, "rows", 0), "4 cells for 3"),
    "a table's name that is a path": (_put("../x", "tables", 0, "name"), r"tables\[0\].name: "),
    "a format that is none": (_put("zz", "tables", 0, "columns", 1, "form"), "format 'zz'"),
    "a failure without a reason": (_drop("failures", 0, "error"), "missing required field error"),
    "a time of no zone": (_put("2026-01-02T03:04:05", "started"), "started: Expected str"),
}
BY_READER_ALONE = {
    "seconds that are deterministic", "a short row",
    "a format that is none", "a long row", "a cost of zero", "a ratio without pairs", "a ratio by text",
    "an item without a category", "costs of half a row",
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_results_are_refused_by_name(name, tmp_path):
    change, message = MALFORMED[name]
    value = record()
    change(value)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigError, match=message) as caught:
        BenchResult.read(path)
    assert str(path) in str(caught.value)
    if name not in BY_READER_ALONE:
        assert not VALIDATOR.is_valid(value)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(constant, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(record()).replace("2.5", constant))
    with pytest.raises(ConfigError, match=r"result\.json"):
        BenchResult.read(path)
    with pytest.raises(ConfigError, match="JSON has no such value"):
        encode(result(deterministic={"total": {"hit_rate": float(constant)}}))


def test_a_missing_file_and_a_folder_in_its_place(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        BenchResult.read(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot write"):
        result().write(tmp_path / "none" / "result.json")


def test_a_terminal_gets_no_details():
    shown = TABLE.on_terminal()
    assert [column.name for column in shown.columns] == ["category", "hit_rate"]
    assert shown.rows[2] == ("all", 1 / 3)
    assert replace(TABLE, columns=shown.columns, rows=shown.rows) == shown


def test_cells_of_every_kind():
    column = Column("x", "x", ".1f", " ms")
    assert [column.text(value) for value in (None, True, False, "a", 2, 0.25)] == [
        "-", "yes", "no", "a", "2.0 ms", "0.2 ms",
    ]  # fmt: skip


FALLING = {1: 1.0, 5: 1.46, 33: 1.2}


def test_implausible_costs_are_named():
    assert result().doubts == ()
    (measured,) = result(costs=Costs(0.1, FALLING)).doubts
    assert measured.startswith("the measured costs: C(33) = 1.20 is below C(5) = 1.46")
    curve = CostCurve(FALLING)
    loaded = result(
        deterministic={"costs": {"mine": curve.by_rows, "gentle": {"1": 1.0, "2": 1.1}}}
    )
    (named,) = BenchResult.parse(encode(loaded)).doubts
    assert named.startswith("mine: C(33)")


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
    assert [one.name for one in table.on_terminal().columns] == ["name", "speed", "speed_range"]
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
