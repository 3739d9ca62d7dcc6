"""The sampling that a model's files recommend: what counts, and what is out of range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.models.loaded_model import recommended_in_gguf
from akunu_py.values.generation_config import GenerationConfig, SamplingConfig
from akunu_py.values.option_fields import check_options
from akunu_py.values.recommended import NO_RECOMMENDATION, recommended

NAMES = {name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        # As published: Qwen3, Gemma 3, gpt-oss, Qwen2.5, and a model that decodes greedily.
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
        ),
        ({"do_sample": True, "top_k": 64, "top_p": 0.95, "bos_token_id": 2},
         {"temperature": 1, "top_k": 64, "top_p": 0.95}),
        ({"do_sample": True, "pad_token_id": 199999}, {"temperature": 1}),
        ({"repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
         {"repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0}),
        # Filters mean draws, and -1 all tokens.
        ({"top_p": 0.9}, {"temperature": 1, "top_p": 0.9}),
        ({"temperature": 0.5, "top_k": -1}, {"temperature": 0.5, "top_k": 0}),
        ({"temperature": None, "repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"eos_token_id": 2}, {}),
    ],
)  # fmt: skip
def test_what_files_recommend(entries, expected):
    assert recommended(entries, NAMES, "f").values == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"), ("temperature", float("nan")), ("temperature", -1),
        ("temperature", True), ("temperature", 1e9), ("temperature", [0.6]),
        ("top_k", 1.5), ("top_k", -2), ("top_p", 0), ("top_p", 1.01), ("top_p", float("inf")),
        ("min_p", -0.1), ("repetition_penalty", 0), ("repetition_penalty", {}),
    ],
)  # fmt: skip
def test_entries_out_of_range_are_named_and_not_used(name, value):
    found = recommended({name: value, "min_p" if name != "min_p" else "top_p": 0.5}, NAMES, "f")
    assert name not in found.values or (name, found.values[name]) == ("temperature", 1)
    assert found.unused == (f"{name} {value!r}",)
    assert f"not used: {name}" in str(found)
    if name == "temperature":
        # A damaged temperature is not replaced by a guess.
        assert "temperature" not in found.values


@given(
    st.dictionaries(
        st.sampled_from([*NAMES, "do_sample"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
        | st.lists(st.integers(), max_size=2),
    )
)  # fmt: skip
def test_what_is_used_is_always_in_range(entries):
    found = recommended(entries, NAMES, "f")
    check_options(SamplingConfig(**found.values))
    assert found.fill(GenerationConfig(), NAMES) == GenerationConfig()


def test_what_is_given_stays_and_rules_of_drafts_do():
    found = recommended({"temperature": 0.6, "top_p": 0.95}, NAMES, "generation_config.json")
    filled = found.fill(GenerationConfig(temperature=0.0, seed=1), {"temperature"})
    assert filled == GenerationConfig(temperature=0.0, top_p=0.95, seed=1)
    lenient = GenerationConfig(draft_options={"lenience": 0.5})
    assert found.fill(lenient, {"lenience"}) == lenient
    assert str(found) == "temperature 0.6, top_p 0.95 (generation_config.json)"
    assert (str(NO_RECOMMENDATION), NO_RECOMMENDATION.fill(lenient, ())) == ("", lenient)


def test_a_penalty_that_a_gguf_file_turns_off():
    entries = {"general.sampling.penalty_last_n": 0, "general.sampling.penalty_repeat": 1.5}
    assert recommended_in_gguf(entries) == NO_RECOMMENDATION
    entries["general.sampling.penalty_last_n"] = 64
    assert recommended_in_gguf(entries).values == {"penalty_window": 64, "repetition_penalty": 1.5}
