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
    "markdown.code_block": Style(),
    "markdown.block_quote": PALE,
    "markdown.list": Style(),
    "markdown.item.bullet": ACCENT,
    "markdown.item.number": ACCENT,
    "markdown.hr": PALE,
    "markdown.h1": Style(bold=True),
    "markdown.h2": Style(bold=True),
    "markdown.h3": Style(bold=True),
    "markdown.h4": Style(bold=True),
    "markdown.h5": Style(bold=True),
    "markdown.h6": Style(bold=True),
    "markdown.link": ACCENT,
    "markdown.link_url": ACCENT + Style(underline=True),
    "markdown.table.border": PALE,
    "markdown.table.header": Style(bold=True),
    "markdown.kbd": Style(bold=True),
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
    ("Literal", "String", "Doc"): GREEN,
    ("Literal", "Number"): ORANGE,
    ("Generic", "Deleted"): RED,
    ("Generic", "Inserted"): GREEN,
    ("Generic", "Heading"): Style(bold=True),
}
"""Styles by the names of Pygments' tokens, the general ones first."""
