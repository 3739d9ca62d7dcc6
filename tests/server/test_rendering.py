"""Markdown as trees for the page: values by hand, and what no text may do."""

import re
import signal
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.server.page import rendering
from akunu_py.server.page.render_child import blocks_of
from akunu_py.system.errors import ConfigError
from akunu_py.system.limited_child import LimitedChild

LTR = {"dir": "ltr"}


def link(address, *words, host=None):
    made = ["a", {"href": address, "target": "_blank", "rel": "noreferrer"}, *words]
    return [made] if host is None else [made, ["span", {"class": "host"}, f" ({host})"]]


INLINE = {
    "a *b* **c** ~~d~~ `e`": ["a ", ["em", {}, "b"], " ", ["strong", {}, "c"], " ", ["s", {}, "d"], " ", ["code", {}, "e"]],
    r"\*a\* &amp; b\, c": ["*a* & b, c"],
    "one\ntwo": ["one\ntwo"],
    "one  \ntwo": ["one", ["br", {}], "two"],
    "<b>a</b> <script>b</script>": ["<b>a</b> <script>b</script>"],
    "![x](http://a.example/b.png)": ["![x](http://a.example/b.png)"],
    "[a](https://b.example/c)": link("https://b.example/c", "a", host="b.example"),
    "<https://b.example/c>": link("https://b.example/c", "https://b.example/c"),
    "[b.example](http://evil.example@c.example/)": link(
        "http://evil.example@c.example/", "b.example", host="evil.example@c.example"
    ),
    "[a](javascript:alert(1))": ["[a](javascript:alert(1))"],
    "[a](data:text/html,b)": ["[a](data:text/html,b)"],
    "[a](file:///etc/passwd)": ["[a](file:///etc/passwd)"],
    "[a](/b)": ["[a](/b)"],
    "costs $5 and $6 or more": ["costs $5 and $6 or more"],
    "$PATH and $HOME": ["$PATH and $HOME"],
    r"$\nosuchcommand$": [r"$\nosuchcommand$"],
    r"\(\left( x\)": [r"\(\left( x\)"],
}  # fmt: skip


@pytest.mark.parametrize("text", INLINE)
def test_a_paragraph(text):
    [(line, [name, attributes, *found])] = blocks_of(text)
    assert (line, name, attributes) == (0, "p", LTR)
    assert found == INLINE[text]


BLOCKS = {
    "# A\n\ntext": [(0, ["h1", LTR, "A"]), (2, ["p", LTR, "text"])],
    "- a\n- [x] b\n\nc": [
        (0, ["ul", LTR, ["li", {}, "a"], ["li", {"class": "task"}, "\u2611 b"]]), (3, ["p", LTR, "c"]),
    ],
    "3. a\n\n4. b": [(0, ["ol", LTR | {"start": "3"}, ["li", {}, ["p", LTR, "a"]], ["li", {}, ["p", LTR, "b"]]])],
    "a|b\n:-|-:\nPara|ms": [
        (0, ["div", LTR | {"class": "table", "tabindex": "0"}, ["table", LTR,
             ["thead", {}, ["tr", {}, ["th", LTR | {"class": "left"}, "a"], ["th", LTR | {"class": "right"}, "b"]]],
             ["tbody", {}, ["tr", {}, ["td", LTR | {"class": "left"}, "Para"], ["td", LTR | {"class": "right"}, "ms"]]]]]),
    ],
    "> \u05d0 a": [(0, ["blockquote", {"dir": "rtl"}, ["p", {"dir": "rtl"}, "\u05d0 a"]])],
    "a[^1]\n\n[^1]: b": [(0, ["p", LTR, "a", ["sup", {}, "1"]]), (0, ["ol", LTR, ["li", {}, ["p", LTR, "b"]]])],
    "---": [(0, ["hr", {}])],
}  # fmt: skip


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_and_their_lines(text):
    assert blocks_of(text) == BLOCKS[text]


def math_of(tree):
    """Return the formulas of a tree, as names with their texts."""
    if isinstance(tree, str):
        return []
    if tree[0] != "math":
        return [found for one in tree[2:] for found in math_of(one)]

    def shape(one):
        return one if isinstance(one, str) else f"{one[0]}({' '.join(map(shape, one[2:]))})"

    return [(tree[1]["display"], tree[1]["alttext"], shape(tree[2]))]


E_TO_I_PI = "mrow(msup(mi(e) mrow(mi(i) mi(\u03c0))))"


@pytest.mark.parametrize(
    ("text", "display", "alttext", "shape"),
    [
        (r"so \(e^{i\pi}\) is", "inline", r"\(e^{i\pi}\)", E_TO_I_PI),
        (r"so $e^{i\pi}$ is", "inline", r"$e^{i\pi}$", E_TO_I_PI),
        ("$$\ne^{i\\pi}\n$$", "block", "$$\ne^{i\\pi}\n$$", E_TO_I_PI),
        ("\\[ e^{i\\pi} \\]", "block", "\\[ e^{i\\pi} \\]", E_TO_I_PI),
        # Lines that would begin a list, and a blank one.
        ("\\[\na\n- b\n\n= c\n\\]", "block", "\\[\na\n- b\n\n= c\n\\]",
         "mrow(mi(a) mo(\u2212) mi(b) mo(=) mi(c))"),
        ("- x\n  $$\n  a\n  + b\n  $$", "block", "$$\na\n+ b\n$$", "mrow(mi(a) mo(+) mi(b))"),
    ],
)  # fmt: skip
def test_formulas(text, display, alttext, shape):
    found = [one for _, tree in blocks_of(text) for one in math_of(tree)]
    assert found == [(display, alttext, shape)]


def test_lines_of_aligned_equations_are_a_table():
    [(_, tree)] = blocks_of("\\[\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\\]")
    [(_, _, shape)] = math_of(tree)
    assert shape.count("mtr(") == 2
    assert "&" not in shape


def words(tree):
    return tree if isinstance(tree, str) else "".join(map(words, tree[2:]))


def code_of(text):
    [(_, [name, attributes, head, pre])] = blocks_of(text)
    assert (name, attributes["class"], pre[0]) == ("div", "code", "pre")
    return head[2][2], pre[2]


@pytest.mark.parametrize("language", ["python", "diff", "nonesuch", "", "c++"])
def test_code_is_as_it_was_written(language):
    text = "def f():\n\n    return '\\n' + \"**\"  # \u00e9\n"
    name, code = code_of(f"```{language}\n{text}```")
    assert (name, words(code)) == (language or "code", text)


@pytest.mark.parametrize("language", ["", "python"])
def test_lines_of_long_code_are_in_parts(language):
    _, code = code_of(f"```{language}\n" + "a = 1\n" * 120)
    assert [words(part).count("\n") for part in code[2:]] == [50, 50, 20]


@given(st.text("ab *_>#|-1.\n`~\\$[]()!<&", max_size=80))
def test_no_letter_is_lost_or_becomes_markup(text):
    blocks = blocks_of(text)
    lines = [line for line, _ in blocks]
    assert lines == sorted(lines)
    if not set("`~\\$|[<&") & set(text):
        shown = "".join(words(tree) for _, tree in blocks)
        assert re.findall("[ab]", shown) == re.findall("[ab]", text)


@pytest.fixture
def child():
    made = LimitedChild(rendering._SCRIPT, 0.2, purpose="read Markdown")
    yield made
    made.close()


def test_a_text_that_takes_too_long_is_given_up_and_the_next_one_is_read(child):
    assert child.ask({"texts": ["*a* " * 200_000]}, 30) == -signal.SIGPROF
    found = child.ask({"texts": ["a", "*b*"]}, 30)
    assert found["texts"] == [[[0, ["p", LTR, "a"]]], [[0, ["p", LTR, ["em", {}, "b"]]]]]
    assert 0 < found["seconds"] < 0.2


def test_a_child_stays_until_it_is_ended_and_is_replaced_then(child):
    child.ask({"texts": ["a"]}, 30)
    process = child._process
    child.ask({"texts": ["a"]}, 30)
    assert child._process is process
    process.terminate()
    process.wait()
    assert child.ask({"texts": ["a"]}, 30)["texts"]


def test_an_interrupt_ends_a_child_whose_answer_may_yet_come(child, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("select.select", Mock(side_effect=[([1], [], []), KeyboardInterrupt]))
        with pytest.raises(KeyboardInterrupt):
            child.ask({"texts": ["a"]}, 30)
    assert child.ask({"texts": ["b"]}, 30)["texts"] == [[[0, ["p", LTR, "b"]]]]


def test_a_child_that_cannot_start_is_told(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text("raise SystemExit(1)")
    with pytest.raises(ConfigError, match=r"akunu cannot read Markdown: .* cannot run"):
        LimitedChild(str(script), purpose="read Markdown").ask({}, 1)
