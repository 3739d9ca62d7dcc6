"""The options of loading: one list of names, and what a model takes of it."""

import typing

from akunu_py.values.load_options import EngineKeywords, EngineOptions, LoadOptions


def test_keywords_are_the_fields():
    assert typing.get_type_hints(EngineKeywords) == typing.get_type_hints(EngineOptions)


def test_a_model_gets_its_own_options():
    """Other options would make equal models differ, for ranks and for what is remembered."""
    options = EngineOptions(weights="dense", q6k="8bit", memory="/folder", context=9)
    assert options.of_model() == LoadOptions(weights="dense", q6k="8bit")
