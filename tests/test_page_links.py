"""Links between README.md, CHANGELOG.md and docs lead somewhere; pages about drafters agree with the code."""

import re
from pathlib import Path

import pytest

from akunu_py.decoding.loop import NUM_CANDIDATES
from akunu_py.drafting.auto.drafter import SAVE_EVERY_S
from akunu_py.drafting.memory import MAX_TOKENS
from akunu_py.drafting.registry import DrafterKind, default_num_draft_tokens

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "lab").glob("**/*.md")),
    *(ROOT / folder / "README.md" for folder in ("tests/golden", "packaging")),
]


def prose(page):
    """Return the text of a page without its code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """Yield the anchors that GitHub gives to the headings of a page."""
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken(page):
    """Yield the links of a page that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    if not page.exists():
        pytest.skip("only in a checkout")
    assert list(broken(page)) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# One `two`: three\n")
    page = tmp_path / "a.md"
    page.write_text("[x](b.md) [x](b.md#one-two-three) [x](b.md#two) [x](c.md) [x](https://c.d)\n")
    assert list(broken(page)) == ["b.md#two", "c.md"]


TEXT = (ROOT / "docs/drafting.md").read_text("utf-8")
OF_THE_LAB = ROOT / "lab/docs/drafters.md"


@pytest.mark.lab
def test_the_tables_name_every_drafter_and_its_number():
    tables = TEXT + OF_THE_LAB.read_text("utf-8")
    rows = re.findall(r"^\| (`[a-z-`, ]+`) \|.*\|\s*(\d*)\s*\|[^|]*\|$", tables, re.MULTILINE)
    said = {
        name: int(number or 0) for names, number in rows for name in re.findall("[a-z-]+", names)
    }
    assert said == {name: default_num_draft_tokens(name) for name in DrafterKind.names()}


def test_the_numbers_are_those_of_the_code():
    text = " ".join(TEXT.split())
    assert f"the {NUM_CANDIDATES} ids with the largest" in text
    assert f"{MAX_TOKENS:,} tokens" in text
    assert f"every {SAVE_EVERY_S:.0f} seconds" in text
