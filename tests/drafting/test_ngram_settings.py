"""Options of the n-gram drafters: defaults are the drafters' own, others reach them."""

import pytest

from akunu_py.drafting import LookupDrafter, NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.registry import check_drafter, make_drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig


def numbers(drafter):
    """Everything that a drafter was made with."""
    if isinstance(drafter, LookupDrafter):
        order, window = drafter.max_context + 1, None
    else:
        order, window = drafter.max_order, drafter.history.maxlen
    return order, window, drafter.min_match, drafter.num_draft_tokens


@pytest.mark.parametrize(
    ("name", "drafter"),
    [("ngram", NgramDrafter), ("ngram-window", WindowedNgramDrafter), ("lookup", LookupDrafter)],
)
def test_defaults_are_the_drafters_own_and_options_reach_it(name, drafter):
    made = make_drafter(name)
    assert type(made) is drafter
    assert numbers(made) == numbers(drafter())
    options = {"ngram_order": 5, "ngram_min_match": 3}
    if name == "ngram-window":
        options["ngram_window"] = 64
    made = make_drafter(name, num_draft_tokens=7, config=GenerationConfig(draft_options=options))
    order, window, least, most = numbers(made)
    assert (order, least, most) == (5, 3, 7)
    assert name != "ngram-window" or window == 64


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ngram", {"window": 64}, "no ngram_window; leave it out, or choose from ngram-window"),
        ("lookup", {"window": 64}, "no ngram_window"),
        ("auto", {"order": 3}, "no ngram_order"),
        ("draft-model", {"order": 3}, "no ngram_order"),
        ("ngram", {"order": 1}, "ngram_order is 1; give 2 or more"),
        ("ngram", {"order": True}, "ngram_order is True"),
        ("lookup", {"order": 3, "min_match": 3}, "ngram_min_match is 3; give 1 to ngram_order - 1, 2"),
        ("ngram", {"min_match": 0}, "ngram_min_match is 0"),
        ("ngram-window", {"window": 3}, "ngram_window is 3; give at least ngram_order, 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(name, options, message):
    given = {f"ngram_{option}": value for option, value in options.items()}
    with pytest.raises(ConfigError, match=message):
        check_drafter(name, config=GenerationConfig(draft_options=given))
