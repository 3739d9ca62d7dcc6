"""Prompts from files by path, and that other lines are reported."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.bench import prompt_files
from akunu_py.bench.prompt_files import parse_prompt_file, read_prompts
from akunu_py.bench.result_file import Failure
from akunu_py.bench.workloads import Prompt
from akunu_py.system.errors import ConfigError

OWN = {"id": "a", "category": "mine", "kind": "raw", "prompt": "p"}
CHAT = {
    "id": "b",
    "category": "mine",
    "kind": "chat",
    "messages": [{"role": "user", "content": "u"}],
}
SESSION = {
    "id": "s", "category": "mine", "kind": "session",
    "turns": [{"user": "u", "assistant": "v"}, {"user": "w", "assistant": "x"}],
}  # fmt: skip


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def parsed(*records):
    prompts, failures = parse_prompt_file(lines(*records), "f.jsonl")
    assert failures == ()
    return prompts


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not JSON"),
        (b"[1]", "an item is a JSON object"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"id": "b", "id": "c"}', "field id: given twice"),
        (lines({"id": "b"}), "missing required field category"),
        (lines(OWN), "an earlier line has the id 'a'"),
        (lines({"task_id": "HumanEval/0", "prompt": "def f():"}), "unknown field task_id"),
        (lines({**OWN, "id": "b", "more": 1}), "unknown field more"),
        (lines({**OWN, "id": "c", "session": "b"}), "turn 0 of a session follows turn 0"),
        (
            lines({**SESSION, "id": "a"}),
            "the session 'a' has earlier lines; put its lines together",
        ),
    ],
)
def test_lines_that_are_no_prompt_are_reported_and_the_rest_goes_on(line, words):
    data = lines(OWN, CHAT) + b"\n" + line.removesuffix(b"\n") + b"\n" + lines({**OWN, "id": "z"})
    prompts, (failure,) = parse_prompt_file(data, "f.jsonl")
    assert [prompt.id for prompt in prompts] == ["a", "b", "z"]
    assert failure.item == "f.jsonl, line 4"
    assert words in failure.error


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({**OWN, "kind": "song"}, "field kind: "),
        ({**OWN, "category": ""}, "field category: "),
        ({**OWN, "id": 3}, "field id: "),
        ({**OWN, "prompt": " \n"}, "field prompt: "),
        ({**OWN, "messages": CHAT["messages"]}, "needs a text and no messages"),
        ({**OWN, "turn": -1}, "field turn: "),
        ({**CHAT, "messages": []}, "needs messages"),
        ({**CHAT, "messages": "hello"}, "field messages: "),
        ({**CHAT, "messages": [{"role": "god", "content": "x"}]}, "field messages[0].role: "),
        ({**CHAT, "messages": [{"role": "user", "content": ""}]}, "field messages[0].content: "),
        ({**CHAT, "messages": [{"role": "assistant", "content": "x"}]}, "end with the user"),
        ({**SESSION, "turns": []}, "field turns: "),
        ({**SESSION, "turns": [{"user": "u"}]}, "field turns[0]: "),
        ({**SESSION, "turns": [{"user": "u", "assistant": " "}]}, "field turns[0].assistant: "),
        ({**SESSION, "system": 3}, "field system: "),
        ({**SESSION, "reference": "x"}, "unknown field reference"),
    ],
)
def test_malformed_prompts_of_our_own_are_named(record, words):
    with pytest.raises(ConfigError) as caught:
        parse_prompt_file(lines(record), "f.jsonl")
    assert "f.jsonl, line 1: " in str(caught.value)
    assert words in str(caught.value)


def test_a_session_becomes_a_prompt_a_turn():
    first, second = parsed({**SESSION, "system": "y", "language": "c"})
    system, asked = {"role": "system", "content": "y"}, {"role": "user", "content": "u"}
    assert first == Prompt(
        "s/0", "mine", "chat", messages=(system, asked), language="c", reference="v", session="s"
    )
    said = {"role": "assistant", "content": "v"}
    assert second.messages == (system, asked, said, {"role": "user", "content": "w"})
    assert (second.id, second.session, second.turn, second.reference) == ("s/1", "s", 1, "x")


def test_a_session_that_is_interrupted_is_reported():
    turn = {**OWN, "session": "s"}
    data = lines({**turn, "id": "0"}, {**OWN, "id": "1"}, {**turn, "id": "2", "turn": 1})
    prompts, failures = parse_prompt_file(data, "f.jsonl")
    assert [prompt.id for prompt in prompts] == ["0", "1"]
    assert failures == (
        Failure("f.jsonl, line 3", "the session 's' has earlier lines; put its lines together"),
    )


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "f.jsonl"

    def refused(data, words):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=words):
            read_prompts(path)

    packed = gzip.compress(lines(OWN) * 50)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_prompts(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "a\0b")
    refused(b"\n \n", "f.jsonl is empty")
    refused(b"{\n[]\n", "no prompt that can be used; f.jsonl, line 1: not JSON")
    refused(packed[:-9], "cannot be read")
    refused(packed[:20] + b"\0\0\0\0" + packed[24:], "cannot be read")
    monkeypatch.setattr(prompt_files, "MAX_FILE_BYTES", 1 << 20)
    refused(gzip.compress(b"\n" * (1 << 20) + lines(OWN)), "more than 1 MiB")
    refused(b"\n" * (1 << 20) + lines(OWN), "more than 1 MiB")


def test_long_lines_are_reported(monkeypatch):
    monkeypatch.setattr(prompt_files, "MAX_LINE_BYTES", 1 << 20)
    long = {**OWN, "id": "b", "prompt": "x" * (1 << 20)}
    prompts, failures = parse_prompt_file(lines(OWN, long, CHAT), "f.jsonl")
    assert [prompt.id for prompt in prompts] == ["a", "b"]
    assert failures == (Failure("f.jsonl, line 2", "longer than 1 MiB"),)


def never_but_config_error(data, name):
    """Read bytes; whatever they are, there are prompts of distinct ids or a ConfigError."""
    try:
        prompts, failures = parse_prompt_file(data, name)
    except ConfigError:
        return
    assert prompts
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert all(failure.item and failure.error for failure in failures)
    for prompt in prompts:
        (prompt.id + prompt.category + prompt.session + prompt.reference).encode()
        (prompt.text or prompt.messages[-1]["content"]).encode()


@given(st.binary(max_size=300), st.text(max_size=8))
def test_any_bytes(data, name):
    never_but_config_error(lines(OWN) + data, name)
    never_but_config_error(data, name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KNOWN = [OWN, CHAT, SESSION]
FIELDS = sorted(set().union(*KNOWN))


@given(
    st.lists(
        st.tuples(st.sampled_from(KNOWN), st.sampled_from(FIELDS), JSON), min_size=1, max_size=4
    )
)
def test_any_value_of_any_field(changes):
    never_but_config_error(
        lines(*({**known, field: value} for known, field, value in changes)), "f"
    )


TEXT = st.text(st.sampled_from(list('{}[]:,"ab\\u0d8n\n ')), max_size=60)


@given(TEXT, st.sampled_from(KNOWN), st.integers(0, 60), st.integers(0, 60))
def test_lines_cut_and_mended_wrongly(text, known, start, length):
    line = json.dumps(known)
    never_but_config_error((line[:start] + text + line[start + length :]).encode(), "f")
