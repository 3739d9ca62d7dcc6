"""Which parts of a reply are shown and how: plain, by who drafted it, reasoning.

Mutants, made by hand, that these tests kill: the tint of a source for another; markers found behind
the first word; text held back lost at the end; a closing marker cut across tokens; a pipe that gets
codes; tokens of thoughts counted for the answer. On a terminal that is resized meanwhile: wrapped
lines drawn again; the last of them begun anew; the width of a block changed in its middle; codes of
a wrapped line left out.
"""

import io
import itertools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reply_events import answer, with_deltas
from resizing_screen import ResizingScreen
from terminal_screen import TerminalScreen

from akunu_py.cli.reply_view import make_view
from akunu_py.cli.reply_view.live_lines import Line, LiveLines
from akunu_py.engine.reasoning import REASONING as MARKERS
from akunu_py.engine.reasoning import ReasoningSplitter
from akunu_py.values.decode_stats import DraftedToken, StepDetail
from akunu_py.values.types import StepStats, StreamEvent, TextPiece

pytestmark = pytest.mark.usefixtures("colors")


def event(*pieces, tokens=()):
    """An event whose pieces are given as text or (text, source), a token each if drafted."""
    pieces = [TextPiece(*((piece,) if isinstance(piece, str) else piece)) for piece in pieces]
    text = "".join(piece.text for piece in pieces)
    drafted = tuple(
        DraftedToken(7, place - 1, True, source=piece.source)
        for place, piece in enumerate(p for p in pieces if p.source)
    )
    detail = StepDetail(0, "auto", 0, drafted, 1, "bonus", "target")
    count = len(drafted)
    stats = StepStats(
        "auto", count, count, count, count + 1, "bonus", 0.0, 0.0, 0.0, lambda: detail
    )
    return StreamEvent(text, tuple(tokens), stats, None, tuple(pieces))


def shown(events, screen=None, *, prompt_end="", **options):
    screen = screen or TerminalScreen()
    size = getattr(screen, "size", None)
    options = {"plain": False, "show_drafts": False, "clock": lambda: 0.0, **options}
    with make_view(stream=screen, size=size, **options) as view:
        for one in with_deltas(events, prompt_end):
            view.feed(one)
    return screen


ODD = "# a **b**\n\x1b[31m\x07 <think>c</think>\r\n\U0001f468"


@pytest.mark.parametrize("options", [{}, {"plain": True}, {"show_drafts": True}], ids=str)
def test_a_pipe_gets_the_text_as_it_is(options):
    pipe = shown([event(letter) for letter in ODD], io.StringIO(), **options)
    assert pipe.getvalue() == ODD + "\n"


@pytest.mark.parametrize("reasoning", ["fold", "hide"])
def test_a_pipe_gets_no_reasoning_where_none_is_wanted(reasoning):
    text = "<think>\nwell\n</think>\n\nyes\n"
    pipe = shown([event(letter) for letter in text], io.StringIO(), reasoning=reasoning)
    assert pipe.getvalue() == "yes\n\n"


def test_plain_on_a_terminal_is_harmless_text():
    screen = shown([event("# a **b**\x1b[31m\n- c")], plain=True)
    assert screen.rows() == ["# a **b**\N{REPLACEMENT CHARACTER}[31m", "- c"]


def drafts_of(events, **options):
    """The screen, and what the reply was made of."""
    screen = TerminalScreen()
    options = {"plain": False, "show_drafts": True, "clock": lambda: 0.0, **options}
    with make_view(stream=screen, size=screen.size, **options) as view:
        for one in with_deltas(events):
            view.feed(one)
    return screen, view.drafts


@pytest.mark.parametrize("plain", [True, False])
def test_drafts_are_tinted_by_source(plain):
    events = [
        event("It ", ("was ", "copy"), ("once", "ngram")),
        event("\nupon", (" a\ntime", "copy")),
    ]
    screen, drafts = drafts_of(events, plain=plain)
    assert screen.rows() == ["It was once", "upon a", "time"]
    assert str(drafts) == (
        "5 tokens in 2 passes; 3 were drafted: 2 from copy, 1 from n-gram counts"
    )
    was, once, time = (screen.cells(word) for word in ("was", "once", "time"))
    assert screen.cells("It").fg == "default"
    assert was.fg == time.fg != "default"
    assert once.fg not in ("default", was.fg)
    # Names have the tints of their text.
    tints = [span.style for span in drafts.spans]
    assert len(tints) == len(set(tints)) == 2


def test_where_nothing_is_tinted_nothing_is_counted():
    with make_view(stream=io.StringIO(), plain=False, show_drafts=True) as view:
        view.feed(event("a", ("b", "prompt")))
    assert view.drafts is None


def test_without_colours_sources_are_underlined(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen, _ = drafts_of([event("It ", ("was ", "copy"), ("once", "ngram"))])
    was, once = screen.cells("was"), screen.cells("once")
    assert was.underscore
    assert once.underscore
    assert (was.bold, was.italics) != (once.bold, once.italics)
    assert not screen.cells("It").underscore
    assert was.fg == once.fg == "default"


def test_a_tint_ends_with_each_line():
    """An underlining would go on to the end of the line."""
    screen = shown([event(("one\ntwo", "prompt"))], plain=True, show_drafts=True)
    code = r"\x1b\[[0-9;]+m"
    assert re.match(f"{code}one\\x1b\\[0m\n{code}two\\x1b\\[0m", "".join(screen.written))


def test_a_source_cannot_bring_codes():
    screen = shown([event("a", ("b", "x\x1b]0;owned\x07"))], show_drafts=True)
    assert screen.screen.title == ""


ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
THOUGHTS = "<think>\nFirst this,\nthen that.\n</think>\n\nThe **answer**."


def letters(text):
    return [event(letter, tokens=(1,)) for letter in text]


def test_reasoning_is_dimmed():
    screen = shown(letters(THOUGHTS))
    assert screen.rows() == ["First this,", "then that.", "", "The answer."]
    written = "".join(screen.written)
    assert re.search(r"\x1b\[2mF", written)
    assert not re.search(r"\x1b\[2mT", written)


def test_thoughts_without_an_end_are_shown():
    assert shown(letters("<think>\nwell, <")).rows() == ["well, <"]


def split(pieces, prompt_end=""):
    splitter = ReasoningSplitter(prompt_end)
    parts = [part for piece in pieces for part in splitter.feed([piece])] + splitter.finish()
    return [
        "".join(piece.text for thought, piece in parts if thought is kind) for kind in (True, False)
    ]


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        (THOUGHTS, "First this,\nthen that.", "The **answer**."),
        ("<think>\n\n</think>\n\nyes", "", "yes"),
        ("\n <think> a </think> b", "a", "b"),
        ("Use <think>a</think>.", "", "Use <think>a</think>."),
        ("  plain ", "", "  plain "),
        ("<thin", "", "<thin"),
        ("<thing> a", "", "<thing> a"),
        ("<think>a</thinking>b</think>c", "a</thinking>b", "c"),
        ("<thinking>a</thinking>b", "a", "b"),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<|channel>thought\na<channel|>b", "a", "b"),
        ("", "", ""),
        (f"{ANALYSIS}a <|\n<|end|><|start|>assistant{FINAL}\nb\n c", "a <|", "b\n c"),
        (f"{FINAL}b", "", "b"),
        (f"<|channel|>commentary<|message|>a<|end|><|start|>assistant{FINAL}b", "", "a\n\nb"),
        (
            f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|><|start|>assistant{FINAL}c",
            "a\n\nb",
            "c",
        ),
        (f"{ANALYSIS}a<|end|><|start|>assistant<|chan", "a", ""),
        (f"{ANALYSIS}a", "a", ""),
        ("<|think|>a<|end|><|begin|>assistant<|content|>b", "a", "b"),
        ("<|START_THINKING|>a<|END_THINKING|>b", "a", "b"),
        ("<|inner_prefix|>a<|inner_suffix|>b", "a", "b"),
        ("<seed:think>a</seed:think>b", "a", "b"),
        ("<think>a</think> <think>b</think>c", "a", "<think>b</think>c"),
    ],
)
@given(data=st.data())
def test_thoughts_are_told_however_the_text_is_cut(text, thoughts, answer, data):
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
    pieces = [TextPiece(text[a:b]) for a, b in itertools.pairwise(places)]
    assert split(pieces) == [thoughts, answer]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_prompt_may_open_any_block(marker):
    text = f"a{MARKERS[marker]}b"
    assert split([TextPiece(text[:2]), TextPiece(text[2:])], f"x{marker}\n") == ["a", "b"]


@pytest.mark.parametrize("reasoning", ["show", "fold", "hide"])
def test_messages_of_a_harmony_reply(reasoning):
    text = f"{ANALYSIS}Think.<|end|><|start|>assistant{FINAL}**Yes**."
    screen = shown(letters(text), reasoning=reasoning)
    folded = [f"thought: {text.index('**')} tokens, 0.0 s", ""]
    first = {"show": ["Think.", ""], "fold": folded, "hide": []}
    assert screen.rows() == [*first[reasoning], "Yes."]


def test_a_folded_line_counts_as_thoughts_come():
    screen = TerminalScreen()
    view = view_on(screen, reasoning="fold")
    *events, _ = with_deltas(letters("<think>\nFirst</think>"))
    for number, one in enumerate(events, 1):
        view.feed(one)
        if number > len("<think>\n"):
            assert screen.rows() == [f"thinking: {number} tokens, 0.0 s"]
    view.finish()
    assert screen.rows() == [f"thought: {number} tokens, 0.0 s"]


def test_thoughts_between_two_answers_are_left_out():
    text = f"<|channel|>commentary<|message|>One.<|end|><|start|>assistant{ANALYSIS}no<|end|>"
    screen = shown(letters(f"{text}<|start|>assistant{FINAL}Two."))
    assert screen.rows() == ["One.", "", "Two."]


def test_pieces_keep_their_sources():
    splitter = ReasoningSplitter()
    parts = splitter.feed(
        [TextPiece("<thi", "a"), TextPiece("nk>x", "b"), TextPiece("y</think>z", "")]
    )
    assert parts == [(True, TextPiece("x", "b")), (True, TextPiece("y")), (False, TextPiece("z"))]


def view_on(screen, **options):
    defaults = {"plain": False, "show_drafts": False, "clock": lambda: 0.0, "size": screen.size}
    return make_view(stream=screen, **defaults | options)


SIZES = st.tuples(st.integers(20, 200), st.integers(3, 50))


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(1, 40), SIZES), max_size=4),
    st.booleans(),
    st.sampled_from(["{}", "- {}", "**b** {}", "> {}"]),
)
@example(0, [(20, (200, 50)), (30, (80, 24))], True, "{}")
@example(0, [(15, (40, 24))], True, "{} *a*")
@example(0, [(15, (40, 24))], False, "{}")
@example(0, [(4, (20, 3))], False, "{}")
@example(0, [(37, (37, 3)), (8, (115, 34))], False, "{}")
def test_no_resize_doubles_a_word_or_loses_one(before, resizes, reflows, frame):
    """A screen that cuts lines off loses what it cuts."""
    screen = ResizingScreen(reflows=reflows)
    screen.write("\n" * before)
    view = view_on(screen)
    start, end = frame.split("{}")
    view.feed(answer(start))
    words = iter([f"w{n}_{n} w{n + 1}_{n + 1} " for n in range(0, 100, 2)])
    for count, size in resizes:
        for word in itertools.islice(words, count):
            view.feed(answer(word))
        screen.resize(*size)
    for word in words:
        view.feed(answer(word))
    view.feed(answer(f"{end}\n\nthe end"))
    view.finish()
    # Parts of two words that a cut brings together are no word.
    rows = "".join(row.replace(" ", "") for row in screen.rows())
    said = re.findall(r"w(\d+)_\1(?!\d)", rows)
    if reflows:
        assert said == [str(number) for number in range(100)]
    else:
        assert len(said) == len(set(said))
    assert [row for row in screen.rows() if row][-1] == "the end"


def test_the_last_line_goes_on_in_its_style_on_a_narrower_screen():
    screen = ResizingScreen()
    live = LiveLines(screen, screen.size)
    live.draw([Line("above", 5), Line("\x1b[1mbold words\x1b[0m", 10)])
    screen.resize(6, 24)
    written = []
    screen.flush = lambda: None
    screen.write = lambda text: written.append(text)
    live.draw([Line("above", 5), Line("\x1b[1mbold words go\x1b[0m \x1b[3mon\x1b[0m", 16)])
    assert written == ["\x1b[1m go\x1b[0m \x1b[3mon\x1b[0m"]
    live.draw([Line("above", 5), Line("other", 5)])
    assert written[1:] == ["\nother"]


def test_a_size_that_is_known_late_loses_nothing():
    """tmux resizes its screen at once and says so up to a quarter of a second later."""
    screen = ResizingScreen()
    known = screen.size()
    view = view_on(screen, size=lambda: known)
    words = [f"w{n}_{n}" for n in range(80)]
    for number, word in enumerate(words):
        if number == 20:
            screen.resize(47, 24)
        if number == 36:
            known = screen.size()
        view.feed(answer(f"{word} "))
    view.finish()
    rows = "".join(row.replace(" ", "") for row in screen.rows())
    assert set(words) <= {f"w{n}_{n}" for n in re.findall(r"w(\d+)_\1(?!\d)", rows)}


def test_a_line_that_goes_on_is_not_written_anew():
    screen = ResizingScreen()
    written = []
    screen.write = written.append
    live = LiveLines(screen, screen.size)
    live.draw([Line("one \x1b[1mtwo\x1b[0m", 7)])
    live.draw([Line("one \x1b[1mtwo three\x1b[0m", 13), Line("four", 4)])
    live.draw([Line("one \x1b[1mtwo three\x1b[0m", 13), Line("\x1b[1mfour\x1b[0m", 4)])
    assert written[1:] == ["\x1b[1m three\x1b[0m\nfour", "\r\x1b[2K\x1b[1mfour\x1b[0m"]


def test_parts_of_one_letter_are_written_together():
    screen = ResizingScreen()
    written = []
    screen.write = written.append
    live = LiveLines(screen, screen.size)
    live.draw([Line("a \U0001f1e9", 4)])
    live.draw([Line("a \U0001f1e9\U0001f1ea", 4)])
    assert "a \U0001f1e9\U0001f1ea" in written[1]
