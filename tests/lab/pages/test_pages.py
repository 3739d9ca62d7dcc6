"""Pages of results: what loses stands first, nothing of a file becomes markup, one file is enough."""

import os
import re
import stat
from html.parser import HTMLParser

import pytest
from bench.result_values import ENVIRONMENT, HIT_RATE, TABLE, result
from click.testing import CliRunner

from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import Failure, write_result
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Column, Table
from akunu_py.lab.commands.report import command_text, report
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
        "all: 1 of 4 replies differ from plain decoding",
        "edit: 1 of 2 replies differ from plain decoding",
        "slower: decode is 0.90 (0.80 to 0.95)",
        "perhaps slower: decode/edit is 0.98 (0.80 to 1.10)",
        "edit: 50% of the output repeats itself in loops, which drafts predict and readers do not want",
    ]
    html, markdown = html_page(page_of(bad)), markdown_page(page_of(bad))
    # Where times decide what is drafted, the replies are among what times decide.
    total = {"total": {"identical": 1}}
    moved = result(deterministic={"total": {"prompts": 4}}, timing={"drafting": total}, failures=())
    assert list(warnings_of(moved)) == ["all: 3 of 4 replies differ from plain decoding"]
    for text in (html, markdown):
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
    # A bar that loses is hatched.
    assert set(tags.tags) <= {*clean.tags, "div", "strong", "pattern"}
    for name, value in tags.attributes:
        assert not name.startswith("on")
        if name in {"href", "xlink:href"}:
            assert value.startswith(("#", "data:image/png;base64,"))
    assert "<script>" in " ".join(tags.text)
    assert "<script" not in markdown_page(page)
    assert re.search(r"(?<!\\)\]\(javascript", markdown_page(page)) is None


def test_the_html_needs_no_other_file():
    pytest.importorskip("matplotlib")
    page = page_of(result(**HIT_RATE), pictures=True)
    html = html_page(page)
    assert html.count("<svg") == len(page.sections[0].pictures) == 6
    assert "default-src 'none'" in html
    # The cells of a heat map are an image inside the picture.
    assert re.findall(r'(?:src|href)="(?!#|data:image/png;base64,)[^"]*"', html) == []
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
