"""Math in Markdown: shown as it is written, so that it can be read and copied as LaTeX."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

# As in Pandoc's Markdown ("Extension: tex_math_dollars") a single dollar stands next to what it is
# about, so that prices are not math, nor are names of shell variables. The bound keeps a
# text of openings alone from taking the square of its length.
_SPANS = re.compile(
    r"\\\(.{1,1000}?\\\)|\\\[.{1,1000}?\\\]|\$\$.{1,1000}?\$\$"
    r"|\$(?=[^\s$])[^$\n]{0,1000}(?<=[^\s\\])\$(?!\w)",
    re.DOTALL,
)


def with_math(parser: MarkdownIt) -> MarkdownIt:
    r"""Make a parser leave \(a\), \[a\], $$a$$ and $a$ as they are; returns it.

    Markdown would take backslashes away and make emphasis of indices.
    """
    parser.inline.ruler.before("escape", "math", _math)
    return parser


def _math(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "\\$":
        return False
    span = _SPANS.match(state.src, state.pos, state.posMax)
    if span is None:
        return False
    if not silent:
        state.push("text", "", 0).content = span[0]
    state.pos = span.end()
    return True
