"""Settings of the n-gram drafters: defaults are the drafters' own, others reach them."""

import pytest

from akunu_py.drafting import LookupDrafter, NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.ngram_settings import NGRAM_DEFAULTS, NgramSettings, make_ngram_drafter
from akunu_py.drafting.registry import check_drafter, default_num_draft_tokens, make_drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig


def numbers(drafter):
    """Everything that a drafter was made with."""
    if isinstance(drafter, LookupDrafter):
        order, window = drafter.max_context + 1, None
    else:
        order, window = drafter.max_order, drafter.history.maxlen
    return type(drafter), order, window, drafter.min_match, drafter.num_draft_tokens


@pytest.mark.parametrize("name", NGRAM_DEFAULTS)
def test_the_defaults_are_those_of_the_registry(name):
    assert numbers(make_ngram_drafter(name)) == numbers(make_drafter(name))
    assert NGRAM_DEFAULTS[name]["num_draft_tokens"] == default_num_draft_tokens(name)
    made, own = numbers(make_ngram_drafter(name)), NGRAM_DEFAULTS[name]
    assert (made[1], made[3], made[4]) == (own["order"], own["min_match"], own["num_draft_tokens"])
    if "window" in own:
        assert made[2] == own["window"]


def test_settings_reach_the_drafter():
    settings = NgramSettings(order=5, min_match=3)
    assert numbers(make_ngram_drafter("ngram", 7, settings)) == (NgramDrafter, 5, 512, 3, 7)
    assert numbers(make_ngram_drafter("lookup", 7, settings)) == (LookupDrafter, 5, None, 3, 7)
    settings = NgramSettings(order=3, window=64, min_match=2)
    windowed = numbers(make_ngram_drafter("ngram-window", 0, settings))
    assert windowed == (WindowedNgramDrafter, 3, 64, 2, 0)


def test_a_configuration_is_what_drafters_are_made_with():
    config = GenerationConfig(ngram_order=6, ngram_window=77, ngram_min_match=2)
    assert numbers(make_drafter("ngram-window", config=config)) == (
        WindowedNgramDrafter, 6, 77, 2, 4,
    )  # fmt: skip
    for name in ("auto", "draft-model", "ngram"):
        with pytest.raises(ConfigError, match=f"the drafter '{name}' has no ngram_"):
            check_drafter(name, config=config)
    with pytest.raises(ConfigError, match="ngram_min_match is 3; give 1 to ngram_order - 1, 2"):
        check_drafter("lookup", config=GenerationConfig(ngram_order=3, ngram_min_match=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram_order": 1}, "ngram_order is 1; give 2 or more"),
        ({"ngram_window": 0}, "ngram_window is 0"),
        ({"ngram_min_match": 0}, "ngram_min_match is 0; give 1 or more"),
        ({"ngram_order": True}, "ngram_order is True"),
    ],
)
def test_numbers_out_of_range_are_refused_at_once(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(**options)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "ngram",
            NgramSettings(window=64),
            "no ngram_window; leave it out, or choose ngram-window",
        ),
        ("lookup", NgramSettings(window=64), "no ngram_window"),
        ("auto", NgramSettings(order=3), "no ngram_order"),
        ("ngram", NgramSettings(order=1), "order is 1"),
        ("lookup", NgramSettings(order=1), "order is 1"),
        (
            "lookup",
            NgramSettings(order=3, min_match=3),
            "min_match is 3; give 1 to ngram_order - 1, 2",
        ),
        ("ngram", NgramSettings(min_match=0), "min_match is 0"),
        ("ngram-window", NgramSettings(window=3), "window is 3; give at least ngram_order, 4"),
    ],
)
def test_what_does_not_fit_is_named(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_ngram_drafter(name, None, settings)
