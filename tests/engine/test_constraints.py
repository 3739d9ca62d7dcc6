"""Constrained replies of an engine, and replies that may not end yet: `min_tokens` and `ignore_eos`."""

import functools
import json
import re

import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.model_store.known_models import toy_model_path
from akunu_py.system.errors import ConfigError, ConstraintError
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Tool

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["alpha", "beta"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": "Bob is 12, of kind alpha."}]


@pytest.fixture(scope="module")
def engine():
    with Engine.load(toy_model_path()) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def reply(engine):
    """A reply in the form, by drafter and temperature; made once."""
    return functools.cache(
        lambda drafter, temperature: engine.chat(
            ASK, json_schema=SCHEMA, drafter=drafter, draft_budget="always", temperature=temperature,
            seed=5, max_tokens=100,
        )
    )  # fmt: skip


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 0.8])
@pytest.mark.parametrize("drafter", ["auto", "ngram", pytest.param("tree", marks=pytest.mark.lab)])
def test_a_drafted_reply_is_the_plain_one(reply, drafter, temperature):
    plain, drafted = reply("none", temperature), reply(drafter, temperature)
    assert plain.finish_reason == "stop"
    assert plain.constraint_met
    assert json.loads(plain.text)["kind"] in ("alpha", "beta")
    assert not plain.stats.drafted
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.accepted > 5


def test_a_drafted_reply_of_a_recurrent_model_is_the_plain_one(tmp_path):
    """Rows of drafts that the form allows are rejected, and states replayed."""
    with Engine.load(build("qwen3next").write(tmp_path / "model.gguf")) as recurrent:
        plain, drafted = (
            recurrent.generate(
                "a b", regex="[a-d ]{60}", drafter=drafter, draft_budget="always", temperature=0.8,
                seed=5, max_tokens=60,
            )
            for drafter in ("none", "ngram")
        )  # fmt: skip
    assert drafted.token_ids == plain.token_ids
    assert 5 < drafted.stats.accepted < drafted.stats.drafted


def test_what_must_come_is_drafted_whatever_the_budget_says(engine):
    """The budget of a fresh reply knows no costs and asks no drafter; sure tokens are drafted."""
    events = list(engine.stream_chat(ASK, json_schema=SCHEMA, max_tokens=100))
    assert events[0].step.num_draft_tokens == events[0].step.num_accepted_tokens > 0
    assert "grammar" in {piece.source for event in events for piece in event.pieces}


def test_what_must_come_is_drafted_at_once_unless_drafts_are_limited(engine):
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    first = next(engine.stream_chat(ASK, choices=[text]))
    assert first.step.num_accepted_tokens > 20
    limited = next(engine.stream_chat(ASK, choices=[text], num_draft_tokens=3))
    assert limited.step.num_draft_tokens == 3


def test_of_a_long_text_that_must_come_64_tokens_are_drafted_at_once(engine):
    text = " ".join(str(number) for number in range(100))
    first = next(engine.stream_chat(ASK, choices=[text], max_tokens=200))
    assert first.step.num_draft_tokens == first.step.num_accepted_tokens == 64


def test_penalties_and_bias_come_before_the_mask(engine):
    no = engine.tokenizer.encode("no")[-1]
    reply = engine.chat(ASK, choices=["yes", "no"], logit_bias={no: 100.0}, repetition_penalty=1.2)
    assert reply.text == "no"


def test_a_reply_that_ends_within_the_form_says_so(engine):
    reply = engine.chat(ASK, json_schema=SCHEMA, max_tokens=5)
    assert reply.finish_reason == "length"
    assert reply.constraint_met is False
    stopped = engine.chat(ASK, json_schema=SCHEMA, stop=('"age"',))
    assert stopped.finish_reason == "stop"
    assert stopped.constraint_met is False
    assert engine.chat(ASK, max_tokens=2).constraint_met is None
    assert engine.chat(ASK, regex="a{1,99}", max_tokens=3).constraint_met is True
    assert engine.chat(ASK, regex="a{9,99}", stop=("aaaaaaaaaa",)).constraint_met is False


@pytest.mark.slow
def test_a_prefix_that_is_cached_changes_nothing(engine):
    first = engine.chat(ASK, json_schema=SCHEMA)
    again = engine.chat(ASK, json_schema=SCHEMA)
    assert again.num_cached_tokens > 0
    assert again.token_ids == first.token_ids
    free = engine.chat(ASK, max_tokens=8)
    assert engine.chat(ASK, json_schema=SCHEMA).token_ids == first.token_ids
    assert engine.chat(ASK, max_tokens=8).token_ids == free.token_ids


def test_generate_and_a_trigger(engine):
    assert engine.generate("Answer:", regex="[a-c]{3}").text in {
        first + second + third for first in "abc" for second in "abc" for third in "abc"
    }
    constraint = Constraint.choices(["!"], trigger="a")
    reply = engine.generate("The", constraint=constraint, max_tokens=60)
    assert reply.text.partition("a")[1:] == ("a", "!")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"json_schema": {"not": {}}}, 'json_schema: .*"not"'),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"json_schema": "[]"}, "json_schema is a JSON list"),
        ({"regex": ""}, "regex is ''; give"),
        ({"choices": []}, "choices is"),
        ({"regex": "a", "choices": ["b"]}, "one of regex and choices"),
        ({"constraint": "a"}, "constraint is 'a'; give a Constraint"),
        ({"json_shema": {}}, "did you mean json_schema"),
    ],
)
def test_what_is_not_a_form_is_refused_before_anything_runs(engine, options, message):
    with pytest.raises(ConfigError, match=message):
        engine.stream_chat(ASK, **options)


def test_a_dead_end_is_an_error_and_the_engine_goes_on(engine):
    """Contradicting character sets cannot be seen when the grammar is compiled."""
    grammar = 'start: "a" NEVER\nNEVER: /[b]/ & /[c]/'
    with pytest.raises(ConstraintError):
        engine.chat(ASK, grammar=grammar)
    assert engine.chat(ASK, choices=["yes"]).text == "yes"


OTHER_DOCUMENT = "http://example.com/a.json"


@pytest.mark.parametrize(
    ("part", "word", "reason"),
    [
        ({"oneOf": [{"type": "string"}, {"maxLength": 2}]}, "oneOf", "branches of a oneOf may overlap; use anyOf"),
        ({"type": "string", "format": "password"}, "format", "the format password is not known; .* give a pattern"),
        ({"$ref": OTHER_DOCUMENT}, "$ref", f"{OTHER_DOCUMENT} is another document"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems", 'a grammar cannot follow "uniqueItems"; leave it out'),
        ({"type": "string", "pattern": "(?!a)b"}, "pattern", "look-around"),
        ({"type": "any"}, "type", "Invalid type: any"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tools", [None, [Tool("now", "The time")]])
def test_the_part_of_a_schema_that_cannot_be_enforced_is_named(engine, part, word, reason, tools):
    """Also where the reply may call tools, whose grammar it is then a part of."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": part}}
    place = re.escape(
        f"json_schema: a grammar cannot enforce properties.b.{word}; change the schema"
    )
    with pytest.raises(ConstraintError, match=rf"^{place} there \(.*{reason}.*\)$"):
        engine.chat(ASK, json_schema=schema, tools=tools)


COUNT = [{"role": "user", "content": "one two three"}]
MANY = 30


@pytest.fixture(scope="module")
def without_end(engine):
    """Tokens of a reply whose end tokens are out of reach by `logit_bias`, by temperature."""
    biases = dict.fromkeys(engine.tokenizer.end_ids, -1e9)
    return functools.cache(
        lambda temperature: (
            engine.chat(
                COUNT,
                logit_bias=biases,
                drafter="none",
                temperature=temperature,
                seed=5,
                max_tokens=MANY,
            ).token_ids
        )
    )


DRAFTERS = ["none", "auto", "ngram", pytest.param("tree", marks=pytest.mark.lab)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_end_is_held_as_by_a_bias(engine, without_end, drafter, temperature):
    options = {"drafter": drafter, "draft_budget": "always", "temperature": temperature, "seed": 5}
    expected = without_end(temperature)
    ended = engine.chat(COUNT, max_tokens=MANY, **options)
    assert ended.finish_reason == "stop"
    assert len(ended.token_ids) < MANY  # else it says nothing
    held = engine.chat(COUNT, max_tokens=MANY, ignore_eos=True, **options)
    assert (held.token_ids, held.finish_reason) == (expected, "length")
    assert (held.stats.accepted > 0) == (drafter != "none")
    least = len(ended.token_ids) + 2
    reply = engine.chat(COUNT, max_tokens=MANY, min_tokens=least, **options)
    assert reply.token_ids[:least] == expected[:least]
    as_before = engine.chat(COUNT, max_tokens=MANY, min_tokens=len(ended.token_ids) - 1, **options)
    assert as_before.token_ids == ended.token_ids


def test_replies_made_together(engine):
    """Their choices are made elsewhere, after one pass over the rows of both."""
    options = {"max_tokens": MANY, "temperature": 0.0}
    biases = dict.fromkeys(engine.tokenizer.end_ids, -1e9)
    alone = engine.generate("Hello", logit_bias=biases, drafter="none", **options)
    assert engine.generate("Hello", **options).finish_reason == "stop"
    together = engine.generate_many(["Hello"] * 2, ignore_eos=True, **options)
    assert [reply.token_ids for _, reply in together] == [alone.token_ids] * 2


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_a_form_is_gone_on_with_until_it_is_complete(engine, drafter):
    options = {"drafter": drafter, "draft_budget": "always", "temperature": 0.0, "max_tokens": MANY}
    for held in ({"min_tokens": 20}, {"ignore_eos": True}):
        assert engine.chat(COUNT, regex="(one|two| ){2,30}", **options).text == "one two"
        reply = engine.chat(COUNT, regex="(one|two| ){2,30}", **held, **options)
        assert reply.constraint_met
        assert len(reply.token_ids) >= 20
        assert engine.chat(COUNT, choices=["yes"], **held, **options).text == "yes"


def test_loops_do_not_end_what_may_not_end(engine):
    options = {"regex": "(ab){300}", "stop_loops": True, "max_tokens": 200}
    assert engine.chat(COUNT, **options).finish_reason == "loop"
    assert engine.chat(COUNT, ignore_eos=True, **options).finish_reason == "length"


def test_more_tokens_than_the_limit_are_refused(engine):
    with pytest.raises(ConfigError, match="min_tokens is 5, more than max_tokens, 4"):
        engine.chat(COUNT, min_tokens=5, max_tokens=4)
