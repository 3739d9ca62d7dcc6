"""The optional part of the trace format: token ids and steps have to agree."""

import copy
import json

import pytest

from akunu_lab.replay.traces import parse_trace
from akunu_py.system.errors import ConfigError

STEPS = [
    {
        "position": 2, "source": "tree", "match_length": 0, "accepted": 2, "token": 7,
        "kind": "recovered", "origin": "residual", "entropy": 0.5, "gamma": 3,
        "drafted": [
            {"token": 4, "parent": -1, "accepted": False, "p": 0.0, "q": 0.5, "uniform": 0.1},
            {"token": 5, "parent": -1, "accepted": True, "confidence": 1.0},
            {"token": 6, "parent": 1, "accepted": True, "source": "lookup"},
            {"token": 9, "parent": 0},
        ],
    },
    {
        "position": 5, "source": "", "match_length": 0, "accepted": 0, "token": 8, "kind": "bonus",
        "origin": "target", "drafted": [],
    },
]  # fmt: skip
LINE = {
    "id": "a", "category": "code", "prompt": "p", "output": "o", "prompt_ids": [1, 2],
    "token_ids": [5, 6, 7, 8], "steps": STEPS,
}  # fmt: skip


def parse(record):
    return parse_trace(json.dumps(record).encode(), "t.jsonl")


def changed(path, value):
    """Return the line with one value replaced, or removed where it is None."""
    record = copy.deepcopy(LINE)
    place = record
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return record


def test_ids_and_steps_are_taken():
    (item,) = parse(LINE)
    assert (item.prompt, item.output) == ("p", "o")
    assert parse({**LINE, "token_ids": [5, 6], "steps": STEPS[:1]})  # cut by a stop text
    assert parse({key: value for key, value in LINE.items() if key != "steps"})
    assert parse({key: value for key, value in LINE.items() if key not in {"steps", "token_ids"}})
    # Earlier versions also wrote how a drafted tree was cut.
    assert parse(changed(["steps", 0, "tree"], {"nodes": 9, "verified": "tree"}))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["token_ids"], [], "field token_ids: Expected array of length >= 1"),
        (["token_ids"], "12", "field token_ids: Expected array, got str"),
        (["token_ids"], [5, True, 7, 8], "field token_ids[1]: Expected int, got bool"),
        (["prompt_ids"], [1, -2], "field prompt_ids[1]: Expected int >= 0"),
        (["prompt_ids"], None, "field steps: needs token_ids and prompt_ids"),
        (["token_ids"], None, "field steps: needs token_ids and prompt_ids"),
        (["steps"], {}, "field steps: Expected array, got object"),
        (["steps"], [3], "field steps[0]: Expected object, got int"),
        (["steps", 0, "note"], "x", "field steps[0]: Object contains unknown field note"),
        (["steps", 0, "kind"], None, "field steps[0]: Object missing required field kind"),
        (["steps", 0, "kind"], "lucky", "field steps[0].kind: Invalid enum value 'lucky'"),
        (["steps", 1, "origin"], "draft", "field steps[1].origin"),
        (["steps", 1, "source"], 3, "field steps[1].source: Expected str, got int"),
        (["steps", 0, "entropy"], 1.5, "field steps[0].entropy: Expected float <= 1.00001"),
        (["steps", 0, "gamma"], 2.0, "field steps[0].gamma: Expected int, got float"),
        (["steps", 1, "position"], 6, "field steps[1].position: is 6; the tokens before it are 5"),
        (["steps", 0, "accepted"], 1, "field steps[0].accepted: is 1 where 2 tokens are accepted"),
        (["steps", 0, "token"], 70, "field steps: do not put token_ids together"),
        (["steps", 0, "drafted"], 4, "field steps[0].drafted: Expected array, got int"),
        (["steps", 0, "drafted", 0, "p"], -0.5, "field steps[0].drafted[0].p: Expected float >= 0"),
        (["steps", 0, "drafted", 0, "uniform"], "a", "field steps[0].drafted[0].uniform"),
        (["steps", 0, "drafted", 3, "parent"], 3, "drafted[3].parent: is 3; parents come first"),
        (["steps", 0, "drafted", 3, "parent"], -2, "drafted[3].parent: Expected int >= -1"),
        (["steps", 0, "drafted", 2, "source"], 7, "drafted[2].source: Expected str, got int"),
        (["steps", 0, "drafted", 0, "accepted"], 1, "drafted[0].accepted: Expected bool, got int"),
        (["steps", 0, "drafted", 2, "parent"], 0, "is true of a token that is on no path"),
        (["steps", 0, "drafted", 0, "text"], "x", "drafted[0]: Object contains unknown field text"),
        (["token_ids"], [5, 6, 7], "field steps[1]: comes after the last of the token ids"),
        (["token_ids"], [5, 6, 7, 8, 9], "field steps: do not put token_ids together"),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_the_field(path, value, words):
    with pytest.raises(ConfigError) as raised:
        parse(changed(path, value))
    assert str(raised.value).startswith("t.jsonl, line 1, field ")
    assert words in str(raised.value)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), "1e999"])
def test_numbers_that_are_not_finite(number):
    line = json.dumps(changed(["steps", 0, "entropy"], number)).replace('"1e999"', "1e999")
    with pytest.raises(ConfigError, match="line 1: not JSON that can be read"):
        parse_trace(line.encode(), "t.jsonl")


def test_a_field_that_a_trace_does_not_have():
    with pytest.raises(ConfigError, match="line 1: Object contains unknown field tokens"):
        parse(changed(["tokens"], [5]))
