"""What of a reply is shown: stop texts, end ids, and text held back, with a scripted detokenizer."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import Step
from akunu_py.engine.reasoning import ReasoningSplitter
from akunu_py.engine.reply_text import ReplyText
from akunu_py.tokenizers.vocabulary import ByteDetokenizer
from akunu_py.values.types import Draft, StepStats, TextPiece, Verification

PIECES = {1: "ab", 2: "c", 3: "", 4: "STO", 5: "P!", 6: "xyz"}


class Pieces:
    """Maps ids to texts; holds one more piece until the end, as half a character would be."""

    def feed(self, token_ids):
        return "".join(PIECES[token] for token in token_ids)

    def finish(self):
        return "?"


def joined(pieces):
    return "".join(piece.text for piece in pieces)


def step(*tokens):
    count = len(tokens)
    stats = StepStats("x", count - 1, count - 1, count - 1, count, "bonus", 0.0, 0.0, 0.0)
    return Step(tokens, stats, None, Draft.empty(), Verification((), tokens[-1], "bonus"))


@pytest.mark.parametrize(
    ("steps", "stops", "text", "kept"),
    [
        ([(1, 2), (6,)], (), "abcxyz?", 3),
        ([(1, 4, 5, 6)], ("STOP",), "ab", 3),
        ([(1, 4), (5, 6)], ("STOP",), "ab", 3),
        ([(1, 4), (2, 6)], ("STOP",), "abSTOcxyz?", 4),
        ([(1, 4)], ("STOP",), "abSTO?", 2),
        ([(1,), (9, 6)], (), "ab?", 3),
        ([(2, 3, 1)], ("ca", "b"), "", 3),
    ],
)
def test_what_is_shown_and_kept(steps, stops, text, kept):
    reply = ReplyText(Pieces(), stops, frozenset({9}))
    shown, tokens = "", 0
    for one in steps:
        taken, pieces = reply.take(step(*one))
        shown += joined(pieces)
        tokens += len(taken.token_ids)
        assert taken.stats.num_output_tokens == len(taken.token_ids)
        if taken.finish_reason == "stop":
            break
    shown += joined(reply.finish())
    assert shown == reply.shown == text
    assert tokens == kept


def test_a_stop_text_can_be_completed_by_what_was_held_to_the_end():
    reply = ReplyText(Pieces(), ("c?",), frozenset())
    _, pieces = reply.take(step(1, 2))
    assert joined(pieces + reply.finish()) == reply.shown == "ab"


FINAL = "<|channel|>final<|message|>"
THOUGHT = "<think>a STOP\n\nb</think>\n\n"


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("text", "stops", "shown"),
    [
        (f"{THOUGHT}yes STOP no", ("STOP",), f"{THOUGHT}yes "),
        (f"{THOUGHT}yes\n\nno", ("\n\n",), f"{THOUGHT}yes"),
        (f"{THOUGHT}yes", ("b</think>", "think>\n", "<"), f"{THOUGHT}yes"),
        ("<think>ST</think>OP yes", ("STOP",), "<think>ST</think>OP yes"),
        ("<think>STOP", ("STOP",), "<think>STOP"),
        ("<thin STOP", ("STOP", "no"), "<thin "),
        ("yes <think>a STOP", ("STOP",), "yes <think>a "),
        (f"{THOUGHT}yes ST", ("STOP",), f"{THOUGHT}yes ST"),
        (f"{FINAL}yes\n\nno", ("\n\n",), f"{FINAL}yes"),
        (f"{FINAL}ST<|end|>{FINAL}OP", ("STOP",), f"{FINAL}ST<|end|>{FINAL}OP"),
    ],
)
def test_stop_texts_count_in_the_answer_alone(text, stops, shown, size):
    token_bytes = [character.encode() for character in text]
    reply = ReplyText(
        ByteDetokenizer(token_bytes, strip_space=False), stops, frozenset(), None,
        ReasoningSplitter(),
    )  # fmt: skip
    found = ""
    for place in range(0, len(text), size):
        taken, pieces = reply.take(step(*range(place, min(place + size, len(text)))))
        found += joined(pieces)
        if taken.finish_reason == "stop":
            break
    found += joined(reply.finish())
    assert found == reply.shown == shown
    assert (reply.stop_text in stops) == (shown != text)


def drafted_step(tokens, origins):
    """A step whose tokens but the last were drafted, by origins; "" in their place: by "memory"."""
    size = len(tokens) - 1
    draft = Draft.chain(tokens[:size], "memory", origins=tuple(origins[:size]))
    stats = StepStats("memory", size, size, size, size + 1, "bonus", 0.0, 0.0, 0.0)
    return Step(
        tuple(tokens), stats, None, draft, Verification(tuple(range(size)), tokens[-1], "bonus")
    )


def taken(steps, token_bytes, stops=()):
    reply = ReplyText(ByteDetokenizer(token_bytes, strip_space=False), stops, frozenset())
    events = []
    for one in steps:
        step_, pieces = reply.take(one)
        events.append(pieces)
        if step_.finish_reason:
            break
    return reply, [*events, reply.finish()]


def copied_step(tokens, places):
    """A step whose drafted tokens were copied from these places of the prompt."""
    draft = Draft.chain(tokens[:-1], "auto", origins=("prompt",) * len(places), places=places)
    return replace(drafted_step(tokens, [""] * len(tokens)), draft=draft)


EURO, HALF = "\u20ac".encode(), TextPiece("\N{REPLACEMENT CHARACTER}")
UNNAMED = Step((0, 0), step(0, 0).stats, None, Draft.chain([0]), Verification((0,), 0, "bonus"))
SOURCES = {
    "a character belongs to the token that completes it": (
        [drafted_step([0, 1], ["ngram"]), drafted_step([2, 3, 2], ["ngram", "copy"])],
        [b"a" + EURO[:1], EURO[1:2], EURO[2:], b"b"],
        [(TextPiece("a", "ngram"),),
         (TextPiece("\u20ac", "ngram"), TextPiece("b", "copy"), HALF), ()],
    ),
    "one that is cut at the end, to the last token": (
        [drafted_step([1, 0], ["ngram"])], [EURO[:2], b"a"],
        [(TextPiece("a", "ngram"),), (HALF,)],
    ),
    "an unnamed drafter is not the target": (
        [UNNAMED], [b"a"], [(TextPiece("a", "drafter"), TextPiece("a")), ()],
    ),
    "copies of following tokens are one piece with the place of the first": (
        [copied_step([0, 1, 0, 1, 0, 1], (7, 8, 3, 4, -1))], [b"a", b"b"],
        [(TextPiece("ab", "prompt", 7), TextPiece("ab", "prompt", 3), TextPiece("a", "prompt"),
          TextPiece("b")), ()],
    ),
    "text held back stays with its tokens": (
        [drafted_step([0, 1], ["ngram"]), drafted_step([2], [])], [b"xS", b"T", b"!"],
        [(TextPiece("x", "ngram"),), (TextPiece("S", "ngram"), TextPiece("T!")), ()],
    ),
    "half a plain step's text held back, with its token": (
        [drafted_step([0], []), drafted_step([1, 2], ["ngram"])], [b"xS", b"T", b"!"],
        [(TextPiece("x"),), (TextPiece("S"), TextPiece("T", "ngram"), TextPiece("!")), ()],
    ),
    "what was not held back after all keeps its place": (
        [copied_step([0, 1], (7,))], [b"xS", b"!"],
        [(TextPiece("xS", "prompt", 7), TextPiece("!")), ()],
    ),
    "so does the rest of text held back": (
        [copied_step([0, 1], (7,)), drafted_step([1], [])], [b"xS", b"T"],
        [(TextPiece("x", "prompt", 7),), (TextPiece("S", "prompt", 7), TextPiece("TT")), ()],
    ),
}  # fmt: skip
"""Steps, the bytes of tokens, and the pieces of each step and of the end, where STOP ends a reply."""


@pytest.mark.parametrize("name", SOURCES)
def test_where_pieces_come_from(name):
    steps, token_bytes, pieces = SOURCES[name]
    assert taken(steps, token_bytes, stops=("STOP",))[1] == pieces


def test_marks_are_text_and_end_half_a_character():
    detokenizer = ByteDetokenizer([b"a", b"", "\u20ac".encode()[:2], b""], strip_space=False)
    reply = ReplyText(detokenizer, ("</t>a",), frozenset({9}), {1: "<t>", 3: "</t>"})
    _, pieces = reply.take(drafted_step([1, 0, 2, 3], ["ngram", "ngram", "copy"]))
    half = "\N{REPLACEMENT CHARACTER}"
    assert pieces == (TextPiece("<t>a", "ngram"), TextPiece(half))
    last, pieces = reply.take(drafted_step([3, 0, 0], ["ngram", "copy"]))
    assert pieces == (TextPiece("</t>"),)
    assert last.finish_reason == "stop"
    assert reply.shown == f"<t>a{half}</t>"


TOKENS = [bytes([b]) for b in "a\u20ac\U0001f469".encode()] + [
    b"ST",
    b"OP",
    b"",
    b"\xff",
    "\u00e9x".encode(),
]


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, len(TOKENS) - 1), st.sampled_from(["ngram", "copy"])),
            min_size=1, max_size=5,
        ),
        max_size=8,
    ),
    st.lists(st.sampled_from(["STOP", "TO", "x", "\u20ac", "aST"]), max_size=3),
)  # fmt: skip
def test_pieces_joined_are_the_text_and_each_character_has_its_tokens_source(script, stops):
    steps = [drafted_step([t for t, _ in one], [o for _, o in one]) for one in script]
    reply, events = taken(steps, TOKENS, tuple(stops))
    pieces = [piece for event in events for piece in event]
    assert joined(pieces) == reply.shown
    assert all(piece.text for piece in pieces)
    assert all(a.source != b.source for event in events for a, b in itertools.pairwise(event))
    # One token after another, whatever the steps were.
    detokenizer, expected = ByteDetokenizer(TOKENS, strip_space=False), []
    sources = [source for one in script for source in [*[o for _, o in one[:-1]], ""]]
    for (token, _), source in zip([t for one in script for t in one], sources, strict=True):
        expected += [(character, source) for character in detokenizer.feed((token,))]
    expected += [(character, "") for character in detokenizer.finish()]
    found = [(character, piece.source) for piece in pieces for character in piece.text]
    assert found == expected[: len(found)]
