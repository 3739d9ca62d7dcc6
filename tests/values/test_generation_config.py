"""The options of a reply: one declaration, and what has to agree with it."""

import typing

import pytest

from akunu_py.values.generation_config import (
    DRAFTING_FIELDS,
    ConstraintOptions,
    GenerationConfig,
    GenerationOptions,
    SamplingConfig,
)
from akunu_py.values.option_fields import Count, Number, options_of

OPTIONS = options_of(GenerationConfig)


def test_the_keywords_of_the_api_are_the_options():
    """Type checkers know keywords only where they are written out; mypy sees no missing one."""
    keywords = typing.get_type_hints(GenerationOptions)
    for name in typing.get_type_hints(ConstraintOptions):
        del keywords[name]
    assert keywords == typing.get_type_hints(GenerationConfig)


def test_every_option_says_what_it_does():
    for one in OPTIONS:
        assert one.help.endswith("."), one.name
        assert one.help[0].isupper() or one.help[0].isdigit(), one.name


@pytest.mark.parametrize("declared", [one for one in OPTIONS if isinstance(one.kind, Count)])
def test_ends_of_whole_numbers_are_values_and_what_lies_behind_is_none(declared):
    name, kind = declared.name, declared.kind
    needed = {"min_draft_tokens": {"draft_length": "entropy"}}.get(name, {})
    assert getattr(GenerationConfig(**{name: kind.least}, **needed), name) == kind.least
    outside = [kind.least - 1]
    if kind.most is not None:
        GenerationConfig(**{name: kind.most})
        outside.append(kind.most + 1)
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{name} is {value}; give "):
            GenerationConfig(**{name: value}, **needed)


@pytest.mark.parametrize("declared", [one for one in OPTIONS if isinstance(one.kind, Number)])
def test_numbers_out_of_range_are_named(declared):
    name, kind = declared.name, declared.kind
    for value in (kind.least - 1, kind.most + 1, float("nan")):
        with pytest.raises(ValueError, match=rf"^{name} is -?[\d.na]+; give "):
            GenerationConfig(**{name: value})


def test_every_option_of_drafting_is_marked_as_one():
    """Plain decoding, as measurements compare with it, leaves out those that are."""
    sampling = {one.name for one in options_of(SamplingConfig)}
    others = {
        "max_tokens", "seed", "stop", "stop_loops", "constraint", "logprobs", "thinking", "effort",
        "template_variables", "min_tokens", "ignore_eos", "drafter", "num_draft_tokens", "draft_budget", "logits_processors", "sampler",
    }  # fmt: skip
    assert not sampling & {*DRAFTING_FIELDS}
    assert {one.name for one in OPTIONS} == sampling | others | {*DRAFTING_FIELDS}
