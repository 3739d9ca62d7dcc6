"""Parts of the docs that scripts write, between two markers."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def parser_of(description: str, page: str) -> argparse.ArgumentParser:
    """Return a parser with the option --write for a script that describes a part of a page."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"into docs/{page}")
    return parser


def print_or_write(page: str, script: str, make_text: Callable[[], str], *, write: bool) -> None:
    """Print a text, or replace what is between the script's markers in a page of the docs.

    The page is read after the text is made: that takes minutes, and others write into it too. Ends
    the process where a marker is missing.
    """
    text = make_text()
    if not write:
        print(text)
        return
    path = DOCS / page
    start, end = f"<!-- {script} writes from here -->", f"<!-- end of {script} -->"
    whole = path.read_text(encoding="utf-8")
    before, _, rest = whole.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{path} has lost its markers")
    path.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
