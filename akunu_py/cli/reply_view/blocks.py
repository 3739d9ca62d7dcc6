"""Markdown as blocks, the finished ones of a text that still grows, and a block as lines."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import ClassVar, TextIO

from markdown_it.token import Token
from rich.cells import get_character_cell_size
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text
from rich.theme import Theme

from akunu_py.cli.reply_view.colors import CODE, MARKDOWN
from akunu_py.cli.reply_view.live_lines import Line
from akunu_py.system.markdown import markdown_parser
from akunu_py.system.shown_text import harmless

_LEAST_WIDTH = 20
_LANGUAGE = re.compile(r"[\w+#.-]{0,24}")

_LISTS = {"bullet_list_open", "ordered_list_open"}


_PARSER = markdown_parser("text").disable("autolink")
"""Under it nothing of a text is hidden.

A link has its address written behind it, which one between <> need not; so that one is text.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a text, or an item of a list: lines `begin` to `end`; `kind` is its token's."""

    kind: str
    begin: int
    end: int


def split_blocks(text: str) -> list[Block]:
    """Return the blocks of a text in order.

    All but the last one stay as they are, whatever lines follow; the last line of a text that does
    not end with a newline may still change what it belongs to.
    """
    blocks = []
    for token in _PARSER.parse(text):
        is_item = token.type == "list_item_open" and token.level == 1
        is_block = token.level == 0 and token.nesting >= 0 and token.type not in _LISTS
        if token.map is not None and (is_item or is_block):
            blocks.append(Block(token.type, *token.map))
    return blocks


def row_starts(text: str) -> list[int]:
    """Return where each row of a text begins, and behind them where one more would."""
    return list(accumulate((len(row) + 1 for row in text.split("\n")), initial=0))


def as_written(text: str, width: int) -> list[Line]:
    """Return the lines of a text as it is, none of more than `width` cells."""
    lines = []
    for row in text.rstrip().split("\n"):
        part, cells = "", 0
        for letter in row.expandtabs(4):
            size = get_character_cell_size(letter)
            if cells + size > max(width, 2):
                lines.append(Line(part, cells))
                part, cells = "", 0
            part, cells = part + letter, cells + size
        lines.append(Line(part, cells))
    return lines


def language_of(info: str) -> str:
    """Return the language that a fence's words are; "" for other words, or none."""
    return info if _LANGUAGE.fullmatch(info) else ""


class BlockRenderer:
    """Renders blocks for one terminal: its colours, whatever NO_COLOR says included.

    `tints` are styles of text by the letters of marks. Where there are any, nothing else has a
    colour, so that a colour has one meaning.
    """

    def __init__(self, stream: TextIO, tints: Mapping[str, Style] | None = None) -> None:
        self._tinted = tints is not None
        styles = dict(MARKDOWN)
        if tints is not None:
            styles = {name: style.without_color for name, style in styles.items()}
            tints = {" ": Style(), **tints}
            styles |= {f"markdown.{_tag(mark)}": style for mark, style in tints.items()}
        # Highlighting of numbers and addresses is for logs.
        self._console = Console(
            file=stream, highlight=False, emoji=False, markup=False, theme=Theme(styles)
        )
        self._colors = COLOR_SYSTEMS.get(self._console.color_system or "")

    def lines(self, text: str, width: int, marks: str = "") -> list[Line]:
        """Return the lines of a harmless text, each of at most `width` cells.

        `marks` has a letter for each character, which says its tint; a blank says none. Screens
        below 20 columns get lines of 20: rich divides by what is left of narrow ones.
        """
        width = max(width, _LEAST_WIDTH)
        options = self._console.options.update(width=width, height=None)
        try:
            markdown = _Markdown(text, marks if self._tinted else None)
            rows = self._console.render_lines(markdown, options, pad=False)
        except Exception:  # noqa: BLE001 - rich fails on some joiners without letters; a reply goes on
            return as_written(text, width)
        lines = [self._line(row, width) for row in rows]
        while lines and not lines[-1].cells:
            lines.pop()
        while lines and not lines[0].cells:
            lines.pop(0)
        return lines

    def paint(self, text: str, style: Style) -> str:
        """Return a text with a style's codes around each line.

        Underlining would otherwise go on to the end of a line that ends within it.
        """
        if self._console.no_color:
            style = style.without_color
        lines = text.split("\n")
        return "\n".join(style.render(line, color_system=self._colors) for line in lines)

    @property
    def has_colors(self) -> bool:
        """Whether colours are shown."""
        return self._colors is not None and not self._console.no_color

    def _line(self, row: Sequence[Segment], width: int) -> Line:
        segments = _stripped([segment for segment in row if not segment.control])
        text = "".join(
            self.paint(segment.text, segment.style) if segment.style else segment.text
            for segment in segments
        )
        # rich's own wrapping and counting may differ in joiners without letters; to it a letter
        # behind one has no width.
        cells = Segment.get_line_length(segments) or sum(
            get_character_cell_size(letter) for segment in segments for letter in segment.text
        )
        return Line(text, min(width, cells))


def _stripped(segments: list[Segment]) -> list[Segment]:
    """Return segments without the blanks that fill a line up."""
    while segments:
        *before, last = segments
        text = last.text.rstrip(" ")
        if text:
            return [*before, Segment(text, last.style)]
        segments = before
    return segments


class _Heading(Heading):
    """A heading at the left, with its mark: no terminal has larger letters."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble("#" * int(self.tag[1:]), " ", self.text, style="bold", justify="left")


class _CodeBlock(CodeBlock):
    """Code on the terminal's own background, indented.

    What its fence says is shown, unless it names a language.
    """

    info = ""
    marks: str | None = None

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_CodeBlock":
        """Return the element of a token."""
        info = token.info.strip()
        language = language_of(info)
        block = cls(language or "text", markdown.code_theme)
        block.info = "" if language else info
        block.marks = token.meta.get("marks")
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.info:
            yield Text(self.info, style="dim")
        code = str(self.text).removesuffix("\n")
        if self.marks is None:
            yield Syntax(
                code,
                self.lexer_name,
                theme=_CODE_THEME,
                background_color="default",
                word_wrap=True,
                padding=(0, 2),
            )
            return
        text = Text(code, tab_size=4, justify="left")
        for mark, begin, end in _runs(self.marks[: len(code)]):
            text.stylize(console.get_style(f"markdown.{_tag(mark)}"), begin, end)
        yield Padding(text, (0, 2))


_CODE_THEME = ANSISyntaxTheme(dict(CODE))


class _Markdown(Markdown):
    """rich's Markdown, made from our parser's tokens; with marks it has their tints alone."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    def __init__(self, text: str, marks: str | None = None) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = list(_prepared(_PARSER.parse(text)))
        if marks is not None:
            _mark(self.parsed, text, marks)
            self.inlines = self.inlines | set(map(_tag, {" ", *marks}))


def _prepared(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield tokens without what their entities brought; a line's end in a paragraph stays one."""
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
            child.content = harmless(child.content)
            if "href" in child.attrs:
                child.attrs["href"] = harmless(str(child.attrs["href"]))
        yield token


_LONGEST_MARKUP = 10
"""Characters between two letters of one text: an entity, or a backslash."""


def _mark(tokens: Sequence[Token], text: str, marks: str) -> None:
    """Put the marks of a text on its tokens: codes get theirs, other text is cut where they change.

    Tokens do not say where their text stands; it stands there in their order, with what is markup
    in between. What is not found, as the letter of an entity is not, gets no mark.
    """
    starts = row_starts(text)
    place = 0

    def found(content: str) -> str:
        nonlocal place
        begin = text.find(content, place)
        if begin >= 0:
            place = begin + len(content)
            return marks[begin:place]
        own = ""
        # Letter by letter: entities and escapes are written otherwise.
        for letter in content:
            begin = text.find(letter, place, place + _LONGEST_MARKUP)
            own += marks[begin] if begin >= 0 else " "
            place = begin + 1 if begin >= 0 else place
        return own

    for token in tokens:
        if token.type == "fence" and token.map is not None:
            place = starts[token.map[0] + 1]
        elif token.map is not None:
            place = max(place, starts[token.map[0]])
        if token.type in ("fence", "code_block"):
            rows = token.content.split("\n")
            token.meta["marks"] = " ".join(found(row) for row in rows)
        elif token.children:
            token.children = list(_marked(token.children, found))


def _marked(children: Sequence[Token], found: Callable[[str], str]) -> Iterator[Token]:
    """Yield the tokens of a paragraph, text with a mark between two that switch its tint."""
    for child in children:
        if child.type not in ("text", "code_inline") or not child.content:
            yield child
            continue
        for mark, begin, end in _runs(found(child.content)):
            yield Token("tint_open", _tag(mark), 1)
            yield child.copy(content=child.content[begin:end])
            yield Token("tint_close", _tag(mark), -1)


def _runs(marks: str) -> Iterator[tuple[str, int, int]]:
    """Yield equal neighbours among marks, with beginning and end."""
    end = 0
    for mark, same in groupby(marks):
        begin, end = end, end + len(list(same))
        yield mark, begin, end


def _tag(mark: str) -> str:
    return f"tint-{mark}"
