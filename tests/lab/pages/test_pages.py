"""Pages of results: what loses stands first, nothing of a file becomes markup, one file is enough."""

import os
import re
import stat
from html.parser import HTMLParser

import pytest
from bench.result_values import ENVIRONMENT, HIT_RATE, TABLE, result
from click.testing import CliRunner

from akunu_py.bench import hit_rate_findings, speed
from akunu_py.bench.measured_model import Model
from akunu_py.bench.replay import report as replay_report
from akunu_py.bench.result_file import Costs, Failure, write_result
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Column, Table
from akunu_py.lab.commands.report import command_text, report
from akunu_py.lab.compare import report as compare_report
from akunu_py.lab.pages.content import Source, make_page, warnings_of
from akunu_py.lab.pages.forms import html_page, markdown_page

EVIL = "<script>alert(1)</script>\"' ](javascript:x) ../../etc `$(x)`"


def page_of(*results, pictures=False):
    sources = [Source(f"file-{n}", f"akunu bench {n}", one) for n, one in enumerate(results)]
    return make_page(sources, pictures=pictures)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def read(page):
    tags = Tags()
    tags.feed(html_page(page))
    return tags


def test_what_a_reader_must_know_is_said_first():
    bad = result(
        finished=False,
        failures=(Failure("edit/two", "too long"),),
        deterministic={
            "total": {"prompts": 4, "identical": 3, "looping_share": 0.1},
            "categories": {"edit": {"prompts": 2, "identical": 1, "looping_share": 0.5}},
        },
        timing={"ratios": {
            "decode": {"ratio": 0.9, "low": 0.8, "high": 0.95, "pairs": 4},
            "decode/edit": {"ratio": 0.98, "low": 0.8, "high": 1.1, "pairs": 2},
            # As files of earlier versions have it.
            "decode/prose": {"ratio": 0.7, "low": None, "high": None, "pairs": 1},
            "decode/novel": {"ratio": 1.3, "low": 1.2, "high": 1.4, "pairs": 4},
        }},
    )  # fmt: skip
    assert list(warnings_of(bad)) == [
        "unfinished: the run was interrupted after 1 items",
        "1 items failed: edit/two: too long",
        "replies differ from plain decoding: all 1 of 4, edit 1 of 2",
        "slower: decode 0.90 (0.80 to 0.95)",
        "perhaps slower: decode/edit 0.98 (0.80 to 1.10)",
        "output repeats itself in loops, which drafts predict and readers do not want: edit 50%",
    ]
    html, markdown = html_page(page_of(bad)), markdown_page(page_of(bad))
    # Where times decide what is drafted, the replies are among what times decide.
    total = {"total": {"identical": 1}}
    moved = result(deterministic={"total": {"prompts": 4}}, timing={"drafting": total}, failures=())
    assert list(warnings_of(moved)) == ["replies differ from plain decoding: all 3 of 4"]
    for text in (html, markdown):
        assert text.count("perhaps slower") == 1
        assert text.index("What to know first") < text.index("perhaps slower") < text.index("Rates")
    good = result(failures=(), deterministic={}, timing={})
    assert list(warnings_of(good)) == []
    assert "What to know first" not in html_page(page_of(good)) + markdown_page(page_of(good))


def test_the_page_has_tables_machine_versions_and_command():
    text = " ".join(read(page_of(result())).text)
    for said in ("akunu bench 0", "Rates", "a|b <i>", "50%", "Measured.", "MLX 0.32", "x86_64",
                 "0" * 64, "a plain step 10.00 ms", "2026-01-02T03:04:05+00:00"):  # fmt: skip
        assert said in text
    assert markdown_page(page_of(result())).count(TABLE.markdown()) == 1


def test_the_title_says_what_was_measured():
    def title(**changes):
        return page_of(result(**changes)).title

    assert title() == "Hit rate of ngram with m, 1 prompts on cpu"
    programs = {"programs": ["mlx-lm", "llama.cpp"]}
    assert title(command="compare", arguments=programs) == (
        "akunu, mlx-lm and llama.cpp with m, 1 prompts on cpu"
    )
    replayed = {"drafter": list("abcde"), "traces": ["/x/edits.jsonl"], "curve": ["gentle-slope"]}
    assert title(command="replay", arguments=replayed, model=None) == (
        "5 drafters replayed on edits.jsonl, passes costing as gentle-slope"
    )
    both = page_of(result(), result(command="compare", arguments=programs))
    assert both.title == "2 measurements of m on cpu"
    html = html_page(both)
    assert f"<title>{both.title}</title>" in html
    assert f"<h1>{both.title}</h1>" in html
    assert markdown_page(both).startswith(f"# {both.title}\n")


def test_a_table_shows_what_matters_and_opens_to_the_rest():
    html = html_page(page_of(result()))
    shown, _, folded = html.partition("<details>")
    headings = [re.findall(r'<th scope="col"[^>]*>([^<]*)<', part) for part in (shown, folded)]
    assert headings == [["category", "hit\nrate"], ["category", "hit\nrate", "speedup"]]
    assert "<summary>Rates: all columns</summary>" in folded
    assert '<th scope="row">edit</th>' in shown


@pytest.mark.parametrize(
    "columns",
    [
        hit_rate_findings._COLUMNS,
        speed._COLUMNS,
        replay_report._COLUMNS,
        compare_report._SPEED,
    ],
    ids=["hit-rate", "speed", "replay", "compare"],
)
def test_the_speed_and_its_interval_stand_beside_the_name(columns):
    name, speed, interval, *_ = columns
    assert (name.detail, speed.detail, interval.heading) == (False, False, "95 %")
    assert interval.name == f"{speed.name}_range"


class Strict(HTMLParser):
    """Ids and elements that are opened and not closed in order."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names) or (tag == "img" and "alt" not in names):
            self.wrong.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_markup_is_strict():
    pytest.importorskip("matplotlib")
    strict = Strict()
    strict.feed(html_page(page_of(evil_result(), result(**HIT_RATE), pictures=True)))
    assert strict.wrong == strict.open == []
    assert len(set(strict.ids)) == len(strict.ids) == 2


def test_implausible_costs_are_said_first():
    falling = result(costs=Costs(0.1, {1: 1.0, 5: 1.46, 33: 1.2}), failures=(), deterministic={})
    (warning,) = warnings_of(falling)
    assert "C(33) = 1.20 is below C(5) = 1.46" in warning


def evil_result():
    columns = (Column("a", EVIL), Column("b", "b"))
    return result(
        command=EVIL,
        arguments={"drafter": EVIL},
        environment=type(ENVIRONMENT)(
            **{**plain(ENVIRONMENT), "device_name": EVIL, "commit": EVIL}
        ),
        model=Model(EVIL, EVIL, EVIL, 7, EVIL, 64, EVIL),
        deterministic={"total": {}, "categories": {EVIL: {"prompts": 2, "identical": 1}}},
        timing={"ratios": {EVIL: {"ratio": 0.5, "low": 0.4, "high": 0.6, "pairs": 2}}},
        tables=(Table("t", EVIL, columns, ((EVIL, 1),), note=EVIL),),
        failures=(Failure(EVIL, EVIL),),
    )


@pytest.mark.parametrize("pictures", [False, True])
def test_nothing_of_a_result_becomes_markup(pictures):
    if pictures:
        pytest.importorskip("matplotlib")
    page = page_of(evil_result(), result(), pictures=pictures)
    tags, clean = read(page), read(page_of(result(), result(), pictures=pictures))
    assert "script" not in tags.tags
    assert set(tags.tags) <= {*clean.tags, "strong"}
    for name, value in tags.attributes:
        assert not name.startswith("on")
        if name in {"href", "xlink:href"}:
            assert value.startswith("#")
    assert "<script>" in " ".join(tags.text)
    assert "<script" not in markdown_page(page)
    assert re.search(r"(?<!\\)\]\(javascript", markdown_page(page)) is None


@pytest.mark.slow
def test_the_html_needs_no_other_file():
    pytest.importorskip("matplotlib")
    page = page_of(result(**HIT_RATE), pictures=True)
    html = html_page(page)
    assert html.count('<img src="data:image/svg+xml;base64,') == len(page.sections[0].pictures) == 6
    assert "default-src 'none'" in html
    assert re.findall(r'(?:src|href)="(?!#|data:image/svg\+xml;base64,)[^"]*"', html) == []
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|http-equiv', "", html)
    assert len(html) < 2_000_000


def test_pictures_that_cannot_be_drawn_are_named():
    pytest.importorskip("matplotlib")
    page = page_of(result(deterministic={}, timing={}, costs=None), pictures=True)
    assert "Not drawn:" in html_page(page)
    assert "the result has no measured costs" in markdown_page(page)


# The command.


def test_files_of_the_command(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "kept").mkdir()
    write_result(result(**HIT_RATE), tmp_path / "kept" / "result.json")
    found = CliRunner().invoke(report, [str(tmp_path / "kept"), "--output", str(tmp_path / "page")])
    assert found.exit_code == 0, found.output
    names = sorted(
        str(path.relative_to(tmp_path / "page")) for path in (tmp_path / "page").rglob("*.*")
    )
    assert [name for name in names if not name.startswith("pictures")] == [
        "report.html",
        "report.md",
    ]
    pictures = [name for name in names if name.startswith("pictures")]
    assert len(pictures) == 6
    text = (tmp_path / "page" / "report.md").read_text()
    assert sorted(re.findall(r"\]\((pictures/[^)]*)\)", text)) == pictures


@pytest.mark.slow
def test_names_of_files_are_not_taken_from_a_result(tmp_path):
    pytest.importorskip("matplotlib")
    write_result(result(**{**HIT_RATE, "command": "../../../evil"}), tmp_path / "a.json")
    CliRunner().invoke(
        report, [str(tmp_path / "a.json"), "--output", str(tmp_path / "page" / "in")]
    )
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "page"}
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"in"}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"a": NaN}', '{"a": 1e999}'])
def test_files_that_are_no_results_are_named(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    found = CliRunner().invoke(
        report, [str(tmp_path / "bad.json"), "--output", str(tmp_path / "page")]
    )
    assert found.exit_code != 0
    assert "bad.json" in str(found.exception)
    assert not (tmp_path / "page").exists()


def test_the_command_is_what_one_would_type():
    known = result(arguments={"model": "a b.gguf", "drafter": "ngram", "limit": 2, "seed": None})
    assert command_text(known) == "akunu bench hit-rate 'a b.gguf' --drafter=ngram --limit=2"
    assert command_text(result(arguments={"nothing": 1})) == "akunu bench hit-rate"
    assert command_text(result(command="other")) == "akunu bench other"


def test_others_may_read_reports_and_results(tmp_path):
    """As observed: a web server could not read the pages."""
    pytest.importorskip("matplotlib")
    before = os.umask(0o022)
    try:
        write_result(result(), tmp_path / "result.json")
        page = tmp_path / "page"
        found = CliRunner().invoke(report, [str(tmp_path), "--output", str(page)])
    finally:
        os.umask(before)
    assert found.exit_code == 0, found.output
    files = [path for path in page.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".md", ".svg"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (*files, tmp_path / "result.json")}
    assert modes == {0o644}
