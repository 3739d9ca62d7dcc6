"""A drafter of any class serves, and does by default what `Drafter` does."""

import pytest

from akunu_py.drafting import AutoDrafter
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft


class Least:
    """What every drafter must have, and nothing else."""

    def __init__(self):
        self.seen = []

    def observe(self, tokens):
        self.seen += tokens

    def propose(self, limit):
        return Draft.chain([7, 8, 9][:limit])


class More(Least):
    extend = None  # as good as absent
    hidden = "raw"

    def observe_candidates(self, rows):
        self.rows = rows

    def draft_probabilities(self):
        return "q"


def test_an_object_gets_the_methods_that_it_lacks():
    given = Least()
    drafter = Drafter.of(given)
    assert list(drafter.reading([1, 2])) == []
    drafter.observe([3])
    assert given.seen == [1, 2, 3]
    assert drafter.propose(2).tokens == (7, 8)
    assert drafter.extend(Draft.empty(), 1).tokens == (7,)
    assert not drafter.extend(Draft.chain([1]), 5).tokens
    assert drafter.num_sure() == 0
    assert drafter.draft_probabilities() is None
    assert drafter.hidden is None
    assert (drafter.reads_candidates, drafter.uses_curve, drafter.draws) == (False, False, False)


def test_what_a_verifier_of_a_plug_in_asks_is_asked_of_the_object():
    class Counts(Least):
        def draw_counts(self):
            return (2, 1)

    drafter = Drafter.of(Counts())
    assert drafter.draw_counts() == (2, 1)
    assert not hasattr(drafter, "draw_order")


def test_what_an_object_has_is_known_by_its_methods():
    given = More()
    drafter = Drafter.of(given)
    assert drafter.reads_candidates
    assert drafter.draws
    assert not drafter.uses_curve
    assert drafter.hidden == "raw"
    drafter.observe_candidates("rows")
    assert given.rows == "rows"
    assert drafter.draft_probabilities() == "q"
    assert drafter.extend(Draft.empty(), 3).tokens == (7, 8, 9)


def test_so_is_what_a_class_has():
    class Deriving(Drafter):
        def observe_candidates(self, rows):
            pass

    class Further(Deriving):
        pass

    assert Further.reads_candidates
    assert not Further.draws
    assert AutoDrafter.uses_curve
    assert not Drafter.uses_curve
    drafter = Further()
    assert Drafter.of(drafter) is drafter


def test_what_is_no_drafter_is_refused():
    with pytest.raises(ContractError, match="it is a object; a drafter has the methods observe"):
        Drafter.of(object())
