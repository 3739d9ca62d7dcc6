"""Drafters by name, plug-ins included."""

import pytest

from akunu_py.drafting import (
    AutoState,
    default_num_draft_tokens,
    drafter_names,
    make_drafter,
    registry,
)
from akunu_py.errors import ConfigError, ContractError
from akunu_py.testing import ScriptedDrafter


def test_own_drafters_are_made_by_name():
    assert drafter_names() == (
        "auto",
        "ngram",
        "ngram-window",
        "lookup",
        "recycling",
        "tree",
        "none",
    )
    for name in drafter_names():
        drafter = make_drafter(name, num_draft_tokens=2)
        drafter.observe([1, 2, 1, 2, 1])
        drafted = len(drafter.propose(9))
        assert drafted <= 2
        # auto drafts where it pays, recycling where it was told of candidates.
        assert drafted == 2 or name in {"none", "auto", "recycling"}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("auto", 32),
        ("ngram", 4),
        ("ngram-window", 4),
        ("lookup", 10),
        ("recycling", 4),
        ("tree", 16),
        ("none", 0),
    ],
)
def test_each_has_a_number_of_tokens_of_its_own(name, count):
    assert default_num_draft_tokens(name) == count
    drafter = make_drafter(name)
    own = getattr(drafter, "max_length" if name == "auto" else "num_draft_tokens", 0)
    assert own == count
    if name not in {"auto", "none"}:
        assert type(drafter)().num_draft_tokens == count  # the class says the same


def test_the_state_of_auto_is_passed_on_and_to_nobody_else():
    state = AutoState()
    assert make_drafter("auto", auto_state=state).state is state
    state.begin_reply().append(7)
    make_drafter("ngram", auto_state=state)
    assert state.memory.texts() == []


def test_an_unknown_name_is_an_error_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no drafter 'ngrm'.*did you mean 'ngram'"):
        make_drafter("ngrm", num_draft_tokens=4)


class Offered:
    name, value = "mine", "somewhere:factory"

    def __init__(self, factory):
        self.load = lambda: factory


def test_a_plug_in_is_found_and_checked(monkeypatch):
    points = [Offered(lambda *, num_draft_tokens: ScriptedDrafter([[num_draft_tokens]]))]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert "mine" in drafter_names()
    assert make_drafter("mine", num_draft_tokens=3).propose(1).tokens == (3,)
    assert make_drafter("mine", auto_state=AutoState()).propose(1).tokens == (4,)
    points[0] = Offered(lambda *, num_draft_tokens: object())
    with pytest.raises(ContractError, match="somewhere:factory"):
        make_drafter("mine", num_draft_tokens=3)
