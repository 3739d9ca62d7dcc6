"""Requests that are refused before a reply is asked for: the error names the field at fault."""

import json

import pytest
from wire_formats import (
    BODIES,
    CHAT,
    COMPLETIONS,
    GENERATE,
    HI,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    refused,
)

from akunu_py.server.conversation import MOST_MESSAGES, MOST_TOOLS, check_counts


def function(name, **fields):
    return {"type": "function", "function": {"name": name, **fields}}


def custom(**fields):
    return {"type": "custom", "custom": fields}


def content(*parts, role="user"):
    return [{"role": role, "content": list(parts)}]


def nested(levels):
    schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


GRAMMAR = {"type": "grammar"}
CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c\n"}
SPACE = [*HI, {"role": "assistant", "content": "is "}]
BREAK = [*HI, *content({"type": "text", "text": "is\n"}, role="assistant")]
FIELDS = {
    CHAT: {
        "max_tokens": [-2, 0, True, "5", 1.5],
        "temperature": [-1, 1e9, "hot"],
        "top_p": [2, 0],
        "top_k": [-3],
        "n": [10**9, -1, 0, 2],  # the server makes one reply at a time
        "seed": [-2, 2**64],
        "stop": [[1], {}],
        "logit_bias": [{"x": 1}, {"-1": 1}, {"9" * 400: 1}, {"1": "a"}, [1]],
        "stream": ["yes"],
        "stream_options": [[]],
        "messages": [
            [], {}, "Hi", [1], [{}], [{"role": "user"}],
            *([{"role": "user", "content": one}] for one in (None, 5, [5], [{"type": "text"}])),
            [{"role": "usr", "content": "Hi"}],
            [{"role": "tool", "content": "x", "tool_call_id": "a\nb"}],
            [{"role": "user", "content": "x", "tool_call_id": "c"}],
            [{"role": "user", "content": "x", "name": "n" * 5000}],
            HI * 10_001,
        ],
        "tools": [
            "x", [1], [{}], [function("a b")], [function("f", parameters=[1])], [function("f")] * 2,
            [function(f"f{n}") for n in range(1001)], [function("f", parameters=nested(200))],
            [{"type": "custom"}], [custom()], [custom(name=5)], [custom(name="x", format=GRAMMAR)],
            [custom(name="x", format=GRAMMAR | {"grammar": {}})],
        ],
        "tool_choice": ["required", "sometimes", {"type": "function"}, function("missing")],
        "chat_template_kwargs": [{"tokenize": True}, {"enable_thinking": "yes"}],
        "reasoning_effort": ["very"],
        "response_format": [
            {"type": "regex"}, {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {"schema": 5}}, {"type": "json_object", "schema": 123},
        ],
        "top_logprobs": [2, 21, -1],
        "model": [5],
        # What would change the reply, and akunu lacks.
        "functions": [[{"name": "f"}]],
        "function_call": ["auto"],
        "grammar": ["root ::= x"],
        "ebnf": ["root ::= x"],
        "guided_grammar": ["root ::= x", "# x\n  the-rule ::= x", ""],
        "regex": [""],
        "structured_outputs.grammar": ["root ::= x"],
        "structured_outputs.structural_tag": ["{}", {"structures": []}],
        "logits_processors": [["x"]],
        "mirostat": [1],
        "xtc_probability": [0.1],
        "lora": [[{"id": 0, "scale": 1}]],
        "audio": [{"voice": "x"}],
        "modalities": [["audio"]],
        "web_search_options": [{"x": 1}],
        "previous_response_id": ["resp_1"],
        "conversation": ["conv_1"],
    },
    COMPLETIONS: {
        "prompt": [[], [1, "a"], 5, ["a"] * 129, [[1], ["a"]]],
        "echo": ["yes"],
        "grammar": ["root ::= x"],
        "typical_p": [0.5],
        "min_tokens": [-1, 1.5],
        "ignore_eos": ["yes", 1],
        "n": [2],
        "best_of": [3],
        "logprobs": [-1, 21],
    },
    MESSAGES: {
        "messages": [
            [], content({"type": "text"}), [{"role": "x", "content": "Hi"}],
            content({"type": "tool_result", "content": 5}), SPACE, BREAK,
        ],
        "tools": [[{"name": "a b"}], [{"name": "f", "input_schema": {"type": "array"}}]],
        "tool_choice": [{"type": "tool"}, {"type": "tool", "name": "x"}, {"type": "?"}],
        "system": [5],
        "max_tokens": [-1],
        "stop_sequences": [[1]],
        "output_config": [{"format": {"type": "xml"}}],
    },
    RESPONSES: {
        "input": [
            [5], 5, [], [CALL], [{"type": "function_call_output", "call_id": "c", "output": 5}],
            content({"type": "input_text"}), [{"role": "root", "content": "x"}],
        ],
        "tools": [
            [5], [{"type": "function"}], [{"type": "namespace", "name": "n"}],
            [{"type": "custom", "name": "p", "format": GRAMMAR | {"syntax": "x"}}],
        ],
        "tool_choice": [{"type": "function"}, 5],
        "top_logprobs": [21],
        "previous_response_id": ["resp_1", "x", 5],
        "conversation": ["conv_1"],
        "background": [True],
        "prompt": [{"id": "pmpt_1"}],
        "max_output_tokens": [0],
    },
    OLLAMA: {
        "messages": [
            [{"role": "user", "content": "x", "images": ["aGk="]}], [{"role": "usr"}], [5], "Hi",
            [{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}],
            HI * (MOST_MESSAGES + 1),
        ],
        "tools": [[{}], [function("a b")], [function("f")] * 2, [{"type": "function"}]],
        "model": [5],
    },
    GENERATE: {
        "options": [
            5, [], *({name: value} for name, value in (
                ("num_predict", 0), ("num_predict", -3), ("temperature", -1), ("temperature", "hot"),
                ("repeat_last_n", 0), ("repeat_penalty", 0), ("stop", [1]), ("stop", "x"), ("seed", 0.5),
                ("mirostat", 1), ("typical_p", 0.5), ("tfs_z", 0.5), ("temprature", 1), ("num_ctx", "x"),
            )),
        ],
        "think": ["hard", 5],
        "format": ["xml", 5],
        "images": [["aGk="]],
        "context": [[1, 2]],
        "template": ["{{ .Prompt }}"],
        "top_logprobs": [21],
    },
}  # fmt: skip
CASES = [
    (path, field, value)
    for path, fields in FIELDS.items()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(
    ("path", "field", "value"),
    CASES,
    ids=[f"{path} {field} {json.dumps(value)[:40]}" for path, field, value in CASES],
)
def test_the_field_at_fault_is_named(server, path, field, value):
    outer, _, inner = field.partition(".")
    error = refused(server, path, BODIES[path] | {outer: {inner: value} if inner else value})
    assert error.get("param", error["message"]).startswith(field)


def test_as_many_messages_and_tools_are_taken():
    check_counts([None] * MOST_MESSAGES, [None] * MOST_TOOLS)


BEGUN = [*HI, {"role": "assistant", "content": "The answer is "}]
OPPOSITE = ("continue_final_message", "opposite")
TOGETHER = [
    ({"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True}, *OPPOSITE),
    ({"messages": BEGUN, "continue_final_message": False, "add_generation_prompt": False}, *OPPOSITE),
    ({"continue_final_message": True}, "messages", "not the assistant's"),
    ({"add_generation_prompt": False}, "messages", "not the assistant's"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, None, "guided_regex and guided_choice"),
    ({"regex": "a", "structured_outputs": {"json_object": True}}, None, "regex and structured_outputs.json_object"),
    ({"regex": "a", "response_format": {"type": "json_object"}}, "response_format", "one form"),
    ({"tools": [function("f")], "tool_choice": function("x")}, "tool_choice", "names 'x', which"),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "give 0 to 20"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "give 0 to 20"),
    ({"tools": [function("f", parameters=nested(200))]}, "tools[0]", "nested"),
    ({"messages": HI * 10_001}, "messages", "10001"),
    ({"min_tokens": 5, "max_completion_tokens": 4}, "min_tokens", "more than max_tokens, 4"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), TOGETHER)
def test_fields_that_do_not_go_together(server, fields, param, words):
    error = refused(server, CHAT, BODIES[CHAT] | fields)
    assert error["param"] == param
    assert words in error["message"]
