"""Tables of results in GitHub's Markdown."""

from collections.abc import Sequence

from akunu_py.api import Table

_ESCAPED = str.maketrans({
    "\\": "\\\\", "|": "\\|", "`": "\\`", "*": "\\*", "[": "\\[", "]": "\\]",
    "<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " ",
})  # fmt: skip
"""Characters that end a cell or start markup: names in a table come from any source."""


def escape(text: str) -> str:
    """Return a text on one line, with Markdown's markup escaped."""
    return text.translate(_ESCAPED)


def markdown_of(table: Table) -> str:
    """Return title, table and note; totals are bold."""
    headings = [escape(column.heading) for column in table.columns]
    ends = ["---:" if table.is_number_column(i) else "---" for i in range(len(headings))]
    lines = [f"**{escape(table.title)}**", ""] if table.title else []
    lines += [_line(headings), _line(ends)]
    first_total = len(table.rows) - table.total_rows
    for number, row in enumerate(table.rows):
        cells = [escape(c.text(cell)) for c, cell in zip(table.columns, row, strict=True)]
        if number >= first_total:
            cells = [f"**{cell}**" if cell else cell for cell in cells]
        lines.append(_line(cells))
    if table.note:
        lines += ["", escape(table.note)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
