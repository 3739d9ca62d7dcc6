"""The report of `akunu bench machine`: what follows from figures, the page, the JSON and its schema."""

import dataclasses
import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from machine_reports import FIGURES, GB, MAC, arm, replies, report, size_cost
from pairwise import each_value

from akunu_lab.machine.page import json_text, page, summary
from akunu_lab.machine.parts import PARTS
from akunu_lab.machine.prefill import PrefillFigures, PrefillLength
from akunu_lab.machine.replies import ChangedReply
from akunu_lab.machine.report import NO_TIME, READING_ORDER, FullReport, ReportPart
from akunu_lab.machine.rows import RowDifference, RowFigures
from akunu_lab.machine.speed import SpeedFigures

SCHEMA = json.loads((files("akunu_lab.machine") / "report.schema.json").read_text())
DOCS = Path(__file__).resolve().parents[2] / "docs" / "machine.md"


def said(found):
    return [(finding.severity, finding.text) for finding in found.findings]


def checked(found):
    """The record as a reader of the file gets it, valid by the schema."""
    record = json.loads(json_text(found))
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    return record


def test_a_mac_on_the_page():
    text = page(report())
    for words in (
        "| system | macOS 26.1 |",
        "| mac model | Mac16,10 |",
        "| gpu cores | 10 |",
        "| memory | 34.4 GB |",
        "| working set | 22.9 GB |",
        "| mlx-lm | 1.0 |",
        "| name | Qwen3-8B-Q4_K_M.gguf |",
        "equal: no; context: 0",
        "| 5 | 30 | 30 | 0.0125 |",
        "| greedy | 0 | no | 64 | 30 | 176 | 0 | 30 | 900 | 500 |",
        "| category | arm | tokens/s | ratio | low | high | pairs | identical |",
        "| edit | auto | 100 | 2.5 | 2.1 | 2.9 | 12 | 12 |",
        "plain step: 25 ms; rounds: 9; copy: 200.0 GB/s; step: 5.0 GB; replay: 3 ms; tokens/s: 40; possible tokens/s: 40",
        "| rows | pass | cost | low | high | pays from | pays from low | pays from high |",
        "| 5 | 37.5 ms | 1.5 | 1.35 | 1.65 | 34% | 31% | 37% |",
        "time: 3.10 s, 1.40 s, 1.50 s",
        "time: 900 ms",
        "tokens: 512; time: 600 ms, 500 ms, 550 ms; peak: 6.0 GB; foreseen: 6.0 GB; tokens/s: 931",
        "limit: 22.0 GB; together: 5.6 GB",
        "The last table says",
        "| reading prompts | measured | 1.00 s | 18.00 s |  | no |",
    ):
        assert words in text
    # What else the program said of displays stays out of it.
    assert "Joe" not in text
    assert "blas" not in text
    checked(report())


def test_the_answers_of_a_mac():
    assert summary(report()) == [
        "150 tests passed on this device and 0 failed.",
        "Rows of a pass are not bit-equal to rows fed alone, so drafting can change the choice between two tokens that are almost equally likely.",
        "30 of 30 greedy replies are the same with and without drafting.",
        "30 of 30 sampled replies are the same with and without drafting.",
        "30 of 30 reproducible replies are the same with and without drafting.",
        "Plain decoding, edit prompts: 1.01 (0.99 to 1.03) times the speed of mlx-lm's loop.",
        "Decoding with drafts, edit prompts: 2.50 (2.10 to 2.90) times the speed of mlx-lm's loop.",
        "Plain decoding, prose prompts: 1.00 (0.98 to 1.02) times the speed of mlx-lm's loop.",
        "Decoding with drafts, prose prompts: 1.10 (1.00 to 1.20) times the speed of mlx-lm's loop.",
        "llama.cpp-plain decodes 0.95 (0.90 to 1.00) times as fast as mlx-lm.",
        "A draft of 1 token saves time if each token is right with a probability above 10% (9% to 11%).",
        "A draft of 4 tokens saves time if each token is right with a probability above 34% (31% to 37%).",
        "A new process gives its first token after 1.5 s.",
        "A prompt of 512 tokens is read at 931 tokens/s and takes 6.0 GB of memory in all.",
    ]
    assert [severity for severity, _ in said(report())] == ["note", "note"]


def test_drafts_that_never_pay():
    never = replace(size_cost(5, 6.0, 0.9), pays_from=None, pays_from_high=None)
    found = report(costs=replace(FIGURES["costs"], sizes=(size_cost(1, 1.0, 0.0), never)))
    (line,) = [line for line in summary(found) if "draft of" in line]
    assert line == "A draft of 4 tokens never saves time (81% to never)."


def test_no_ratio_without_an_interval():
    unknown = dict.fromkeys(("cost", "low", "high", "pays_from", "pays_from_low", "pays_from_high"))
    few = report(
        speed=SpeedFigures(16, (arm("edit", "mlx-lm", pairs=2), arm("edit", "auto", pairs=2))),
        costs=replace(FIGURES["costs"], rounds=3, sizes=(replace(size_cost(5, 1.5, 0.3), **unknown),)),
    )  # fmt: skip
    assert "| edit | auto | 40 | - | - | - | 2 | 2 |" in page(few)
    answers = summary(few)
    assert "Decoding with drafts, edit prompts: not enough items (2) to compare with mlx-lm's loop." in answers  # fmt: skip
    assert not [line for line in answers if "draft of" in line]
    missing = (
        "there was no time for ratios with intervals: the costs of passes, the speed next to mlx-lm"
    )
    assert ("note", missing) in said(few)
    assert few.findings[-1].advice == "Give more time: --minutes 15."
    checked(few)


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"greedy": replies(identical=29, differences=(ChangedReply("edit/x", 7, 0.001),))},
         "warning", "drafting changed 1 of 30 greedy replies"),
        ({"greedy": replies(identical=29, differences=(ChangedReply("edit/x", 7, 0.5, "equal"),))},
         "error", "drafting changed 1 of 30 greedy replies"),
        ({"sampled": replies(0.8, identical=28, differences=(ChangedReply("a", 0, None),) * 2),
          "rows": ReportPart("failed", note="RuntimeError: no")}, "warning", "drafting changed 2 of 30 sampled"),
        ({"reproducible": replies(reproducible=True, identical=29, differences=(ChangedReply("edit/x", 0, 0.1),))},
         "error", "drafting changed 1 of 30 reproducible"),
        ({"speed": SpeedFigures(96, (arm("prose", "auto", 0.9, 0.85, 0.95),))},
         "warning", "decoding with drafts of prose prompts ran at 0.90 (0.85 to 0.95) times the speed"),
        ({"speed": SpeedFigures(96, (arm("edit", "none", 0.9, 0.85, 0.96),))},
         "warning", "plain decoding of edit prompts ran at 0.90"),
        ({"prefill": PrefillFigures((PrefillLength(512, (1.0,), 2 * GB, GB),))},
         "warning", "a prompt of 512 tokens took 2.0 GB of memory, and 1.0 GB were foreseen"),
        ({"sampled": ReportPart("failed", note="RuntimeError: [METAL] out of memory")},
         "error", "sampled replies could not be measured: RuntimeError: [METAL] out of memory"),
        ({"speed": ReportPart("failed", note="nothing fits", refused=True)},
         "warning", "the speed next to mlx-lm could not be measured: nothing fits"),
        ({"load": ReportPart("failed", note="no such type", refused=True)},
         "error", "loading the model could not be measured: no such type"),
        ({"prefill": ReportPart("skipped", note=NO_TIME)}, "note", "there was no time left for reading prompts"),
    ],
)  # fmt: skip
def test_what_follows_from_figures(changes, severity, words):
    found = report(**changes)
    assert [one for one, text in said(found) if text.startswith(words)] == [severity]
    checked(found)
    assert "None" not in page(found)


@pytest.mark.parametrize(
    "changes",
    [
        {"speed": SpeedFigures(96, (arm("edit", "auto", 0.9, 0.7, 0.98),))},
        {"rows": RowFigures(True, (RowDifference(9, 27, 0, 0.0),))},
        {"prefill": PrefillFigures((PrefillLength(512, (1.0,), GB, GB),))},
    ],
)
def test_what_nothing_follows_from(changes):
    assert {severity for severity, _ in said(report(**changes))} == {"note"}


def test_rows_that_are_bit_equal():
    found = report(rows=RowFigures(True, (RowDifference(5, 30, 0, 0.0),), 2048))
    assert summary(found)[1].startswith("Rows of a pass are bit-equal")
    assert "at the beginning of a text and behind 2,048 tokens" in summary(found)[1]
    assert len(found.findings) == len(report().findings) - 1


def test_differences_are_listed():
    differing = tuple(
        ChangedReply(f"edit/{number}", number, 0.002 * number) for number in range(22)
    )
    found = report(greedy=replies(identical=8, differences=differing))
    text = page(found)
    assert "| greedy | edit/3 | 3 | 0.006 | unknown |" in text
    assert "edit/20" not in text
    assert "The file of figures has 2 more." in text
    assert len(checked(found)["parts"]["greedy"]["figures"]["differences"]) == 22


def test_what_is_unknown_of_a_machine():
    linux = {**MAC, "load": None, "blas": {"name": "OpenBLAS 0.3.34", "own": False, "reason": ""}}
    found = report(linux, {})
    assert "| blas | OpenBLAS 0.3.34 |" in page(found)
    for name in ("mac model", "gpu cores", "load"):
        assert f"| {name} |" not in page(found)
    assert checked(found)["machine"]["load"] is None


@pytest.mark.parametrize(
    ("name", "state"),
    each_value(READING_ORDER, ["failed", "skipped", "interrupted", "running", "waiting"]),
)
def test_any_part_may_be_missing(name, state):
    found = report(state="interrupted", **{name: ReportPart(state, note="some reason")})
    assert checked(found)["parts"][name]["figures"] is None
    assert f"| {state} |" in page(found)


def test_nothing_was_measured_at_all():
    parts = {plan.name: ReportPart("running") for plan in PARTS}
    found = report(model=None, state="unfinished", **parts)
    assert "**Unfinished:**" in page(found)
    assert summary(found) == []
    assert checked(found)["model"] is None
    assert "**Interrupted:**" in page(report(state="interrupted"))


def test_numbers_that_are_none():
    """JSON has no NaN; a strict reader would refuse the file."""
    differing = RowDifference(5, 30, 30, math.nan), RowDifference(8, 8, 1, math.inf)
    found = report(rows=RowFigures(False, differing))
    sizes = checked(found)["parts"]["rows"]["figures"]["by_size"]
    assert [one["largest"] for one in sizes] == [None, None]
    assert "| 5 | 30 | 30 | nan |" in page(found)


def test_texts_from_outside_are_no_markup():
    hostile = replace(report().model, name="a|b <img src=x> [x](javascript:1) `c`")
    differing = (ChangedReply("<i>x</i>", 0, None),)
    text = page(
        report(
            model=hostile, greedy=ReportPart("failed", note="| <b>\n# x"),
            sampled=replies(0.8, identical=29, differences=differing),
        )
    )  # fmt: skip
    for markup in ("<img", "<b>", "<i>", "[x]("):
        assert markup not in text
    assert not re.search(r"^# x", text, re.MULTILINE)


def test_the_documents_have_every_field_and_no_other():
    """Names in code in the part on the file, against the schema."""
    names = set()

    def collect(schema):
        for name, entry in schema.get("properties", {}).items():
            names.add(name)
            collect(entry)
        if "items" in schema:
            collect(schema["items"])

    for schema in (SCHEMA, *SCHEMA["$defs"].values()):
        collect(schema)
    text = DOCS.read_text(encoding="utf-8").split("## The file")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", text)) == names


def test_every_value_is_in_the_schema():
    """Fields that are added to a value must be added there."""
    for plan in PARTS:
        kind = "replies" if plan.name in {"greedy", "sampled", "reproducible"} else plan.name
        names = [field.name for field in dataclasses.fields(FIGURES[plan.name])]
        assert names == SCHEMA["$defs"][kind]["required"]
    assert {field.name for field in dataclasses.fields(FullReport)} - {"limit_s"} <= set(SCHEMA["required"])  # fmt: skip
    assert [plan.name for plan in PARTS] == SCHEMA["properties"]["parts"]["required"]
    assert sorted(READING_ORDER) == sorted(plan.name for plan in PARTS)
