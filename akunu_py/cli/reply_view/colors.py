"""Colours that can be read on dark and on light backgrounds.

They are of the palette of 256, whose cube no theme changes, and half-way between black and white:
each has a contrast of 3.7 or more to both. Where there are 16 colours rich takes the nearest.
"""

from collections.abc import Mapping

from rich.style import Style

BLUE, ORANGE, GREEN, PURPLE, RED, STEEL = (
    Style(color=f"color({number})") for number in (32, 166, 64, 133, 167, 66)
)
ACCENT = BLUE
PALE = Style(dim=True)

MARKDOWN: Mapping[str, Style] = {
    "markdown.code": ACCENT,
    "markdown.block_quote": PALE,
    "markdown.item.bullet": ACCENT,
    "markdown.item.number": ACCENT,
    "markdown.hr": PALE,
    **{f"markdown.h{level}": Style(bold=True) for level in range(1, 7)},
    "markdown.link": ACCENT,
    "markdown.link_url": ACCENT + Style(underline=True),
    "markdown.table.border": PALE,
    "markdown.table.header": Style(bold=True),
}

CODE: Mapping[tuple[str, ...], Style] = {
    ("Comment",): PALE + Style(italic=True),
    ("Keyword",): PURPLE,
    ("Keyword", "Constant"): ORANGE,
    ("Operator", "Word"): PURPLE,
    ("Name", "Builtin"): BLUE,
    ("Name", "Function"): BLUE,
    ("Name", "Class"): BLUE,
    ("Name", "Decorator"): PURPLE,
    ("Name", "Tag"): BLUE,
    ("Name", "Attribute"): STEEL,
    ("Literal", "String"): GREEN,
    ("Literal", "Number"): ORANGE,
    ("Generic", "Deleted"): RED,
    ("Generic", "Inserted"): GREEN,
    ("Generic", "Heading"): Style(bold=True),
}
"""Styles by the names of Pygments' tokens, the general ones first."""
