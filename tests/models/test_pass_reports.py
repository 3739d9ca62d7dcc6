"""What a session says of its passes: rows, and whether a step was and is in flight.

Mutants that these tests kill, by hand: rows of all branches reported behind a step in flight;
a refused draft reported as a pass; a step in flight after a draft, or none
after a plain step; penalties taken for a session that pipelines.
"""

import mlx.core as mx
import pytest
from tiny_models import begin, generate, prompt_of, tiny

from akunu_py.drafting import PlainDrafter
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig, PassReport

PROMPT = prompt_of(12)
BRANCHES = ((1, 2, 3, 4), (-1, -1, 0, 1))


@pytest.fixture(scope="module")
def truth():
    return generate(Session(tiny(), context=200), PROMPT, GenerationConfig(), PlainDrafter())


def ran(session, last, draft=None, accepted=()):
    """Run a pass, commit what is accepted, and return what the session says of it."""
    session.choose(last, draft or Draft.empty())
    session.commit(accepted)
    return session.last_pass


def test_plain_steps_keep_one_in_flight(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    assert session.pipelined
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)
    assert ran(session, truth[0]) == PassReport(0, was_in_flight=True, in_flight=True)
    assert session.in_flight


def test_the_step_in_flight_can_be_waited_for(truth, monkeypatch):
    """Afterwards its choice is known, and the reply goes on as before."""
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    waited, evaluate = [], mx.eval
    monkeypatch.setattr(mx, "eval", lambda *arrays: waited.extend(arrays) or evaluate(*arrays))
    session.wait_in_flight()
    assert [id(array) for array in waited] == [id(session._in_flight.to_read)]
    assert session.in_flight
    assert session.choose(truth[0], Draft.empty()) == [truth[1]]
    session.commit(())


def test_without_looking_ahead_no_step_is_queued(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)
    session.look_ahead = False
    assert session.choose(truth[0], Draft.empty()) == [truth[1]]
    session.commit(())
    assert session.last_pass == PassReport(0, was_in_flight=True)
    for place in (1, 2):
        assert session.choose(truth[place], Draft.empty()) == [truth[place + 1]]
        session.commit(())
        assert session.last_pass == PassReport(1)
    session.look_ahead = True
    assert ran(session, truth[3]) == PassReport(1, in_flight=True)
    session.look_ahead = False
    begin(session, PROMPT)
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)


def test_the_last_token_has_no_pass_behind_it():
    session = Session(tiny(), context=200)
    begin(session, PROMPT, max_tokens=1)
    assert ran(session, PROMPT[-1]) == PassReport(1)


def test_a_draft_without_a_step_in_flight_has_the_last_tokens_row(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    draft = Draft.chain([truth[0], truth[1], truth[2] + 1])
    assert ran(session, PROMPT[-1], draft, (0, 1)) == PassReport(4)
    assert not session.in_flight
    ran(session, truth[2], Draft.chain([5]))
    assert session.largest_pass == 4


def test_a_draft_beside_a_step_in_flight(truth):
    """Wrong from its first token it costs no pass; else the pass has the rows of the draft."""
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    wrong = Draft.chain([truth[1] + 1, 5])
    assert ran(session, truth[0], wrong) == PassReport(0, was_in_flight=True, in_flight=True)
    right = Draft.chain(truth[2:5])
    assert ran(session, truth[1], right, (0, 1, 2)) == PassReport(3, was_in_flight=True)


@pytest.mark.parametrize(("root", "rows"), [(0, 2), (1, 2)])
def test_behind_a_step_in_flight_only_one_branch_of_a_tree_is_fed(truth, root, rows):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    tokens = list(BRANCHES[0])
    tokens[root], tokens[1 - root] = truth[1], truth[1] + 1
    tree = Draft(tuple(tokens), BRANCHES[1])
    assert ran(session, truth[0], tree, (root,)) == PassReport(rows, was_in_flight=True)


def test_a_tree_alone_is_fed_whole(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    tree = Draft((truth[0], truth[0] + 1, 3, 4), BRANCHES[1])
    assert ran(session, PROMPT[-1], tree, (0,)) == PassReport(5)


def test_with_penalties_nothing_is_in_flight():
    session = Session(tiny(), context=200)
    begin(session, PROMPT, GenerationConfig(repetition_penalty=1.2))
    assert not session.pipelined
    assert ran(session, PROMPT[-1]) == PassReport(1)
    assert not session.in_flight


def test_distributions_are_passes_of_their_own():
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    session.distributions(PROMPT[-1], Draft.chain([1, 2]))
    session.commit(())
    assert session.last_pass == PassReport(3)
