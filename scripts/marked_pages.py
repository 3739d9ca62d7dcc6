"""Parts of the docs that scripts write, between two markers."""

import sys
from pathlib import Path


def write_between(page: Path, start: str, end: str, text: str) -> None:
    """Put a text between the markers of a page, in the stead of what is there.

    The page is read only now: tables take minutes to make, and others write into it too. Ends the
    process where a marker is missing.
    """
    whole = page.read_text(encoding="utf-8")
    before, _, rest = whole.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page} has lost its markers")
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
