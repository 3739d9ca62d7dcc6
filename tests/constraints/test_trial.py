"""Grammars that nobody can afford to compile are refused in bounded time and memory."""

import json
import threading
import time

import pytest
from llguidance import regex_to_lark

from akunu_py.constraints import trial as trials
from akunu_py.constraints.grammar import LAYOUT
from akunu_py.constraints.trial import CompileTrial, check_cost
from akunu_py.system.errors import ConstraintError, EngineStateError, ServerBusyError
from akunu_py.values.constraint import Constraint


def intersection(count):
    return {"allOf": [{"type": "string", "pattern": f"a{i}.*"} for i in range(count)]}


def expression(text):
    return {"lark_grammar": f"start: /{regex_to_lark(text, '')}/"}


EXPENSIVE = {
    "allOf": {"json_schema": intersection(25)},
    "allOf in properties": {"json_schema": {"properties": {"x": intersection(25)}}},
    "allOf in items": {"json_schema": {"type": "array", "items": intersection(26)}},
    "allOf in $defs": {"json_schema": {"$defs": {"x": intersection(25)}, "$ref": "#/$defs/x"}},
    "& in Lark": {"lark_grammar": "start: A\nA: " + " & ".join(f"/.*a{i}.*/" for i in range(25))},
    "multipleOf": {"json_schema": {"type": "integer", "multipleOf": 1_000_003}},
    "two multiples": {
        "json_schema": {"allOf": [{"type": "integer", "multipleOf": n} for n in (9973, 9967)]}
    },
    "what must come first": expression("((a{1000}){1000}){9}"),
    "what must come first, in JSON": {"json_schema": {"type": "string", "pattern": "^((a{1000}){1000}){9}$"}},
    "what must come later": {"json_schema": {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a{1000}){1000}$"}}, "required": ["x"], "additionalProperties": False, "x-guidance": LAYOUT}},
    "pairs of names": {"json_schema": {"patternProperties": {f"^p{i}_.*$": {} for i in range(400)}}},
    "behind a name": {"lark_grammar": "start: <|x|> <[300]> A\nA: " + " & ".join(f"/.*a{i}.*/" for i in range(25))},
}  # fmt: skip


def grammar(body):
    return json.dumps({"grammars": [body]})


def processes(trial):
    """The processes of the children that wait for a grammar."""
    return [child._process for child in trial._idle if child._process]


@pytest.fixture(scope="module")
def trial():
    made = CompileTrial(0.1)
    yield made
    made.close()


@pytest.mark.parametrize("name", EXPENSIVE)
def test_what_takes_long_is_refused(trial, name):
    began = time.process_time()
    for _ in range(2):
        found = trial.result(grammar(EXPENSIVE[name]), 400)
        assert found.late
        assert found.refused == "it is too complex (compiling it takes too long); make it simpler"
    # Nothing of it is computed here.
    assert time.process_time() - began < 0.2


def test_what_takes_much_memory_is_refused():
    trial = CompileTrial(20, 20 << 20)
    found = trial.result(grammar(EXPENSIVE["multipleOf"]), 300)
    assert "too much memory" in found.refused
    assert not found.late
    assert trial.result(grammar({"json_schema": {"type": "integer"}}), 300).refused == ""
    trial.close()


def test_others_are_compiled_by_one_child_that_stays(trial):
    bodies = [{"json_schema": {"type": "string", "maxLength": n}} for n in range(1, 4)]
    found = [trial.result(grammar(body), 300) for body in bodies]
    assert [(one.error, one.refused) for one in found] == [("", "")] * 3
    assert all(0 < one.seconds < 0.1 for one in found)
    (process,) = processes(trial)
    assert trial.result(grammar({"json_schema": {"not": {}}}), 300).error
    assert processes(trial) == [process]


def test_what_fails_at_the_first_tokens_is_an_error(trial):
    """The schema of a tool is loosened then."""
    rows = " | ".join(f'"a{i}"' for i in range(3000))
    assert "items" in trial.result(grammar({"lark_grammar": f"start: {rows}"}), 300).error


def test_an_end_of_llguidance_refuses_the_grammar_alone():
    trial = CompileTrial()
    chain = "".join(f"a{i}: a{i + 1}\n" for i in range(100_000))
    found = trial.result(grammar({"lark_grammar": f'start: a0\n{chain}a100000: "a"'}), 300)
    assert "too complex" in found.refused
    assert not found.late
    assert trial.result(grammar({"lark_grammar": 'start: "a"'}), 300).refused == ""
    trial.close()


def test_a_child_that_was_ended_meanwhile_is_replaced(trial):
    assert trial.result(grammar({"lark_grammar": 'start: "b"'}), 300).refused == ""
    for process in processes(trial):
        process.kill()
        process.wait()
    assert trial.result(grammar({"lark_grammar": 'start: "c"'}), 300).refused == ""


def test_a_longer_trial_is_apart_from_quick_ones(monkeypatch):
    """However many are under way there, ordinary grammars find a place."""
    quick, long = CompileTrial(0.1), CompileTrial(0.2)
    monkeypatch.setattr(trials, "_QUICK", quick)
    monkeypatch.setattr(trials, "_LONG", long)
    monkeypatch.setattr(trials, "_MOST_QUEUE_S", 0.01)
    bomb = grammar(EXPENSIVE["multipleOf"])
    with pytest.raises(ConstraintError, match="takes too long"):
        check_cost(bomb, 300)
    monkeypatch.setattr(trials, "_LONG", CompileTrial(0.2, children=0))
    check_cost(grammar({"lark_grammar": 'start: "d"'}), 300)
    with pytest.raises(ServerBusyError, match="machine is too busy"):
        check_cost(bomb, 301)
    quick.close()
    long.close()


def test_a_constraint_is_tried_before_it_is_compiled(monkeypatch):
    """Also where only the first mask of a reply is expensive."""
    from matched import tiny

    from akunu_py.constraints import make_matcher

    quick = CompileTrial()
    monkeypatch.setattr(trials, "_QUICK", quick)
    monkeypatch.setattr(trials, "_LONG", quick)
    with pytest.raises(ConstraintError, match=r"regex: it is too complex \(compiling"):
        make_matcher(Constraint.regex("((a{1000}){1000}){9}"), tiny()[1])
    quick.close()


def test_those_that_wait_for_the_same_grammar_share_its_verdict(monkeypatch):
    trial, asked, answer = CompileTrial(children=1), [], threading.Event()

    def ask(*_):
        asked.append(None)
        assert answer.wait(60)
        return trials.TrialResult("", 0.1)

    monkeypatch.setattr(trial, "_ask", ask)
    threads = [threading.Thread(target=trial.result, args=("", 1)) for _ in range(4)]
    for thread in threads:
        thread.start()
    # Those that come behind an answer would find it, too.
    time.sleep(0.05)
    answer.set()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


def test_a_busy_machine_refuses_nothing_for_good(monkeypatch):
    trial = CompileTrial(20)
    body = grammar({"json_schema": intersection(5)})
    with monkeypatch.context() as patched:
        patched.setattr(trials, "_MOST_WAIT_S", 0)
        with pytest.raises(ServerBusyError, match="machine is too busy"):
            trial.result(body, 300)
    assert trial.result(body, 300).refused == ""
    trial.close()


def test_trials_under_way_end_with_the_server():
    """Those that wait for a place, too; later ones are made."""
    trial = CompileTrial(20, children=2)
    errors = []

    def ask(count):
        with pytest.raises(EngineStateError) as raised:
            trial.result(grammar({"json_schema": intersection(count)}), 300)
        errors.append(raised.value)

    threads = [threading.Thread(target=ask, args=(25 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while not all(child._process for child in trial._children):
        time.sleep(0.01)
    trial.close()
    for thread in threads:
        thread.join()
    assert len(errors) == len(threads)
    assert trial.result(grammar({"lark_grammar": 'start: "a"'}), 300).error == ""
    trial.close()
