"""Recorded sessions as pictures: a browser shows each letter in the column that it has as text."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from chromium import chromium

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

record_session = pytest.importorskip("record_session")

LETTERS = """
() => [...document.querySelectorAll("text")].flatMap(text =>
  Array.from({length: text.getNumberOfChars()}, (_, n) => [
    text.textContent[n], text.getStartPositionOfChar(n).x, text.getStartPositionOfChar(n).y]))
"""
ODD = (
    "def area(shape,  unit):\r\n"
    "\t\treturn  \x1b[1mPI\x1b[0m \x1b[44m  r \x1b[0m <&>\r\n"
    "\x1b[2m   \u6f22\u5b57  ab \u2502 cafe\u0301 \u00b7\u00b7 \u2500\u2500\u2500\x1b[0m end  \r\n"
    "\r\n"
    "  \x1b[2m\u2588\u2588\u2591 \x1b[34mx\x1b[0m"
)


def written_letters(picture):
    """Return the letters of a picture with their places, where white space cannot move them."""
    found = []
    pictured = ET.parse(picture)  # noqa: S314 - our own
    for text in pictured.iter("{http://www.w3.org/2000/svg}text"):
        assert re.fullmatch(r"\S+( \S+)*", text.text)
        places = text.get("x").split()
        assert len(places) == len(text.text)
        found += [
            (letter, float(x), int(text.get("y")))
            for letter, x in zip(text.text, places, strict=True)
        ]
    return found


@pytest.fixture(scope="module")
def shown_letters():
    """Return the letters that a browser shows, with their places."""
    with chromium(60_000) as browser:
        page = browser.new_page()

        def letters(picture):
            page.goto(picture.as_uri())
            return page.evaluate(LETTERS)

        yield letters


@pytest.fixture(params=["written", pytest.param("shown", marks=pytest.mark.slow)])
def letters_of(request):
    if request.param == "written":
        return written_letters
    return request.getfixturevalue("shown_letters")


def rows_of(letters):
    """Return what letters at their places read as, column by column."""
    rows = {}
    for letter, x, y in letters:
        column = (x - record_session._EDGE) / record_session._CELL
        assert column == pytest.approx(round(column), abs=1e-3), (letter, x)
        rows.setdefault(round(y), {})[round(column)] = letter
    first = record_session._EDGE + 13
    lines = ["" for _ in range((max(rows) - first) // record_session._ROW + 1)]
    for y, row in rows.items():
        line = "".join(row.get(column, " ") for column in range(max(row) + 1))
        lines[(y - first) // record_session._ROW] = line.rstrip()
    return lines


@pytest.mark.parametrize("name", ["demo", "session"])
def test_a_picture_of_the_docs_shows_its_text_column_by_column(letters_of, name):
    text = (ROOT / "docs" / f"{name}.txt").read_text(encoding="utf-8")
    assert rows_of(letters_of(ROOT / "docs" / f"{name}.svg")) == text.splitlines()


def test_indents_styles_and_wide_letters_keep_their_columns(letters_of, tmp_path):
    rows = record_session.screen_rows(ODD)
    (tmp_path / "odd.svg").write_text(record_session.picture(rows, "odd"), encoding="utf-8")
    # The second cell of a wide letter is empty.
    expected = ["".join(cell.data or " " for cell in row).rstrip() for row in rows]
    assert expected[1].startswith(" " * 16 + "return  PI   r  <&>")
    assert rows_of(letters_of(tmp_path / "odd.svg")) == expected
