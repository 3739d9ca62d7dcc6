"""Pages of results: what loses stands first, nothing of a file becomes markup, one file is enough."""

import os
import re
import stat
from html.parser import HTMLParser

import pytest
from bench.result_values import ENVIRONMENT, HIT_RATE, TABLE, result
from click.testing import CliRunner
from msgspec.structs import replace

from akunu_lab.commands.report import command_text, report
from akunu_lab.compare import report as compare
from akunu_lab.pages.content import KeptResult, heading_of, make_page, warnings_of
from akunu_lab.pages.forms import html_page, markdown_page
from akunu_lab.replay import report as replay_report
from akunu_lab.study.markdown import markdown_of
from akunu_py.bench import hit_rate_findings, speed
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.tables import Column, Table
from akunu_py.cli.bench import bench

EVIL = "<script>alert(1)</script>\"' ](javascript:x) ../../etc `$(x)`"


def page_of(*results, pictures=False):
    kept = [KeptResult(f"file-{n}", f"akunu bench {n}", one) for n, one in enumerate(results)]
    return make_page(kept, pictures=pictures)


class Markup(HTMLParser):
    """Tags, attributes and text; elements that are opened and not closed in order."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.open, self.wrong = set(), [], [], [], []
        self.feed(html_page(page))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names) or (tag == "img" and "alt" not in names):
            self.wrong.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def ratio(middle, low, high, pairs=4):
    return {"ratio": middle, "low": low, "high": high, "pairs": pairs}


def test_what_a_reader_must_know_is_said_first():
    bad = result(
        finished=False,
        failures=(Failure("edit/two", "too long"),),
        costs=Costs(0.1, {1: 1.0, 5: 1.46, 33: 1.2}),
        environment=replace(ENVIRONMENT, commit="0a1b-dirty"),
        deterministic={
            "total": {"prompts": 4, "identical": 3, "looping_share": 0.1},
            "categories": {"edit": {"prompts": 2, "identical": 1, "looping_share": 0.5}},
        },
        timing={"ratios": {
            "decode": ratio(0.9, 0.8, 0.95),
            "decode/edit": ratio(0.98, 0.8, 1.1),
            # As files of earlier versions have it.
            "decode/prose": ratio(0.7, None, None, 1),
            "decode/novel": ratio(1.3, 1.2, 1.4),
        }},
    )  # fmt: skip
    assert list(warnings_of(bad)) == [
        "unfinished: the run was interrupted after 1 items",
        "1 items failed: edit/two: too long",
        f"implausible costs of passes: {bad.doubts[0]}",
        "replies differ from plain decoding: all 1 of 4, edit 1 of 2",
        "slower: decode 0.90 (0.80 to 0.95)",
        "perhaps slower: decode/edit 0.98 (0.80 to 1.10)",
        "output repeats itself in loops, which drafts predict and readers do not want: edit 50%",
        "measured with changes that were not committed",
    ]
    assert "C(33) = 1.20 is below C(5) = 1.46" in bad.doubts[0]
    for text in (html_page(page_of(bad)), markdown_page(page_of(bad))):
        assert text.count("perhaps slower") == 1
        assert text.index("What to know first") < text.index("perhaps slower") < text.index("Rates")
    # Where times decide what is drafted, the replies are among what times decide.
    total = {"total": {"identical": 1}}
    moved = result(deterministic={"total": {"prompts": 4}}, timing={"drafting": total}, failures=())
    assert list(warnings_of(moved)) == ["replies differ from plain decoding: all 3 of 4"]
    # How other programs compare with each other warns nobody.
    slow = {f"{name}/mlx-lm-plain": ratio(0.5, 0.4, 0.6) for name in ("other", "akunu-plain")}
    compared = result(deterministic={}, timing={"ratios": slow}, failures=())
    assert list(warnings_of(compared)) == ["slower: akunu-plain/mlx-lm-plain 0.50 (0.40 to 0.60)"]
    good = result(failures=(), deterministic={}, timing={})
    assert list(warnings_of(good)) == []
    assert "What to know first" not in html_page(page_of(good)) + markdown_page(page_of(good))


def test_the_page_has_tables_machine_versions_and_command():
    text = " ".join(Markup(page_of(result())).text)
    for said in ("akunu bench 0", "Rates", "a|b <i>", "50%", "Measured.", "MLX 0.32", "x86_64",
                 "0" * 64, "a plain step 10.00 ms", "2026-01-02T03:04:05+00:00"):  # fmt: skip
        assert said in text
    assert markdown_page(page_of(result())).count(markdown_of(TABLE)) == 1


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({}, "Hit-rate: ngram with m on cpu"),
        (
            {
                "command": "compare",
                "arguments": {"drafters": ["auto"], "programs": ["mlx-lm", "llama.cpp"]},
            },
            "Compare: auto next to mlx-lm and llama.cpp with m on cpu",
        ),
        (
            {
                "command": "replay",
                "arguments": {
                    "drafter": [*"abcde"], "traces": ["/x/edits.jsonl"], "curve": ["gentle-slope"]
                },
                "model": None,
            },
            "Replay: 5 drafters on edits.jsonl, passes costing as gentle-slope",
        ),
        ({"command": "of tomorrow", "arguments": {}}, "Of tomorrow with m on cpu"),
    ],
)  # fmt: skip
def test_a_heading_says_what_was_measured(changes, heading):
    assert heading_of(result(**changes)) == page_of(result(**changes)).title == heading


def test_several_results_are_named_by_what_they_have_in_common():
    both = page_of(result(), result(command="compare"))
    assert both.title == "2 measurements of m on cpu"
    html = html_page(both)
    assert f"<title>{both.title}</title>" in html
    assert f"<h1>{both.title}</h1>" in html
    assert markdown_page(both).startswith(f"# {both.title}\n")


def test_a_table_shows_what_matters_and_opens_to_the_rest():
    shown, _, folded = html_page(page_of(result())).partition("<details>")
    headings = [re.findall(r'<th scope="col"[^>]*>([^<]*)<', part) for part in (shown, folded)]
    assert headings == [["category", "hit\nrate"], ["category", "hit\nrate", "speedup"]]
    assert "<summary>Rates: all columns</summary>" in folded
    assert '<th scope="row">edit</th>' in shown


@pytest.mark.parametrize(
    "columns",
    [hit_rate_findings._COLUMNS, speed._COLUMNS, replay_report._COLUMNS, compare._SPEED],
    ids=["hit-rate", "speed", "replay", "compare"],
)
def test_the_speed_and_its_interval_stand_beside_the_name(columns):
    name, ratio, interval, *_ = columns
    assert (name.detail, ratio.detail, interval.heading) == (False, False, "95 %")
    assert interval.name == f"{ratio.name}_range"


def test_above_the_pictures_stands_the_table_over_everything():
    edit, everything = (replace(TABLE, name=name) for name in ("edit", "all"))
    (section,) = page_of(result(tables=(edit, everything))).sections
    assert section.main is everything
    other = Table("other", "", (Column("a", "a"),), ())
    (section,) = page_of(result(tables=(TABLE, other))).sections
    assert section.main is TABLE


def evil_result():
    columns = (Column("a", EVIL), Column("b", "b"))
    return result(
        command=EVIL,
        arguments={"drafter": EVIL},
        environment=replace(ENVIRONMENT, device_name=EVIL, commit=EVIL),
        model=Model(EVIL, EVIL, EVIL, 7, EVIL, 64, EVIL),
        deterministic={"total": {}, "categories": {EVIL: {"prompts": 2, "identical": 1}}},
        timing={"ratios": {EVIL: ratio(0.5, 0.4, 0.6)}},
        tables=(Table("t", EVIL, columns, ((EVIL, 1),), note=EVIL),),
        failures=(Failure(EVIL, EVIL),),
    )


@pytest.mark.parametrize("pictures", [False, True])
def test_nothing_of_a_result_becomes_markup(pictures):
    if pictures:
        pytest.importorskip("matplotlib")
    page = page_of(evil_result(), result(**HIT_RATE), pictures=pictures)
    evil, clean = Markup(page), Markup(page_of(result(), result(**HIT_RATE), pictures=pictures))
    assert evil.wrong == evil.open == []
    ids = [value for name, value in evil.attributes if name == "id"]
    assert len(set(ids)) == len(ids) == 2
    assert evil.tags <= {*clean.tags, "strong"} - {"script"}
    for name, value in evil.attributes:
        assert not name.startswith("on")
        if name in {"href", "xlink:href"}:
            assert value.startswith("#")
    assert "<script>" in " ".join(evil.text)
    assert "<script" not in markdown_page(page)
    assert re.search(r"(?<!\\)\]\(javascript", markdown_page(page)) is None


def test_pictures_that_cannot_be_drawn_are_named():
    pytest.importorskip("matplotlib")
    page = page_of(result(timing={"ratios": {"decode": ratio(None, None, None)}}), pictures=True)
    for text in (html_page(page), markdown_page(page)):
        assert text.index("Not drawn:") < text.index("no ratio of the result has an interval")


# The command.


def invoke(*words):
    return CliRunner().invoke(report, [*map(str, words)])


def test_files_of_the_command(tmp_path):
    """A page in one file; others may read it: as observed, a web server could not."""
    pytest.importorskip("matplotlib")
    folder = tmp_path / "page"
    before = os.umask(0o022)
    try:
        # No name of a file comes from a result.
        result(**{**HIT_RATE, "command": "../../../evil"}).write(tmp_path / "result.json")
        found = invoke(tmp_path, "--output", folder)
    finally:
        os.umask(before)
    assert found.exit_code == 0, found.output
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*.*")}
    pictures = sorted(name for name in files if name.startswith("pictures/1-"))
    assert sorted(files) == [*pictures, "report.html", "report.md"]
    assert len(pictures) == 6
    assert {path.name for path in tmp_path.iterdir()} == {"page", "result.json"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files.values()}
    assert modes == {stat.S_IMODE((tmp_path / "result.json").stat().st_mode)} == {0o644}
    markdown = files["report.md"].read_text()
    assert sorted(re.findall(r"\]\((pictures/[^)]*)\)", markdown)) == pictures
    html = files["report.html"].read_text()
    assert html.count('<img src="data:image/svg+xml;base64,') == 6
    assert "default-src 'none'" in html
    assert re.findall(r'(?:src|href)="(?!#|data:image/svg\+xml;base64,)[^"]*"', html) == []
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|http-equiv', "", html)
    assert len(html) < 2_000_000


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"a": NaN}', '{"a": 1e999}'])
def test_files_that_are_no_results_are_named(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    found = invoke(tmp_path / "bad.json", "--output", tmp_path / "page")
    assert found.exit_code != 0
    assert "bad.json" in str(found.exception)
    assert not (tmp_path / "page").exists()


def test_the_command_is_what_one_would_type():
    known = {
        "model": "a b.gguf", "drafter": "ngram", "limit": 2, "seed": None, "reproducible": False,
        "adjust": False, "category": ["edit", "prose"],
    }  # fmt: skip
    assert command_text(result(arguments=known), bench) == (
        "akunu bench hit-rate 'a b.gguf' --drafter=ngram --limit=2 --no-adjust --category=edit "
        "--category=prose"
    )
    assert command_text(result(arguments={"nothing": 1}), bench) == "akunu bench hit-rate"
    assert command_text(result(command="other"), bench) == "akunu bench other"
