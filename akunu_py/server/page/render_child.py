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
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Number, String, _TokenType
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
    tokens = iter(_PARSER.parse(text))
    found: list[tuple[int, Tree]] = []
    line = 0
    for token in tokens:
        # Footnotes have no place of their own.
        line = token.map[0] if token.map else line
        found += [(line, tree) for tree in _trees(token, tokens)]
    return found


def _trees(token: Token, following: Iterator[Token]) -> Iterator[Tree]:
    """Yield what a token stands for; one that opens an element takes its end from `following`."""
    match token.type:
        case "text":
            yield token.content
        case "html_inline":  # a box of `tasklists_plugin`: tags of a text are text
            checked = "checked" in token.content
            yield "\N{BALLOT BOX WITH CHECK}" if checked else "\N{BALLOT BOX}"
        case "softbreak":
            yield "\n"
        case "inline":
            inner = iter(token.children or [])
            yield from _joined(tree for one in inner for tree in _trees(one, inner))
        case "code_inline":
            yield ["code", {}, token.content]
        case "math":
            yield _formula(token.content)
        case "fence" | "code_block":
            yield _code(
                token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            )
        case "image":  # nothing is fetched
            yield f"![{token.content}]({token.attrs['src']})"
        case "footnote_ref":
            yield ["sup", {}, str(token.meta["id"] + 1)]
        case "footnote_anchor":
            pass
        case _ if token.nesting == 0:
            yield [token.tag, {}]
        case _:
            name = {"footnote_block": "ol", "footnote": "li"}.get(token.type[:-5], token.tag)
            children = _children(following)
            if token.hidden:  # a paragraph of an item that needs no space around it
                yield from children
            else:
                yield from _element(name, token, children)


def _children(following: Iterator[Token]) -> list[Tree]:
    inner = itertools.takewhile(lambda token: token.nesting >= 0, following)
    return [tree for token in inner for tree in _trees(token, following)]


def _joined(trees: Iterator[Tree]) -> Iterator[Tree]:
    """Join texts side by side, and leave out empty ones."""
    for is_text, some in itertools.groupby(trees, lambda tree: isinstance(tree, str)):
        if not is_text:
            yield from some
        elif text := "".join(map(str, some)):
            yield text


def _element(name: str, token: Token, children: Sequence[Tree]) -> Iterator[Tree]:
    attributes: dict[str, str] = {}
    if name in _DIRECTED:
        attributes["dir"] = "rtl" if _goes_left(children) else "ltr"
    if name == "a":
        yield from _link(str(token.attrs["href"]), children)
        return
    if style := str(token.attrs.get("style", "")):
        attributes["class"] = style.removeprefix("text-align:")
    if "task-list-item" in str(token.attrs.get("class", "")):
        attributes["class"] = "task"
    if "start" in token.attrs:
        attributes["start"] = str(token.attrs["start"])
    tree: Tree = [name, attributes, *(children[:_MOST_COLUMNS] if name == "tr" else children)]
    scrolled = {"class": "table", "tabindex": "0"}
    yield ["div", attributes | scrolled, tree] if name == "table" else tree


def _goes_left(trees: Sequence[Tree]) -> bool:
    letters = itertools.chain.from_iterable(map(_words, trees))
    kinds = map(unicodedata.bidirectional, letters)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), False)


def _words(tree: Tree) -> str:
    return tree if isinstance(tree, str) else "".join(map(_words, tree[2:]))


def _link(address: str, children: Sequence[Tree]) -> Iterator[Tree]:
    """Yield a link, and the host that it leads to unless its words say so; others are text."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", "mailto"):
        yield from ("[", *children, f"]({address})")
        return
    yield ["a", {"href": address, "target": "_blank", "rel": "noreferrer"}, *children]
    place = parts.netloc or parts.path
    if place not in "".join(map(_words, children)):
        yield ["span", {"class": "host"}, f" ({place})"]


def _code(text: str, language: str = "") -> Tree:
    lines = text.splitlines(keepends=True)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        pieces = [(_kind(kind), piece) for kind, piece in lexer.get_tokens(text)]
    except ClassNotFound:
        pieces = [("", text)]
    parts: list[Tree] = []
    for number, line in enumerate(_lines(pieces)):
        if number % _LINES == 0:
            parts.append(["span", {}])
        part = parts[-1]
        for kind, same in itertools.groupby(line, lambda piece: piece[0]):
            if run := "".join(piece for _, piece in same):
                part.append(["span", {"class": kind}, run] if kind else run)  # type: ignore[union-attr]
    head = ["div", {}, ["span", {}, language or "code"]]
    head.append(["button", {"type": "button", "aria-label": "Copy this code"}, "Copy"])
    code = ["pre", {"tabindex": "0"}, ["code", {"dir": "ltr"}, *parts]]
    return ["div", {"class": "code"}, head, code] if lines else ""


def _kind(kind: _TokenType) -> str:
    return next((name for parent, name in _KINDS.items() if kind in parent), "")


def _lines(pieces: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    line: list[tuple[str, str]] = []
    for kind, piece in pieces:
        for part in piece.splitlines(keepends=True):
            line.append((kind, part.removesuffix("\n")))
            if part.endswith("\n"):
                yield [*line, ("", "\n")]
                line = []
    if line:
        yield line


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
