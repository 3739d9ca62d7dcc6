"""The pages about drafters against the code: names and numbers."""

import re
from pathlib import Path

import pytest

from akunu_py.decoding.loop import NUM_CANDIDATES
from akunu_py.drafting.auto.drafter import SAVE_EVERY_S
from akunu_py.drafting.memory import MAX_TOKENS
from akunu_py.drafting.registry import DrafterKind, default_num_draft_tokens

ROOT = Path(__file__).parents[1]
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
