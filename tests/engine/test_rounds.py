"""Rounds of scripted replies: who shares a pass, what is told of it, and how they end.

Mutants that die here: passes tried for one reply; drafted rows, or the tokens of a draft, left out
of the account; a reply that is over taking another turn, or keeping its lane; a lane or a reply
left open; a prompt read twice before another has its turn; an interrupt taken for an error of one.
"""

from unittest.mock import Mock

import pytest

from akunu_py.decoding.pass_costs import PassCosts
from akunu_py.decoding.shared_passes import Offer, SharedCosts, SharedPasses
from akunu_py.engine import lane
from akunu_py.engine.lane import ReplyInTurns, choose_steps, results_as_they_end
from akunu_py.models.joined import WantedChoice
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft, PassReport, StreamEvent


class Passed:
    """A session after its pass, over the token of the step in flight and the drafted ones."""

    pipelined = in_flight = True
    last_pass = PassReport(3)


def passes():
    return SharedPasses(SharedCosts(PassCosts(CostCurve({1: 1.0, 2: 1.1}))))


def event(tokens, result=None):
    return StreamEvent("", tuple(tokens), result=result)


def reply(drafts, *, pauses=0, result="result", log=None, name="", offer=None):
    """Turns that pause, then want a choice for each draft, and have what was chosen as event."""
    log = [] if log is None else log
    try:
        for _ in range(pauses):
            log.append(f"{name} reads")
            yield None
        for left, draft in zip(range(len(drafts) - 1, -1, -1), drafts, strict=True):
            given = Draft.chain(draft, "x") if draft else Draft.empty()
            choices = yield WantedChoice(Passed(), 0, given, offer)
            log.append(f"{name} chose")
            yield event(choices, None if left else result)
    finally:
        log.append(f"{name} closed")


@pytest.fixture
def asked(monkeypatch):
    """What was asked of joined passes, each answered with a token more than was drafted."""
    found = []

    def together(forward, wanted):
        found.append((forward is not None, len(wanted)))
        return [[1] * (1 + len(one.draft)) for one in wanted]

    monkeypatch.setattr(lane, "choose_together", together)
    return found


def test_a_round_tells_what_all_shared(asked):
    shared = passes()
    replies = [ReplyInTurns(reply(drafts)) for drafts in ([(7, 8), ()], [(9,)], [()])]
    made = list(choose_steps(lambda: "forward", shared, replies))
    assert [one.over for one in replies] == [False, True, True]
    assert [len(event.token_ids) for _, event in made] == [3, 2, 1]
    # Of each draft two rows, beside the token of the step in flight.
    assert shared.drafted == 4
    assert shared.company.rate.value > 3
    # Nobody tries whether passes can be joined for the one that is left.
    (left,) = list(choose_steps(lambda: pytest.fail("tried"), shared, replies[:1]))
    assert left[1].result == "result"
    assert shared.company is None
    assert asked == [(True, 3), (False, 1)]


def test_drafts_are_cut_to_what_pays_in_the_pass_of_all(asked):
    """Nothing is measured: a row costs a tenth of a lone pass, and 0.18 tokens at two replies."""
    offers = [Offer((0.9, 0.1)), Offer((0.1,)), None]
    replies = [
        ReplyInTurns(reply([(7, 8)[: len(offer.reaches)] if offer else (9,)], offer=offer))
        for offer in offers
    ]
    made = list(choose_steps(lambda: "forward", passes(), replies))
    assert [len(event.token_ids) for _, event in made] == [2, 1, 2]


def test_drafts_beside_passes_that_cannot_be_joined_are_not_cut(asked):
    shared, one = passes(), ReplyInTurns(reply([(7, 8)]))
    made = list(choose_steps(lambda: None, shared, [one, ReplyInTurns(reply([()]))]))
    assert shared.company is None
    assert [len(event.token_ids) for _, event in made] == [3, 1]


def test_a_choice_that_comes_with_the_next_pass_is_waited_for(asked, monkeypatch):
    late = iter(([None, [1]], [[2], [3]]))
    monkeypatch.setattr(lane, "choose_together", lambda _forward, _wanted: next(late))
    replies = [ReplyInTurns(reply([(), ()])) for _ in range(2)]
    shared = passes()
    made = [list(choose_steps(lambda: "forward", shared, replies)) for _ in range(2)]
    assert [[event.token_ids for _, event in found] for found in made] == [[(1,)], [(2,), (3,)]]
    assert [found[0][0] for found in made] == [replies[1], replies[0]]


def test_an_error_of_the_try_ends_all(asked):
    replies = [ReplyInTurns(reply([()])) for _ in range(2)]
    for one in replies:
        one.turn()
    made = list(choose_steps(Mock(side_effect=MemoryError), passes(), replies))
    assert [type(error) for _, error in made] == [MemoryError, MemoryError]
    assert all(one.over for one in replies)


def test_nothing_is_chosen_for_replies_that_end_before_their_step(asked):
    cut = ReplyInTurns(iter_of(event((), "cancelled")))
    shared = passes()
    ((_, made),) = list(choose_steps(lambda: pytest.fail("tried"), shared, [cut]))
    assert made.result == "cancelled"
    assert not asked
    assert shared.drafted == 0


def iter_of(*made):
    """Turns that have these events, whatever is sent."""
    yield from made


class Lanes:
    def __init__(self):
        self.open = self.made = 0

    def __call__(self):
        self.open += 1
        self.made += 1
        return self

    def close(self):
        self.open -= 1


def results(scripts, lanes, most, shared=None, rounds_of=None):
    def before(running):
        if rounds_of is not None:
            rounds_of.append(running)

    begin = ((lambda _lane, turns=turns: turns) for turns in scripts)

    def choose(replies):
        return choose_steps(lambda: None, shared or passes(), replies)

    return results_as_they_end(begin, lanes, choose, most, before)


def test_places_are_taken_again_and_prompts_read_in_turns(asked):
    log, lanes, running = [], Lanes(), []
    scripts = [
        reply([()], pauses=2, log=log, name="a"),
        reply([(), ()], pauses=2, log=log, name="b"),
        reply([()], log=log, name="c"),
    ]
    assert [number for number, _ in results(scripts, lanes, 2, rounds_of=running)] == [0, 1, 2]
    assert log[:4] == ["a reads", "b reads", "a reads", "b reads"]
    assert [line for line in log if "closed" in line] == ["a closed", "b closed", "c closed"]
    assert (lanes.made, lanes.open) == (2, 0)
    assert max(running) == 2


def test_whoever_stops_reading_ends_all(asked):
    log, lanes = [], Lanes()
    scripts = [reply([()] * 3 * (1 + n), log=log, name=str(n)) for n in range(2)]
    many = results(scripts, lanes, 2)
    next(many)
    many.close()
    assert sorted(line for line in log if "closed" in line) == ["0 closed", "1 closed"]
    assert lanes.open == 0


def failing(error):
    raise error
    yield


def test_an_error_is_one_replys_and_an_interrupt_everybodys(asked):
    lanes = Lanes()
    lost = ValueError("lost")
    assert dict(results([failing(lost), reply([()])], lanes, 2)) == {0: lost, 1: "result"}
    with pytest.raises(KeyboardInterrupt):
        list(results([failing(KeyboardInterrupt()), reply([()])], lanes, 2))
    assert lanes.open == 0
