"""Drafters by name, plug-ins included."""

import pytest

from akunu_py.drafting import drafter_names, make_drafter, registry
from akunu_py.errors import ConfigError, ContractError
from akunu_py.testing import ScriptedDrafter


def test_own_drafters_are_made_by_name():
    assert drafter_names() == ("none", "ngram", "ngram-window", "lookup", "auto", "recycling")
    for name in drafter_names():
        drafter = make_drafter(name, num_draft_tokens=2)
        drafter.observe([1, 2, 1, 2, 1])
        drafted = len(drafter.propose(9))
        assert drafted <= 2
        # auto drafts where it pays, recycling where it was told of candidates.
        assert drafted == 2 or name in {"none", "auto", "recycling"}


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
    points[0] = Offered(lambda *, num_draft_tokens: object())
    with pytest.raises(ContractError, match="somewhere:factory"):
        make_drafter("mine", num_draft_tokens=3)
