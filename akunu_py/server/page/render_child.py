"""Makes trees of elements of Markdown, in a process that ends itself at a limit. Run as a script.

It reads requests from its standard input, `{"texts"}`, and answers each with a line of JSON:
`{"texts", "seconds"}`, for each text its blocks `[line, tree]`, and the processor time. A tree is a
text, or `[name, attributes, *trees]`. The page makes elements by name, from a list of its own, so
no text becomes markup. Expressions of Pygments and conversions of formulas can take very long,
hence the process: the system ends it with SIGPROF.
"""

import html
import itertools
import json
import re
import signal
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown_it.tree import SyntaxTreeNode
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Number, String
from pygments.util import ClassNotFound

from akunu_py.system.markdown import markdown_parser

Tree = str | list[Any]

_PARSER = markdown_parser("math").enable("image").use(tasklists_plugin).use(footnote_plugin)
_DIRECTED = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "blockquote", "table", "th", "td"}
_KINDS = {
    Comment: "comment", String: "string", Number: "number", Keyword: "keyword",
    Generic.Inserted: "inserted", Generic.Deleted: "deleted", Generic.Subheading: "keyword",
}  # fmt: skip
_LINES = 50
"""Of code that are one element, so that a browser lays out what is new, not the whole block."""

_MOST_COLUMNS = 100
"""A browser takes seconds for a table of thousands of columns."""

_MATHML = re.compile(r"math|m(row|i|n|o|text|space|frac|sqrt|root|style|padded|phantom|enclose"
                     r"|sub|sup|subsup|under|over|underover|multiscripts|table|tr|td)")  # fmt: skip
_LONGEST_FORMULA = 2000


def blocks_of(text: str) -> list[tuple[int, Tree]]:
    """Return the blocks of a text, each with the line that it begins with."""
    found: list[tuple[int, Tree]] = []
    line = 0
    for node in SyntaxTreeNode(_PARSER.parse(text)).children:
        # Footnotes have no place of their own.
        line = node.map[0] if node.map else line
        found += [(line, tree) for tree in _trees(node)]
    return found


def _trees(node: SyntaxTreeNode) -> Iterator[Tree]:
    """Yield what a node of Markdown stands for."""
    match node.type:
        case "text":
            yield node.content
        case "html_inline":  # a box of `tasklists_plugin`: tags of a text are text
            checked = "checked" in node.content
            yield "\N{BALLOT BOX WITH CHECK}" if checked else "\N{BALLOT BOX}"
        case "softbreak":
            yield "\n"
        case "code_inline":
            yield ["code", {}, node.content]
        case "math":
            yield _formula(node.content)
        case "fence" | "code_block":
            yield from _code(node.content, *node.info.split(maxsplit=1)[:1])
        case "image":  # nothing is fetched
            yield f"![{node.content}]({node.attrs['src']})"
        case "link":
            yield from _link(str(node.attrs["href"]), _inner(node))
        case "footnote_ref":
            yield ["sup", {}, str(node.meta["id"] + 1)]
        case "footnote_anchor":
            pass
        case _ if node.type == "inline" or (node.is_nested and node.hidden):
            yield from _inner(node)  # of a paragraph that needs no space around it, too
        case _:
            yield _element(node, _inner(node))


def _inner(node: SyntaxTreeNode) -> list[Tree]:
    """Return what is in a node; texts side by side are one, and none is empty."""
    trees = (tree for child in node.children for tree in _trees(child))
    found: list[Tree] = []
    for is_text, some in itertools.groupby(trees, lambda tree: isinstance(tree, str)):
        if is_text:
            found += filter(None, ["".join(map(str, some))])
        else:
            found += some
    return found


def _element(node: SyntaxTreeNode, inner: Sequence[Tree]) -> Tree:
    name = {"footnote_block": "ol", "footnote": "li"}.get(node.type, node.tag)
    attributes = {"dir": "rtl" if _goes_left(inner) else "ltr"} if name in _DIRECTED else {}
    if style := str(node.attrs.get("style", "")):
        attributes["class"] = style.removeprefix("text-align:")
    if "task-list-item" in str(node.attrs.get("class", "")):
        attributes["class"] = "task"
    if "start" in node.attrs:
        attributes["start"] = str(node.attrs["start"])
    tree: Tree = [name, attributes, *(inner[:_MOST_COLUMNS] if name == "tr" else inner)]
    scrolled = {"class": "table", "tabindex": "0"}
    return ["div", attributes | scrolled, tree] if name == "table" else tree


def _goes_left(trees: Sequence[Tree]) -> bool:
    letters = itertools.chain.from_iterable(map(_words, trees))
    kinds = map(unicodedata.bidirectional, letters)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), False)


def _words(tree: Tree) -> str:
    return tree if isinstance(tree, str) else "".join(map(_words, tree[2:]))


def _link(address: str, inner: Sequence[Tree]) -> Iterator[Tree]:
    """Yield a link, and the host that it leads to unless its words say so; others are text."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", "mailto"):
        yield from ("[", *inner, f"]({address})")
        return
    yield ["a", {"href": address, "target": "_blank", "rel": "noreferrer"}, *inner]
    place = parts.netloc or parts.path
    if place not in "".join(map(_words, inner)):
        yield ["span", {"class": "host"}, f" ({place})"]


def _code(text: str, language: str = "") -> Iterator[Tree]:
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        pieces = [
            (next((name for parent, name in _KINDS.items() if kind in parent), ""), piece)
            for kind, piece in lexer.get_tokens(text)
        ]
    except ClassNotFound:
        pieces = [("", text)]
    parts: list[list[Any]] = []
    line = 0
    for name, same in itertools.groupby(pieces, lambda piece: piece[0]):
        for row in "".join(piece for _, piece in same).splitlines(keepends=True):
            if line == _LINES * len(parts):
                parts.append(["span", {}])
            parts[-1].append(["span", {"class": name}, row] if name else row)
            line += row.endswith("\n")
    head = ["div", {}, ["span", {}, language or "code"]]
    head.append(["button", {"type": "button", "aria-label": "Copy this code"}, "Copy"])
    if parts:
        code = ["pre", {"tabindex": "0"}, ["code", {"dir": "ltr"}, *parts]]
        yield ["div", {"class": "code"}, head, code]


def _formula(source: str) -> Tree:
    """Return the MathML of a formula between its signs; its text where it cannot be converted."""
    width = 1 if source.startswith("$") and not source.startswith("$$") else 2
    display = "block" if source.startswith(("$$", r"\[")) else "inline"
    try:
        if len(source) > _LONGEST_FORMULA:
            return source
        inner = re.sub(r"\{(align|gather)ed\}", r"{\1*}", source[width:-width].strip())
        tree = _mathml(convert_to_element(inner, display=display))
    except Exception:  # noqa: BLE001 - the library raises what its parts raise
        return source
    # A command or a form of lines that it does not know stays in the result.
    words = _words(tree)
    if "\\" in words or ("&" in words and r"\&" not in source):
        return source
    tree[1]["alttext"] = source
    return tree


def _mathml(element: Element) -> list[Any]:
    if not _MATHML.fullmatch(element.tag):
        raise ValueError(element.tag)
    text = html.unescape(element.text or "")
    return [element.tag, dict(element.items()), *filter(None, [text]), *map(_mathml, element)]


def main(seconds: float) -> None:
    """Answer requests until the input ends."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # a process that is profiled may ignore it
    _answer({})  # it is ready
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        began = time.thread_time()
        texts = [blocks_of(text) for text in json.loads(line)["texts"]]
        _answer({"texts": texts, "seconds": time.thread_time() - began})
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
