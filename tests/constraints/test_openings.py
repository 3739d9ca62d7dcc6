"""What may come before a constraint: thoughts, messages of a format, and a space."""

from matched import allowed, ids_of, tiny

from akunu_py.constraints import Opening, make_matcher
from akunu_py.values.constraint import Constraint

# akunu-tiny has few control tokens, so these stand for others.
THOUGHTS = (("<|system|>", "<|user|>"),)
ANSWER = Constraint.choices(["yes"])


def fits(opening, text, constraint=ANSWER):
    _, vocabulary = tiny()
    tokens = [*ids_of(text), min(vocabulary.end_ids)]
    return make_matcher(constraint, vocabulary, opening).validate(tokens) == len(tokens)


def test_a_mask_holds_from_the_first_closing_marker_on():
    """Its text is spelled by several tokens, and the next one is no part of it."""
    here = make_matcher(ANSWER, tiny()[1], Opening(inside="</think>"))
    before, marker = ids_of("a </thi b "), ids_of("</think>")
    assert len(marker) > 2
    for token in [*before, *marker[:-1]]:
        here.advance([token])
        assert set(ids_of("x")) <= allowed(here.mask(()))
    here.advance(marker[-1:])
    texts = {tiny()[0].decode([token]) for token in allowed(here.mask(()))}
    assert {"y", "\n"} <= texts
    assert all("yes".startswith(text.strip()) for text in texts)


def test_a_trigger_may_follow_thoughts():
    constraint = Constraint.choices(["yes"], trigger="<call>")
    for text in ("hm", "hm <call>yes", "<|system|><call>no<|user|>hm<call>yes"):
        assert fits(Opening(reasoning=THOUGHTS), text, constraint)
    assert not fits(Opening(reasoning=THOUGHTS), "<call>no", constraint)
