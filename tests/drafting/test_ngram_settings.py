"""Settings of the n-gram drafters: defaults are the drafters' own, others reach them."""

import pytest

from akunu_py.drafting import LookupDrafter, NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.ngram_settings import NGRAM_DEFAULTS, NgramSettings, make_ngram_drafter
from akunu_py.drafting.registry import default_num_draft_tokens, make_drafter
from akunu_py.errors import ConfigError


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


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ngram", NgramSettings(window=64), "no window; leave it out, or choose ngram-window"),
        ("lookup", NgramSettings(window=64), "no window"),
        ("auto", NgramSettings(order=3), "no order"),
        ("ngram", NgramSettings(order=1), "order is 1"),
        ("lookup", NgramSettings(order=1), "order is 1"),
        ("lookup", NgramSettings(order=3, min_match=3), "min_match is 3; give 1 to order - 1, 2"),
        ("ngram", NgramSettings(min_match=0), "min_match is 0"),
        ("ngram-window", NgramSettings(window=3), "window is 3; give at least the order, 4"),
    ],
)
def test_what_does_not_fit_is_named(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_ngram_drafter(name, None, settings)
