"""The Markdown that replies are read as, on a terminal and on the server's page.

It is CommonMark with tables and strike-through, and without HTML, images and links by reference.
"""

import re
from functools import partial

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

# As in Pandoc's Markdown ("Extension: tex_math_dollars") a single dollar stands next to what it is
# about, so that prices are not math, nor are names of shell variables. The bound keeps a
# text of openings alone from taking the square of its length.
_SPANS = re.compile(
    r"\\\(.{1,1000}?\\\)|\\\[.{1,1000}?\\\]|\$\$.{1,1000}?\$\$"
    r"|\$(?=[^\s$])[^$\n]{0,1000}(?<=[^\s\\])\$(?!\w)",
    re.DOTALL,
)
_CLOSINGS = {r"\[": r"\]", "$$": "$$"}
_MOST_LINES = 50


def markdown_parser(math: str) -> MarkdownIt:
    r"""Return a parser whose tokens for \(a\), \[a\], $$a$$ and $a$ are of the type `math`.

    Their content is as it is written. Markdown would take backslashes away and make emphasis of
    indices, and lists of lines that begin with a sign. A link by reference could be resolved
    before its block is complete or never, so it is text.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["html_block", "html_inline", "reference", "image"])
    parser.inline.ruler.before("escape", "math", partial(_math, kind=math))
    parser.block.ruler.before("fence", "math", _math_lines, {"alt": ["paragraph"]})
    return parser


def _math(state: StateInline, silent: bool, *, kind: str) -> bool:
    if state.src[state.pos] not in "\\$":
        return False
    span = _SPANS.match(state.src, state.pos, state.posMax)
    if span is None:
        return False
    if not silent:
        state.push(kind, "", 0).content = span[0]
    state.pos = span.end()
    return True


def _math_lines(state: StateBlock, begin: int, last: int, silent: bool) -> bool:
    """Make a paragraph of the lines of a formula, which is closed at the end of a line.

    One that is not closed goes on to the end of the text, which may still grow.
    """
    lines = [state.getLines(begin, begin + 1, state.blkIndent, False).strip()]
    closing = _CLOSINGS.get(lines[0][:2])
    if closing is None or state.is_code_block(begin):
        return False
    text, at = lines[0][2:], begin + 1
    while not text.endswith(closing):
        if at - begin >= _MOST_LINES or closing in text:
            return False
        if at >= last or (not state.isEmpty(at) and state.sCount[at] < state.blkIndent):
            break
        text = state.getLines(at, at + 1, state.blkIndent, False).strip()
        lines.append(text)
        at += 1
    if silent:
        return True
    state.line = at
    place = [begin, at]
    state.push("paragraph_open", "p", 1).map = place
    inline = state.push("inline", "", 0)
    inline.content, inline.map, inline.children = "\n".join(lines), place, []
    state.push("paragraph_close", "p", -1)
    return True
