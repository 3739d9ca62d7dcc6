"""What of a reply is shown: stop texts, end ids, and text held back, with a scripted detokenizer."""

import pytest

from akunu_py.decoding.loop import Step
from akunu_py.reply import _ReplyText
from akunu_py.types import Draft, StepStats, Verification

PIECES = {1: "ab", 2: "c", 3: "", 4: "STO", 5: "P!", 6: "xyz"}


class Pieces:
    """Maps ids to texts; holds one more piece until the end, as half a character would be."""

    def feed(self, token_ids):
        return "".join(PIECES[token] for token in token_ids)

    def finish(self):
        return "?"


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
    reply = _ReplyText(Pieces(), stops, frozenset({9}))
    shown, tokens = "", 0
    for one in steps:
        taken, piece = reply.take(step(*one))
        shown += piece
        tokens += len(taken.token_ids)
        assert taken.stats.num_output_tokens == len(taken.token_ids)
        if taken.finish_reason == "stop":
            break
    shown += reply.finish()
    assert shown == reply.shown == text
    assert tokens == kept


def test_a_stop_text_can_be_completed_by_what_was_held_to_the_end():
    reply = _ReplyText(Pieces(), ("c?",), frozenset())
    _, piece = reply.take(step(1, 2))
    assert piece + reply.finish() == reply.shown == "ab"
