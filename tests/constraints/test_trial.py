"""Grammars that nobody can afford to compile are refused in bounded time and memory."""

import json
import time

import pytest

from akunu_py.constraints.trial import CompileTrial
from akunu_py.errors import ConstraintError


def intersection(count):
    return {"allOf": [{"type": "string", "pattern": f"a{i}.*"} for i in range(count)]}


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
    "behind a name": {"lark_grammar": "start: <|x|> <[300]> A\nA: " + " & ".join(f"/.*a{i}.*/" for i in range(25))},
}  # fmt: skip


def grammar(body):
    return json.dumps({"grammars": [body]})


@pytest.fixture(scope="module")
def trial():
    made = CompileTrial(0.2)
    yield made
    made.close()


@pytest.mark.parametrize("name", EXPENSIVE)
def test_what_takes_long_is_refused(trial, name):
    began = time.process_time()
    for _ in range(2):
        with pytest.raises(ConstraintError, match=r"too complex \(compiling it takes too long\)"):
            trial.error_of(grammar(EXPENSIVE[name]), 400)
    # Nothing of it is computed here.
    assert time.process_time() - began < 0.2


def test_what_takes_much_memory_is_refused():
    trial = CompileTrial(20, 100 << 20)
    with pytest.raises(ConstraintError, match="too much memory"):
        trial.error_of(grammar(EXPENSIVE["multipleOf"]), 300)
    assert trial.error_of(grammar({"json_schema": {"type": "integer"}}), 300) == ""
    trial.close()


def test_others_are_compiled_by_one_child_that_stays(trial):
    bodies = [{"json_schema": {"type": "string", "maxLength": n}} for n in range(1, 4)]
    assert [trial.error_of(grammar(body), 300) for body in bodies] == ["", "", ""]
    (child,) = trial._idle
    assert trial.error_of(grammar({"json_schema": {"not": {}}}), 300)
    assert trial._idle == [child]


def test_an_end_of_llguidance_refuses_the_grammar_alone(trial):
    chain = "".join(f"a{i}: a{i + 1}\n" for i in range(100_000))
    with pytest.raises(ConstraintError, match="too complex"):
        trial.error_of(grammar({"lark_grammar": f'start: a0\n{chain}a100000: "a"'}), 300)
    assert trial.error_of(grammar({"lark_grammar": 'start: "a"'}), 300) == ""


def test_a_child_that_was_ended_meanwhile_is_replaced(trial):
    assert trial.error_of(grammar({"lark_grammar": 'start: "b"'}), 300) == ""
    for child in trial._idle:
        child._process.kill()
        child._process.wait()
    assert trial.error_of(grammar({"lark_grammar": 'start: "c"'}), 300) == ""
