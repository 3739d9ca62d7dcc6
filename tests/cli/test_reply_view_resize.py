"""A reply on a terminal that is resized while it streams.

Mutants, made by hand, that these tests kill: wrapped lines drawn again; the last of them begun
anew; the width of a block changed in its middle; codes of a wrapped line left out.
"""

import itertools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reply_events import answer
from resizing_screen import ResizingScreen

from akunu_py.cli.reply_view import make_view
from akunu_py.cli.reply_view.live_lines import Line, LiveLines

pytestmark = pytest.mark.usefixtures("colors")


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
