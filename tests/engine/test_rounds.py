"""Rounds of scripted replies: who shares a pass, what is told of it, and how they end.

Mutants that die here: passes tried for one reply; drafted rows, or the tokens of a draft, left out
of the account; a reply that is over taking another turn, or keeping its lane; a lane or a reply
left open; a prompt read twice before another has its turn; an interrupt taken for an error of one.
"""

import pytest

from akunu_py.engine import rounds
from akunu_py.engine.rounds import ReplyInTurns, choose_steps, results_as_they_end
from akunu_py.models.joined import WantedChoice
from akunu_py.values.types import Draft, SharedPasses, StreamEvent

NOTHING = Draft.empty()


def event(tokens, result=None):
    return StreamEvent("", tuple(tokens), result=result)


def reply(drafts, *, pauses=0, result="result", log=None, name=""):
    """Turns that pause, then want a choice for each draft, and have what was chosen as event."""
    log = [] if log is None else log
    try:
        for _ in range(pauses):
            log.append(f"{name} reads")
            yield None
        for left, draft in zip(range(len(drafts) - 1, -1, -1), drafts, strict=True):
            choices = yield WantedChoice(None, 0, Draft.chain(draft, "x") if draft else NOTHING)
            log.append(f"{name} chose")
            yield event(choices, None if left else result)
    finally:
        log.append(f"{name} closed")


@pytest.fixture
def asked(monkeypatch):
    """What was asked of joined passes, each answered with a token more than was drafted."""
    found = []

    def together(forward, wanted):
        found.append((forward, len(wanted)))
        return [[1] * (1 + len(one.draft)) for one in wanted]

    monkeypatch.setattr(rounds, "choose_together", together)
    return found


def test_a_round_tells_what_all_shared(asked):
    shared = SharedPasses()
    replies = [ReplyInTurns(reply(drafts)) for drafts in ([(7, 8), ()], [(9,)], [()])]
    made = list(choose_steps(lambda: "forward", shared, replies))
    assert [one.over for one in replies] == [False, True, True]
    assert [len(event.token_ids) for _, event in made] == [3, 2, 1]
    assert (shared.replies, shared.rows, shared.tokens) == (3, 6, 6)
    assert shared.seconds > 0
    # Nobody tries whether passes can be joined for the one that is left.
    (left,) = list(choose_steps(lambda: pytest.fail("tried"), shared, replies[:1]))
    assert left[1].result == "result"
    assert (shared.replies, shared.rows, shared.tokens) == (1, 1, 1)
    assert asked == [("forward", 3), (None, 1)]


def test_nothing_is_chosen_for_replies_that_end_before_their_step(asked):
    cut = ReplyInTurns(iter_of(event((), "cancelled")))
    shared = SharedPasses()
    ((_, made),) = list(choose_steps(lambda: pytest.fail("tried"), shared, [cut]))
    assert made.result == "cancelled"
    assert not asked
    assert shared == SharedPasses()


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
        return choose_steps(lambda: None, shared or SharedPasses(), replies)

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
    found = dict(results([failing(lost), reply([()])], lanes, 2))
    assert found == {0: lost, 1: "result"}
    with pytest.raises(KeyboardInterrupt):
        list(results([failing(KeyboardInterrupt()), reply([()])], lanes, 2))
    assert lanes.open == 0
