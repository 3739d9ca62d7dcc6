"""Requests that only an engine can judge: each gets an answer of its own, and the next is served."""

from dataclasses import replace

import pytest
from engine_server import serving

from akunu_py.engine.engine import Engine
from akunu_py.gguf.reader import GGUFFile
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer
from akunu_py.values.load_options import EngineOptions

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def served(roomy_gguf):
    with Engine.load(roomy_gguf) as engine, serving(engine) as server:
        yield server


def tool(name, properties=None):
    schema = {"type": "object", "properties": properties or {"a": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def tools(count, properties=None):
    return {"tools": [tool(f"tool_{number}", properties) for number in range(count)]}


def answer(schema):
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    }


def custom(expression):
    format_ = {"type": "grammar", "grammar": {"syntax": "regex", "definition": expression}}
    return {"tools": [{"type": "custom", "custom": {"name": "p", "format": format_}}]}


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


MARKS = {"<|im_end|>": {"type": "string"}, "</tool_call>": {"enum": ["<|im_start|>"]}}
REFUSED = {
    "bias beyond the vocabulary": ({"logit_bias": {"99999": 5}}, "logit_bias"),
    "bias far beyond it": ({"logit_bias": {"999999999": 5}}, "logit_bias"),
    "deep schema": (answer(nested(40)), "levels"),
    "many values": (answer({"enum": [f"value {n}" for n in range(20_000)]}), "characters"),
    "many keys": (answer({"properties": {f"k{n}": {} for n in range(501)}}), "keys"),
    "unknown reference": (answer({"$ref": "#/$defs/x"}), "$defs/x"),
    "foreign reference": (answer({"$ref": "http://example.com/x"}), "example.com"),
    "unknown type": (answer({"type": "unheard of"}), "unheard of"),
    "properties that are none": (answer({"type": "object", "properties": 5}), "properties"),
    "nothing that fits": (answer({"allOf": [{"type": "string"}, {"type": "integer"}]}), ""),
    "long value": (answer({"enum": ["x" * 2**17]}), "characters"),
    "slow expression": (answer({"type": "string", "pattern": ".*" * 2000}), ""),
    "look-ahead": (answer({"type": "string", "pattern": "(?=a)b"}), "look"),
    "too many tools": (tools(513), "512"),
    "more tools than the context holds": (tools(500), "maximum context length"),
    "large tools": (tools(500, {f"key{n}": {"enum": ["x" * 50]} for n in range(20)}), "characters"),
    "mark as name": ({"tools": [tool("<|im_end|>")]}, "name"),
    "look-ahead of a custom tool": (custom("(?=x)"), "look"),
    "expression without an end": (custom("("), "("),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_an_error_of_the_client(served, case):
    fields, word = REFUSED[case]
    response = served.post(CHAT, ASK | fields)
    assert response.status_code == 400, response.text
    assert word in response.json()["error"]["message"]


TAKEN = {
    "schema with many levels": answer(nested(25)),
    "marks as arguments": {"tools": [tool("f", MARKS)], "tool_choice": "required"},
    "expression": {**custom("[ab]{3}"), "tool_choice": "required"},
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_odd_but_possible_is_done(served, case):
    assert served.post(CHAT, ASK | TAKEN[case]).status_code == 200


def test_the_next_request_is_served(served):
    assert served.post(CHAT, ASK).status_code == 200


STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if m.content == 'no' %}"
    "{{ raise_exception('not this word') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
U, A, S = (
    lambda text, role=role: {"role": role, "content": text}
    for role in ("user", "assistant", "system")
)


@pytest.fixture(scope="module")
def strict(roomy_gguf):
    with Engine.load(roomy_gguf) as engine:
        with GGUFFile.open(roomy_gguf) as file:
            metadata = file.metadata | {"tokenizer.chat_template": STRICT}
        loaded = replace(engine._loaded, tokenizer=GGUFTokenizer(metadata))
        strict = Engine(loaded, EngineOptions(context=engine.context))
        with serving(strict) as server:
            yield server
        strict.close()


CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "found"}


@pytest.mark.parametrize(
    "messages",
    [
        [U("a"), U("b")], [U("a"), A("b"), A("c"), U("d")], [A("a"), U("b")],
        [U("a"), A("b"), S("c"), U("d")],
        [U("a"), A([CALL]), U([RESULT]), U("b")],
        [U("a"), A([CALL]), U([RESULT, {"type": "text", "text": "b"}])],
    ],
)  # fmt: skip
def test_a_strict_template_takes_any_order(strict, messages):
    for path in ("/v1/messages", CHAT):
        if path == "/v1/messages" or isinstance(messages[1]["content"], str):
            response = strict.post(path, {"messages": messages, "max_tokens": 2})
            assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/messages/count_tokens"])
def test_what_a_template_refuses_is_an_error_of_the_client(strict, path):
    response = strict.post(path, {"messages": [U("no")], "max_tokens": 2})
    assert response.status_code == 400
    assert response.json()["error"]["message"].endswith("refuses the conversation: not this word")
