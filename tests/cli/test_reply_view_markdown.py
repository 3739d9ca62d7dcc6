"""Markdown while it streams, on a terminal in memory.

Mutants, made by hand, that these tests kill: one row too few taken back; finished blocks decided by
half a line; rows above the screen drawn again; the line's end of a paragraph made a space; no blank
line between blocks; wrapping left off; a link without its address.
"""

import re
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reply_events import answer
from terminal_screen import TerminalScreen

from akunu_py.cli.reply_view import make_view
from akunu_py.cli.reply_view.blocks import BlockRenderer, split_blocks
from akunu_py.cli.reply_view.colors import CODE, MARKDOWN
from akunu_py.cli.reply_view.draft_tint import DraftTint

pytestmark = pytest.mark.usefixtures("colors")

SIZES = [(80, 24), pytest.param((200, 50), marks=pytest.mark.slow)]

TEXT = """\
# Sums and more

A *first* paragraph with **bold** words, `code`, ~~struck~~ and a [link](https://example.org/a?b=c).
Its second line stays one.

- one
- two, with a long text: {long}
  - nested
- three

1. first

   its second paragraph
2. second

> quoted\u0020
> twice

| name | value |
|------|------:|
| a    |     1 |
| \u4e2d\u6587 | 2 |

```python
def add(a, b):
\treturn a + b  # \U0001f468\u200d\U0001f469\u200d\U0001f467 \u4e2d\u6587
```

<b>tags</b> and &amp; are text, e\u0301 and \U0001f44d\U0001f3fd too.

---

    indented code

The end: {long}
""".format(long="many words " * 30)


def view_on(screen, **options):
    options = {"plain": False, "show_drafts": False, "clock": lambda: 0.0, **options}
    return make_view(stream=screen, size=screen.size, **options)


def streamed(pieces, columns=80, lines=24, **options):
    screen = TerminalScreen(columns, lines)
    view = view_on(screen, **options)
    for piece in pieces:
        view.feed(answer(piece))
    view.finish()
    assert screen.screen.mode == screen.modes, "a mode was left changed"
    return screen


@pytest.mark.parametrize("size", SIZES)
def test_token_by_token_is_as_at_once(size):
    pieces = re.findall(r"\s?\S{1,3}|\s", TEXT)
    assert "".join(pieces) == TEXT
    assert streamed(pieces, *size).rows() == streamed([TEXT], size[0], 100).rows()


def test_what_it_looks_like():
    screen = streamed(["# Sums\n\nOne **and**\ntwo.\n- a\n- b\n\n```py\nx = 1\n```\nend"])
    assert screen.rows() == [
        "# Sums",
        "",
        "One and",
        "two.",
        "",
        " \u2022 a",
        " \u2022 b",
        "",
        "  x = 1",
        "",
        "end",
    ]
    assert screen.cells("# Sums").bold
    assert screen.cells("and").bold
    assert not screen.cells("One").bold
    assert screen.cells("1").fg != "default"


@st.composite
def cuts(draw, text):
    places = draw(st.lists(st.integers(0, len(text)), max_size=25))
    ends = sorted({*places, len(text)})
    return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@settings(max_examples=settings.default.max_examples // 3)
@given(cuts(TEXT), st.sampled_from([(80, 24), (200, 50), (31, 12)]))
@example([TEXT[:459], TEXT[459:]], (31, 12))
@example([TEXT[:511], TEXT[511:]], (31, 12))
def test_cuts_do_not_change_the_final_screen(pieces, size):
    screen, whole = streamed(pieces, *size), streamed([TEXT], size[0], 100)
    if size[1] > 20:
        assert screen.rows() == whole.rows()
        return
    # A block that is higher than the screen keeps its first rows as they were drawn: with the
    # second cut "- " is the line below a heading then. What follows is right, and nothing is twice.
    assert screen.rows()[-size[1] + 1 :] == whole.rows()[-size[1] + 1 :]
    for words in ("Sums and more", "two, with", "nested", "name", "def add"):
        assert screen.text().count(words) == whole.text().count(words)


LINES = st.sampled_from(
    ["a b", "#", "# h", "#5", "- x", "- ", "-", "1. y", "2", "> q", "```", "~~~", "    c", "|a|b|",
     "|-|-|", "---", "===", "", "", "**b", "[l](u)", "[r]: u", "<p>", "\u4e2d\u6587", "*", "   z", "\t- t"]
)  # fmt: skip


@given(st.lists(LINES, max_size=9), st.data())
@example(["a b", "#5"], None)
def test_any_blocks_stream_as_they_are_at_once(lines, data):
    text = "\n".join(lines)
    pieces = list(text) if data is None else data.draw(cuts(text))
    assert streamed(pieces).rows() == streamed([text]).rows()


@given(st.lists(LINES, max_size=9))
def test_blocks_cover_the_text(lines):
    blocks = split_blocks("\n".join(lines))
    said = {number for number, line in enumerate(lines) if line.strip()}
    assert said <= {number for block in blocks for number in range(block.begin, block.end)}
    assert [block.begin for block in blocks] == sorted({block.begin for block in blocks})


def test_long_code_is_laid_out_in_parts(monkeypatch):
    """What a step of the model waits for must not grow with the block."""
    laid_out = []
    lines_of = BlockRenderer.lines

    def spy(self, text, *rest):
        laid_out.append(text.count("\n"))
        return lines_of(self, text, *rest)

    monkeypatch.setattr(BlockRenderer, "lines", spy)
    code = [f"x{n} = {n}" if n % 5 else "" for n in range(1, 190)]
    pieces = [
        f"{row}\n" for row in ["first", "", "~~~ python title=a b", *code, "~~~", "", "# end"]
    ]
    shown = ["first", "", "python title=a b", *(f"  {row}".rstrip() for row in code), "", "# end"]
    assert streamed(pieces).rows() == shown
    assert max(laid_out) < 50
    assert streamed(["".join(pieces)]).rows() == shown


def test_a_table_higher_than_the_screen_is_as_it_was_written():
    rows = ["| a | b |", "|---|---|", *(f"| {'x' * (n // 7)} | {n} |" for n in range(60))]
    screen = streamed([part for row in rows for part in (row, "\n")])
    assert screen.rows()[-40:] == rows[-40:]
    shown = screen.text()
    assert all(shown.count(f" {n} ") == 1 for n in range(60))


def test_only_what_changed_is_written():
    screen = TerminalScreen()
    view = view_on(screen)
    for word in ["some words here\n"] * 10:
        view.feed(answer(word))
    screen.written.clear()
    view.feed(answer("and this"))
    assert len(screen.written) == 1, "more than one write flickers"
    assert "words" not in screen.written[0]
    assert "and this" in screen.written[0]


def test_drawing_takes_a_share_of_the_time():
    times = iter(range(10_000))
    screen = TerminalScreen()
    view = view_on(screen, clock=lambda: float(next(times)))
    for _ in range(100):
        view.feed(answer("word "))
    assert 3 <= len(screen.written) <= 8
    view.finish()
    assert screen.text().count("word") == 100


@pytest.mark.parametrize("columns", [40, 79, 120])
def test_a_resize_loses_nothing(columns):
    screen = TerminalScreen()
    view = view_on(screen)
    first, second = "alpha " * 40, "omega " * 40
    view.feed(answer(f"start\n\n{first}"))
    screen.screen.resize(24, columns)
    view.feed(answer(second))
    view.finish()
    said = "".join(screen.rows()).replace(" ", "")
    assert said.count("omega") == 40
    # This screen cuts off what a narrower one has no room for.
    assert said.count("alpha") == 40 or columns < 80


def test_what_rich_cannot_lay_out_is_as_it_was_written(monkeypatch):
    monkeypatch.setattr("rich.console.Console.render_lines", Mock(side_effect=IndexError))
    rows = streamed(["**a** ", "b\n\n", "\u4e2d" * 45]).rows()
    assert rows == ["**a** b", "", "\u4e2d" * 40, "\u4e2d" * 5]


@given(
    st.text("\u200d\U0001f600\u4e2d a&\n#[]()`|-$\\", max_size=30),
    st.sampled_from([1, 2, 7, 20, 80]),
)
@example("\u200d\u200d\U0001f600#](\n|a|\n|-|", 2)
def test_no_text_fails_on_a_screen_however_narrow(text, columns):
    screen = streamed([text, text], columns)
    letters = sum(text.count(letter) for letter in "a\u4e2d\U0001f600")
    if columns >= 20 and not set("`(-") & set(text):
        assert sum(screen.text().count(letter) for letter in "a\u4e2d\U0001f600") == 2 * letters


@pytest.mark.parametrize(
    "text",
    [
        r"\(x_1 * y * z_1\)",
        r"\[ E = m \, c^2 \]",
        "$$\n\\int_0^1 x*y*z \\\\\n\\frac{1}{2}\n$$",
        r"$a*b*c$ and $\{x\}$",
        "$x$",
        "\U0001d465 $\\alpha$-stable",
    ],
)
def test_math_is_as_it_was_written(text):
    assert streamed(list(text)).rows() == text.split("\n")
    assert streamed([f"- {text}\n\nend"]).text().startswith(f" \u2022 {text.splitlines()[0]}")


def test_an_interrupt_in_mid_table_keeps_what_was_said():
    screen = TerminalScreen()
    view = view_on(screen)
    for piece in ("one\n\n| a | b |\n|---", "|---|\n| 1 | 2 |\n", "| 3 |"):
        view.feed(answer(piece))
    screen.write("^C")
    view.finish()
    assert [row.split() for row in screen.rows() if "\u2500" not in row] == [
        ["one"], [], ["a", "b"], ["1", "2"], ["3"],
    ]  # fmt: skip
    assert screen.screen.cursor.x == 0
    assert screen.screen.mode == screen.modes


def test_what_a_fence_says_but_a_language_is_shown():
    screen = streamed(["```python title=x\na = 1\n```\n\n```c++\nint b;\n```"])
    assert screen.rows() == ["python title=x", "  a = 1", "", "  int b;"]


def test_nothing_is_erased_but_rows():
    """Erasing the rest of the screen from its first row leaves a copy in tmux's history."""
    screen = streamed(re.findall(r"\s?\S{1,5}|\s", TEXT))
    assert set(re.findall(r"\x1b\[\d*[JK]", "".join(screen.written))) == {"\x1b[2K"}


def test_an_interrupt_in_mid_block_keeps_what_was_said():
    screen = TerminalScreen()
    view = view_on(screen)
    view.feed(answer("one\n\n```py\nx = "))
    screen.write("^C")
    view.finish()
    assert screen.rows() == ["one", "", "  x ="]
    assert screen.screen.cursor.x == 0


ATTACKS = [
    "\x1b]0;owned\x07", "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\", "\x1b[?25l", "\x1b[31m", "\x1b[2J",
    "\x9b31m", "\x9d0;owned\x9c", "\x07", "\x1bc", "\x1b[?1049h", "\x0e", "\x1b[?7l", "&#27;[31m", "&#x1b;[2J",
    "&#155;31m", "\x1b]52;c;b3du\x07", "\x1bP$qm\x1b\\", "over\rX", "abc\x08\x08", "\x85", "\x7f",
    "\u202edcba", "\u2066a", "&#x202e;", "&#8294;",
]  # fmt: skip
FORBIDDEN = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"} - set(
    "\x1b\n\r"
)  # fmt: skip
FRAMES = ["{}", "`{}`", "```{}\ncode {}\n```", "[a{}](http://x/{})", "|{}|b|\n|-|-|\n|{}|d|", "# {}", "- {}", "<{}>",
          "![{}]({})", "[{}]: {}", "<think>{}</think>{}"]  # fmt: skip


VIEWS = [{}, {"plain": True}, {"show_drafts": True}, {"reasoning": "fold"}]


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_reply_changes_the_terminals_state(attack):
    """Every attack in every frame, in every view; the views take turns from frame to frame."""
    for place, frame in enumerate(FRAMES, ATTACKS.index(attack)):
        text = f"before\n\n{frame.replace('{}', attack)}\n\nafter"
        view = VIEWS[place % len(VIEWS)]
        screen = streamed([text[at : at + 3] for at in range(0, len(text), 3)], **view)
        assert screen.screen.title == ""
        assert not screen.screen.cursor.hidden
        assert screen.screen.cursor.attrs == screen.screen.default_char
        assert screen.cells("after").fg == "default"
        assert "before" in screen.text()
        assert set(re.findall(r"\x1b.", "".join(screen.written))) <= {"\x1b["}
        assert not set("".join(screen.written)) & FORBIDDEN


@pytest.mark.parametrize("size", SIZES)
def test_tints_are_on_the_letters_they_are_of(size):
    """Every word is its own source; Markdown and wrapping are as without tints."""
    pieces = re.findall(r"\s?\S{1,3}|\s", TEXT)
    screen = TerminalScreen(*size)
    view = view_on(screen, show_drafts=True)
    for number, piece in enumerate(pieces):
        source = "drafted" if number % 3 == 0 else ""
        view.feed(answer(piece, source))
    view.finish()
    assert screen.rows() == streamed([TEXT], size[0], 100).rows()


@pytest.mark.parametrize(
    ("before", "drafted", "after"),
    [
        ("One ", "two ", "three"),
        ("A **bold ", "word", "** here"),
        ("Use `co", "de_of", "_it` now"),
        ("- one\n- t", "w", "o"),
        ("```py\ndef add(a):\n    return ", "a + b", "\n```"),
        ("- x\n\n  ```\n  f(", "word", ")\n  ```\n"),
        ("# Head ", "line", " end"),
        ("| a | b |\n|---|---|\n| c | ", "word", " |"),
        ("> quoted ", "word", " here"),
        ("&amp; then ", "word", " &lt;"),
        ("word and ", "word", " and word"),
        ("a (b) ", "word", "\n\nword"),
    ],
)  # fmt: skip
def test_a_draft_is_tinted_and_nothing_else(before, drafted, after):
    screen = TerminalScreen()
    view = view_on(screen, show_drafts=True)
    for text, source in ((before, ""), (drafted, "prompt"), (after, "")):
        view.feed(answer(text, source))
    view.finish()
    tinted = "".join(
        screen.screen.buffer[row][column].data
        for row in range(24)
        for column in range(80)
        if screen.screen.buffer[row][column].fg != "default"
    )
    assert tinted.split() == drafted.split()


def test_an_entity_is_shown_where_all_is_drafted():
    """Its letter is not in the text, so it has no tint."""
    screen = TerminalScreen()
    view = view_on(screen, show_drafts=True)
    view.feed(answer("one&lt;two", "prompt"))
    view.finish()
    assert screen.rows() == ["one<two"]
    assert screen.cells("one").fg != screen.cells("<").fg == "default"


def test_code_has_no_background():
    screen = streamed(["Use `code` here.\n\n```py\n# note\nx = 'text' if 1 else None\n```"])
    cells = [screen.screen.buffer[row][column] for row in range(24) for column in range(80)]
    assert {cell.bg for cell in cells} == {"default"}
    assert len({cell.fg for cell in cells}) >= 5


def test_colours_can_be_read_on_black_and_on_white():
    styles = {*MARKDOWN.values(), *CODE.values(), *DraftTint(has_colors=True).styles.values()}
    colours = {style.color for style in styles} - {None}
    assert len(colours) >= 5
    for colour in colours:
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (value / 255 for value in colour.get_truecolor())
        ]
        light = sum(
            share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
        )
        # WCAG 2: 3 is enough for large text; no colour has more than 4.6 on both.
        assert min((light + 0.05) / 0.05, 1.05 / (light + 0.05)) > 3.5, colour
    assert not any(style.bgcolor for style in styles)


def test_no_color_leaves_bold(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = streamed(["**bold** `code`\n\n```py\nx = 1\n```"])
    assert screen.cells("bold").bold
    assert not re.search(r"\x1b\[[0-9;]*[34]\d", "".join(screen.written))


def test_a_dumb_terminal_gets_the_text(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert streamed([TEXT[:200]]).written == [TEXT[:200], "\n"]
