"""The options of a reply and of loading: one declaration, and what has to agree with it."""

import typing

import pytest

from akunu_py.values.generation_config import ConstraintOptions, GenerationConfig, GenerationOptions
from akunu_py.values.load_options import EngineKeywords, EngineOptions, LoadOptions
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
    assert getattr(GenerationConfig(**{name: kind.least}), name) == kind.least
    outside = [kind.least - 1]
    if kind.most is not None:
        GenerationConfig(**{name: kind.most})
        outside.append(kind.most + 1)
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{name} is {value}; give "):
            GenerationConfig(**{name: value})


@pytest.mark.parametrize("declared", [one for one in OPTIONS if isinstance(one.kind, Number)])
def test_numbers_out_of_range_are_named(declared):
    name, kind = declared.name, declared.kind
    for value in (kind.least - 1, kind.most + 1, float("nan")):
        with pytest.raises(ValueError, match=rf"^{name} is -?[\d.na]+; give "):
            GenerationConfig(**{name: value})


def test_keywords_are_the_fields():
    assert typing.get_type_hints(EngineKeywords) == typing.get_type_hints(EngineOptions)


def test_a_model_gets_its_own_options():
    """Other options would make equal models differ, for ranks and for what is remembered."""
    options = EngineOptions(weights="dense", q6k="8bit", memory="/folder", context=9)
    assert options.of_model() == LoadOptions(weights="dense", q6k="8bit")
