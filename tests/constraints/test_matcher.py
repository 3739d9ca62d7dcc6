"""Matchers: what may follow a reply, what must, what may come before it, and where it ends."""

import random
import re
from types import SimpleNamespace

import pytest
from matched import allowed, ids_of, tiny
from toy_engine import END, ToyTokenizer

from akunu_py.constraints import Opening, make_matcher
from akunu_py.constraints.grammar import terms_of
from akunu_py.constraints.matcher import reason_of
from akunu_py.constraints.vocabulary import MatcherVocabulary
from akunu_py.system.errors import ConstraintError
from akunu_py.tool_calls.format import ToolFormat
from akunu_py.tool_calls.grammar import optional_calls
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Tool

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def matcher(constraint):
    return make_matcher(constraint, tiny()[1])


def end_ids():
    return tiny()[1].end_ids


def test_masks_of_a_tree_do_not_depend_on_the_order_of_its_paths():
    here = matcher(Constraint.choices(["yes", "no", "nothing"]))
    paths = [(), ids_of("n"), ids_of("y"), [*ids_of("n"), *ids_of("o")], ids_of("n")]
    masks = [here.mask(path) for path in paths]
    fresh = [matcher(Constraint.choices(["yes", "no", "nothing"])).mask(path) for path in paths]
    assert [allowed(mask) for mask in masks] == [allowed(mask) for mask in fresh]


def test_a_dead_end_of_a_path_is_not_that_of_the_reply():
    """No token has a capital. A draft that was wrong must not end a reply that goes another way."""
    toy = ToyTokenizer()
    vocabulary = MatcherVocabulary(toy, toy.vocabulary_size)
    here = make_matcher(Constraint.regex("a(b[A-Z]|c)"), vocabulary)
    a, b, c, ab = (toy.encode(text)[1] for text in ("a", "b", "c", "ab"))
    first = here.mask(())
    assert not here.mask((ab,)).any()
    assert (here.mask(()) == first).all()
    here.advance((a,))
    assert not here.mask((b,)).any()
    assert allowed(here.mask((c,))) == {END}
    here.advance((b,))
    with pytest.raises(ConstraintError, match="regex: the reply cannot go on"):
        here.mask(())


@pytest.mark.parametrize(
    "question",
    [
        lambda here: here.forced_tokens(),
        lambda here: here.validate(ids_of("yes")),
        lambda here: here.may_end,
        lambda here: allowed(here.mask(())),
    ],
)
def test_a_mask_of_a_path_does_not_move_the_reply(question):
    fresh, asked = matcher(Constraint.choices(["yes"])), matcher(Constraint.choices(["yes"]))
    asked.mask(ids_of("yes"))
    assert question(asked) == question(fresh)


@pytest.mark.parametrize("seed", range(5))
def test_masks_are_those_of_the_text_however_the_reply_got_there(seed):
    rng = random.Random(seed)
    path = ids_of('{"name": "Bob", "age": 12}')
    fresh = matcher(Constraint.json_schema(PERSON))
    masks = [fresh.mask(path[:place]) for place in range(len(path) + 1)]
    here, place = matcher(Constraint.json_schema(PERSON)), 0
    for _ in range(30):
        match rng.randrange(4):
            case 0:
                step = rng.randint(0, place)
                here.rollback(step)
                place -= step
            case 1:
                step = rng.randint(0, len(path) - place)
                here.advance(path[place : place + step])
                place += step
            case 2:
                here.mask([*path[place : place + 2], *ids_of("~")])
            case 3:
                ahead = rng.randint(place, len(path))
                assert (here.mask(path[place:ahead]) == masks[ahead]).all()
        assert here.num_tokens == place
        assert (here.mask(()) == masks[place]).all()


def test_of_tokens_that_are_not_all_allowed_none_is_added():
    here = matcher(Constraint.choices(["yes", "no"]))
    y, wrong = ids_of("y")[0], ids_of("x")[0]
    with pytest.raises(ConstraintError, match=f"the token {wrong} is not allowed"):
        here.advance([*ids_of("n"), wrong])
    with pytest.raises(ConstraintError, match=f"the token {min(end_ids())} is not allowed"):
        here.advance([y, min(end_ids())])
    with pytest.raises(ConstraintError, match=f"the token {wrong} is not allowed"):
        here.advance([wrong, min(end_ids())])
    assert here.num_tokens == 0
    assert here.validate(ids_of("yes")) == len(ids_of("yes"))


def test_nothing_follows_an_end():
    here = matcher(Constraint.choices(["yes"]))
    end = min(end_ids())
    here.advance([*ids_of("yes"), end])
    assert here.forced_tokens() == ()
    assert here.may_end
    for more in ([end], ids_of("y")):
        with pytest.raises(ConstraintError, match=f"the token {more[0]} is not allowed"):
            here.advance(more)


def test_no_path_follows_an_end():
    here = matcher(Constraint.regex("a*"))
    here.advance([*ids_of("a"), min(end_ids())])
    assert here.ended
    assert here.validate(ids_of("a")) == 0
    assert here.mask(ids_of("a")).min() == 0xFFFFFFFF


def test_only_tokens_of_the_reply_are_taken_back():
    here = matcher(Constraint.choices(["yes"]))
    here.advance(ids_of("y")[:1])
    here.mask(ids_of("es")[:1])
    for count in (-1, 2):
        with pytest.raises(ConstraintError, match=f"{count} of 1 tokens"):
            here.rollback(count)


def test_the_longest_control_token_is_meant():
    vocabulary = SimpleNamespace(control_ids={"<a>": 1, "<a>b": 2})
    assert terms_of("<a>b<a>c", vocabulary) == ["<[2]>", "<[1]>", '"c"']


def test_validate_counts_the_tokens_that_fit():
    here = matcher(Constraint.json_schema(PERSON))
    good = ids_of('{"name": "Bob"')
    assert here.validate([*good, *ids_of("}")]) == len(good)
    assert here.validate([*good, *end_ids()]) == len(good)
    assert here.num_tokens == 0


def test_the_reply_goes_back_also_over_its_end():
    here = matcher(Constraint.json_schema(PERSON))
    path = ids_of('{"name": "Bob", "age": 12}')
    before = allowed(here.mask(path[:4]))
    here.advance([*path, min(end_ids())])
    assert here.ended
    assert here.validate(path) == 0
    here.rollback(len(path) - 4 + 1)
    assert allowed(here.mask(())) == before
    assert here.num_tokens == 4
    here.advance(path[4:])
    assert allowed(here.mask(())) <= end_ids()


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint.regex("(a"), r"^regex: unclosed group: \( at character 1 of \(a$"),
        (Constraint.regex("a/b(?=c)"), r"^regex: look-around, .* not supported: \(\?= at character 4 of a/b\(\?=c\)$"),
        (Constraint.regex(r"\bfoo"), "^regex: lookarounds not supported yet; WordUnicode"),
        (Constraint.regex("a" * 99 + "("), r"^regex: unclosed group: \( at character 100 of a{60}\.\.\.$"),
        (Constraint.json_schema({"type": "string", "pattern": "a(?!b)"}), r"^json_schema: look-around, .*: \(\?! at character 2"),
        (Constraint.grammar('start: "a" b\nb: /x(?=y)/'), r"^grammar: .*: \(\?= at character 2 of x\(\?=y\)$"),
        (Constraint.grammar('start: "a" b'), r'^grammar: unknown name: "b" \(line 1, character 8\)$'),
        (Constraint.grammar('start: start "a"'), "^grammar: .* may come next; check whether the form can end"),
        (Constraint.regex(r"(\p{L}|\d|[^a-z])*" * 500), r"^regex: it is too complex \(lexer precomputation failed\); make it simpler$"),
        (Constraint.json_schema({"not": {}}), 'json_schema: .*"not"'),
        (Constraint.json_schema({"type": "integer", "minimum": 2, "maximum": 1}), "json_schema: .*minimum"),
        (Constraint.json_schema(False), "json_schema: .*false"),
        (Constraint.grammar("start: <|nothing|>"), "grammar: .*unknown special token"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_said(constraint, message):
    with pytest.raises(ConstraintError, match=message):
        matcher(constraint)


def test_an_error_within_a_reply_names_the_constraint():
    """Contradicting character sets cannot be seen when the grammar is compiled."""
    here = matcher(Constraint.grammar('start: "a" /[x-z]/ NEVER\nNEVER: /[b]/ & /[c]/'))
    here.advance([*ids_of("a"), *ids_of("x")])
    with pytest.raises(ConstraintError, match=r"^grammar: the reply cannot go on: no token"):
        here.mask(())


def test_advice_to_programmers_of_the_library_is_left_out():
    said = "Parser Error: Too many items (limit 50000; ff_tokens); try avoiding short lexemes"
    assert reason_of(said) == (
        "it is too complex (Parser Error: Too many items (limit 50000)); make it simpler"
    )


def test_a_panic_of_the_library_is_said_in_words(monkeypatch):
    class Panicked:
        def __init__(self, *_arguments, **_options):
            pass

        def deep_copy(self):
            return self

        def is_error(self):
            return True

        def get_error(self):
            return "panic: range end index 65536 out of range"

    monkeypatch.setattr("akunu_py.constraints.vocabulary.LLMatcher", Panicked)
    toy = ToyTokenizer()
    with pytest.raises(ConstraintError, match="too large to compile; make it smaller"):
        make_matcher(Constraint.regex("a"), MatcherVocabulary(toy, toy.vocabulary_size))


@pytest.mark.parametrize(
    ("opening", "after"),
    [("A", "B"), ("A", " "), ("A", ""), ("A\ncall:", "("), ("AB", "C"), ("A x B\n", ": ")],
)
def test_a_control_token_binds_only_as_part_of_a_whole_head(opening, after):
    """A, B and C stand for control tokens."""
    _, vocabulary = tiny()
    names = [name for name, id_ in vocabulary.control_ids.items() if id_ not in vocabulary.end_ids]

    def given(text):
        for letter, name in zip("ABC", names, strict=False):
            text = text.replace(letter, name)
        return text

    format_ = ToolFormat(
        name="json", opens=(given(opening),), after_names=(given(after),), close="}"
    )
    tools = [Tool("get"), Tool("get_now")]
    made = Constraint.tools(optional_calls(format_, tools, vocabulary.control_ids))
    prose = ["Hi", "The tag A is one.", "AA", opening]
    prose += [f"{opening}get_nothing", "A\nget", "x A\nA y"]
    if not after.startswith(("B", "C")):
        prose.append(f"{opening}other{after}")
    for text in map(given, prose):
        whole = ids_of(text)
        here = matcher(made)
        assert here.validate(whole) == len(whole), text
        here.advance(whole)
        assert here.may_end, text
        if opening.startswith("AB") and text == given("AB"):
            continue  # the rest of a head may follow, and no other control token
        rest = ids_of(f" {given(opening)}get_now{given(after)}{{}}}}")
        assert here.validate(rest) == len(rest), text
    for space in (None, "", "  "):
        parts = [given(opening), given(after)]
        if space is not None:  # a head may have other white space beside punctuation
            parts = [re.sub(r"(?<=[^\s\w.-])\s+|\s+(?=[^\s\w.-])", space, text) for text in parts]
        here = matcher(made)
        here.advance(ids_of(f"So: {parts[0]}get_now{parts[1] if after else '{'}"))
        assert not here.validate(ids_of("!")), space


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
