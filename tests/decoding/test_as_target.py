"""A target of any class serves, and does by default what `Target` does."""

from toy_drafters import ScriptedDrafter, ToyDistributions

from akunu_py.decoding.loop import decode
from akunu_py.protocols import Target, as_target
from akunu_py.testing import ToyTarget
from akunu_py.values.types import Draft, PassReport


class Least:
    """What every target must have, and nothing else."""

    def max_draft_tokens(self):
        return 3

    def choose(self, last, draft):
        return [last + 1 + place for place in range(len(draft) + 1)]

    def commit(self, accepted):
        pass


class More(Least):
    """One that keeps steps in flight, and says so as it goes."""

    look_ahead = True
    in_flight = False
    last_pass = None

    def distributions(self, last, draft):
        return "p"


def test_an_object_gets_what_it_lacks():
    target = as_target(Least())
    assert target.max_draft_tokens() == 3
    assert target.takes_tree(Draft((1, 2), (-1, -1)))
    assert target.candidates() == ()
    assert (target.pipelined, target.in_flight) == (False, False)
    assert (target.last_pass, target.wait_in_flight()) == (None, 0.0)
    assert not target.has_distributions
    target.look_ahead = False  # nothing to tell this one
    steps = list(decode(Least(), ScriptedDrafter([[5, 6]]), 4, num_draft_tokens=2, max_tokens=4))
    assert [step.token_ids for step in steps] == [(5, 6, 7), (8,)]


def test_what_an_object_has_is_read_and_written_through():
    given = More()
    target = as_target(given)
    assert target.has_distributions
    assert target.distributions(1, Draft.empty()) == "p"
    given.in_flight, given.last_pass = True, PassReport(4)
    assert (target.in_flight, target.last_pass) == (True, PassReport(4))
    target.look_ahead = False
    assert given.look_ahead is False
    assert as_target(target) is target


def test_a_class_with_distributions_is_known_by_them():
    class Further(ToyDistributions):
        pass

    assert Further.has_distributions
    assert not ToyTarget.has_distributions
    assert not Target.has_distributions
