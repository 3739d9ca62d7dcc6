"""The report of `akunu doctor --full`: what follows from figures, the page, the JSON and its schema."""

import dataclasses
import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from full_reports import FIGURES, GB, a_mac, arm, replies, report, size_cost
from machines import FAST, linux
from pairwise import each_value

from akunu_py.diagnosis.full.kept import json_text
from akunu_py.diagnosis.full.page import page, summary
from akunu_py.diagnosis.full.report import (
    NO_TIME,
    Costs,
    Difference,
    Part,
    Prefill,
    PrefillLength,
    Report,
    Rows,
    Speed,
)
from akunu_py.diagnosis.full.run import PLANS
from akunu_py.models.row_bits import RowDifference

SCHEMA = json.loads((files("akunu_py.diagnosis.full") / "report.schema.json").read_text())
DOCS = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"


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
        "macOS 26.1, arm64",
        "Apple M4, 10 processors",
        "| Mac | Mac16,10 |",
        "| GPU cores | 10 |",
        "| memory | 34.4 GB |",
        "| memory for the GPU | 22.9 GB |",
        "metal: Apple M4",
        "| model | Qwen3-8B-Q4\\_K\\_M.gguf |".replace("\\_", "_"),
        "| greedy | 0.0 | 30 of 176 | 64 | 30 of 30 | 500 of 900 |",
        "| 5 | 37.50 ms | 1.50 (1.35 to 1.65) | 34% (31% to 37%) | 30 of 30 | 0.01 |",
        "| 2 | 27.50 ms | 1.10 (0.99 to 1.21) | 10% (9% to 11%) | 0 of 32 | - |",
        "| edit | decoding with drafts | 100.0 | 2.50 (2.10 to 2.90) | 12 | 12 of 12 |",
        "3.10, 1.40, 1.50 s from the start",
        "512 tokens is read at 931 tokens/s",
        "| 512 | 6.0 GB | 6.0 GB |",
        "a plain step takes 25.00 ms, which is 40.0 tokens/s",
        "40.0 tokens/s would be possible",
        "The last table says",
        "| reading prompts | measured | 1.0 s | 18 s |  |",
    ):
        assert words in text
    # What else the program said of displays stays out of it.
    assert "Joe" not in text
    assert "BLAS" not in text
    assert "| not enough items" not in text


def test_the_answers_of_a_mac():
    assert summary(report()) == [
        "Rows of a pass are not bit-equal to rows fed alone, so drafting can change the choice between two tokens that are almost equally likely.",
        "30 of 30 greedy replies are the same with and without drafting.",
        "30 of 30 sampled replies are the same with and without drafting.",
        "30 of 30 reproducible replies are the same with and without drafting.",
        "Plain decoding, edit prompts: 1.01 (0.99 to 1.03) times the speed of mlx-lm's loop.",
        "Decoding with drafts, edit prompts: 2.50 (2.10 to 2.90) times the speed of mlx-lm's loop.",
        "Plain decoding, prose prompts: 1.00 (0.98 to 1.02) times the speed of mlx-lm's loop.",
        "Decoding with drafts, prose prompts: 1.10 (1.00 to 1.20) times the speed of mlx-lm's loop.",
        "A draft of 1 token saves time if each token is right with a probability above 10% (9% to 11%).",
        "A draft of 4 tokens saves time if each token is right with a probability above 34% (31% to 37%).",
        "A new process gives its first token after 1.5 s.",
        "A prompt of 512 tokens is read at 931 tokens/s and takes 6.0 GB of memory in all.",
    ]
    assert [severity for severity, _ in said(report())] == ["note", "note"]


def test_drafts_that_never_pay():
    sizes = (
        size_cost(1, 1.0, 0.0),
        replace(size_cost(5, 6.0, 0.0), pays_from=None, pays_from_low=0.9, pays_from_high=None),
    )
    (line,) = [
        line
        for line in summary(report(costs=replace(FIGURES["costs"], sizes=sizes)))
        if "draft of" in line
    ]
    assert line == "A draft of 4 tokens never saves time (90% to never)."


def test_no_ratio_without_an_interval():
    few = report(
        speed=Speed(16, (arm("edit", "mlx-lm", pairs=2), arm("edit", "auto", pairs=2))),
        costs=replace(
            FIGURES["costs"], rounds=3,
            sizes=tuple(replace(size_cost(5, 1.5, 0.3), cost=None, low=None, high=None,
                                pays_from=None, pays_from_low=None, pays_from_high=None)
                        for _ in range(1)),
        ),
    )  # fmt: skip
    text = page(few)
    assert "| edit | decoding with drafts | 40.0 | not enough items | 2 | 2 of 2 |" in text
    assert "| 5 | 37.50 ms | not enough items |  | 30 of 30 | 0.01 |" in text
    answers = summary(few)
    assert (
        "Decoding with drafts, edit prompts: not enough items (2) to compare with mlx-lm's loop."
        in answers
    )
    assert not [line for line in answers if "draft of" in line]
    assert (
        "note",
        "there was no time for ratios with intervals: the costs of passes, the speed next to mlx-lm",
    ) in said(few)
    assert few.findings[-1].advice == "Give more time: --minutes 15."
    checked(few)


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"greedy": replies(identical=29, differences=(Difference("edit/x", 7, 0.001),))},
         "warning", "drafting changed 1 of 30 greedy replies"),
        ({"greedy": replies(identical=29, differences=(Difference("edit/x", 7, 0.5),)),
          "rows": Rows(True, True, ())}, "warning", "drafting changed 1 of 30 greedy replies"),
        ({"greedy": replies(identical=29, differences=(Difference("edit/x", 7, 0.5, "equal"),))},
         "error", "drafting changed 1 of 30 greedy replies"),
        ({"sampled": replies(0.8, identical=28, differences=(Difference("a", 0, None),) * 2),
          "rows": Part("failed", note="RuntimeError: no")}, "warning", "drafting changed 2 of 30 sampled"),
        ({"reproducible": replies(reproducible=True, identical=29, differences=(Difference("edit/x", 0, 0.1),))},
         "error", "drafting changed 1 of 30 reproducible"),
        ({"rows": Rows(False, False, ())}, "error", "rows of reproducible passes are not bit-equal"),
        ({"rows": Rows(True, True, (RowDifference(9, 27, 1, 1e-5), RowDifference(33, 33, 2, 1e-5)))},
         "error", "rows seem to be bit-equal, and in passes of 9, 33 rows they are not"),
        ({"speed": Speed(96, (arm("prose", "auto", 0.9, 0.85, 0.95),))},
         "warning", "decoding with drafts of prose prompts ran at 0.90 (0.85 to 0.95) times the speed"),
        ({"speed": Speed(96, (arm("edit", "none", 0.9, 0.85, 0.96),))},
         "warning", "plain decoding of edit prompts ran at 0.90"),
        ({"prefill": Prefill((PrefillLength(512, (1.0,), 2 * GB, GB),))},
         "warning", "a prompt of 512 tokens took 2.0 GB of memory, and 1.0 GB were foreseen"),
        ({"sampled": Part("failed", note="RuntimeError: [METAL] out of memory")},
         "error", "sampled replies could not be measured: RuntimeError: [METAL] out of memory"),
        ({"speed": Part("failed", note="nothing fits", refused=True)},
         "warning", "the speed next to mlx-lm could not be measured: nothing fits"),
        ({"load": Part("failed", note="no such type", refused=True)},
         "error", "loading the model could not be measured: no such type"),
        ({"prefill": Part("skipped", note=NO_TIME)}, "note", "there was no time left for reading prompts"),
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
        {"speed": Speed(96, (arm("edit", "auto", 0.9, 0.7, 0.98),))},
        {"rows": Rows(True, None, (RowDifference(9, 27, 0, 0.0),))},
        {"prefill": Prefill((PrefillLength(512, (1.0,), GB, GB),))},
    ],
)
def test_what_nothing_follows_from(changes):
    assert {severity for severity, _ in said(report(**changes))} == {"note"}


def test_rows_that_are_bit_equal():
    found = report(rows=Rows(True, True, (RowDifference(5, 30, 0, 0.0),), 2048))
    assert summary(found)[0].startswith("Rows of a pass are bit-equal")
    assert "at the beginning of a text and behind 2,048 tokens" in summary(found)[0]
    assert len(found.findings) == len(report().findings) - 1


def test_differences_are_listed():
    differing = tuple(Difference(f"edit/{number}", number, 0.002 * number) for number in range(12))
    text = page(report(greedy=replies(identical=18, differences=differing)))
    assert "| greedy | edit/3 | 3 | 0.006 |" in text
    assert "edit/11" not in text
    assert (
        len(
            checked(report(greedy=replies(identical=18, differences=differing)))["parts"]["greedy"][
                "figures"
            ]["differences"]
        )
        == 12
    )


def test_a_busy_machine():
    system = a_mac()
    system.busy = 8.5
    ((severity, text),) = [one for one in said(report(system)) if "busy" in one[1]]
    assert severity == "note"
    assert "a load of 8.5 on 10 processors" in text
    system.busy = None
    assert checked(report(system))["machine"]["load"] is None
    assert "load at" not in page(report(system))


def test_linux_on_the_page():
    text = page(report(linux(found=FAST)))
    assert "| BLAS | OpenBLAS 0.3.34 |" in text
    assert "Mac |" not in text
    assert "GPU" not in text
    checked(report(linux(found=FAST)))


@pytest.mark.parametrize(
    ("name", "state"),
    each_value(
        [plan.name for plan in PLANS], ["failed", "skipped", "interrupted", "running", "waiting"]
    ),
)
def test_any_part_may_be_missing(name, state):
    found = report(state="interrupted", **{name: Part(state, note="some reason")})
    assert checked(found)["parts"][name]["figures"] is None
    assert f"| {state} |" in page(found)


def test_nothing_was_measured_at_all():
    found = report(model=None, state="unfinished", **{plan.name: Part("running") for plan in PLANS})
    assert "**Unfinished:**" in page(found)
    assert summary(found) == []
    assert checked(found)["model"] is None
    assert "**Interrupted:**" in page(report(state="interrupted"))


def test_numbers_that_are_none():
    """JSON has no NaN; a strict reader would refuse the file."""
    rows = Rows(False, True, (RowDifference(5, 30, 30, math.nan), RowDifference(8, 8, 1, math.inf)))
    record = checked(report(rows=rows))
    assert [one["largest"] for one in record["parts"]["rows"]["figures"]["by_size"]] == [None, None]
    assert page(report(rows=rows))


def test_texts_from_outside_are_no_markup():
    hostile = replace(report().model, name="a|b <img src=x> [x](javascript:1) `c`")
    text = page(report(model=hostile, greedy=Part("failed", note="| <b>\n# x")))
    assert "<img" not in text
    assert "<b>" not in text
    assert "[x](" not in text
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

    collect(SCHEMA)
    for entry in SCHEMA["$defs"].values():
        collect(entry)
    text = DOCS.read_text(encoding="utf-8").split("## The file of --full")[1]
    text = text.split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", text)) == names


def test_every_value_is_in_the_schema():
    """Fields that are added to a value must be added there."""
    for kind, name in ((Costs, "costs"), (Prefill, "prefill"), (Rows, "rows"), (Speed, "speed")):
        known = SCHEMA["$defs"][name]["required"]
        assert [field.name for field in dataclasses.fields(kind)] == known
    assert {field.name for field in dataclasses.fields(Report)} - {"limit_s"} <= set(
        SCHEMA["required"]
    )
    assert [plan.name for plan in PLANS] == SCHEMA["properties"]["parts"]["required"]
