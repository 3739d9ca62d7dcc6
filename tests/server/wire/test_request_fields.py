"""Fields that several formats have: sampling options, and the choice of tools."""

import pytest
from scripted_server import ACCEPTED, USAGE
from wire_formats import BODIES, CHAT, COMPLETIONS, GENERATE, HI, MESSAGES, OLLAMA, RESPONSES

from akunu_py.server.events import Finished
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.option_fields import Biases, Count, Number, Switch, Texts, options_of
from akunu_py.values.reply_deltas import ContentDelta

FORMATS = {
    CHAT: "completions", COMPLETIONS: "completions", MESSAGES: "messages", RESPONSES: "responses",
    OLLAMA: "ollama", GENERATE: "ollama",
}  # fmt: skip
# What an option of a kind is given, and becomes.
VALUES = {Number: (0.5, 0.5), Count: (7, 7), Switch: (True, True), Texts: (["END"], ("END",)), Biases: ({"5": -100}, {5: -100})}  # fmt: skip
PENALTY = {"repetition_penalty": "repeat_penalty"}
OF_OLLAMA = PENALTY | {"max_tokens": "num_predict", "penalty_window": "repeat_last_n"}
OTHER_NAMES = {
    CHAT: PENALTY | {"max_tokens": "max_completion_tokens"},
    MESSAGES: {"stop": "stop_sequences"},
    RESPONSES: {"max_tokens": "max_output_tokens"},
    OLLAMA: OF_OLLAMA,
    GENERATE: OF_OLLAMA,
}
OPTIONS = [
    (path, one.name)
    for path, wire in FORMATS.items()
    for one in options_of(GenerationConfig)
    if wire in one.wire
]


def test_formats_have_these_options():
    names = {path: {name for at, name in OPTIONS if at == path} for path in FORMATS}
    assert names[RESPONSES] == {"temperature", "top_p", "max_tokens", "stop_loops"}
    assert names[MESSAGES] == names[RESPONSES] | {"top_k", "stop"}
    assert names[CHAT] == names[COMPLETIONS] == names[MESSAGES] | {
        "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "seed",
        "min_tokens", "ignore_eos",
    }  # fmt: skip
    assert names[OLLAMA] == names[GENERATE] == names[CHAT] - {
        "logit_bias", "min_tokens", "ignore_eos"
    } | {"penalty_window"}  # fmt: skip


@pytest.mark.parametrize(("path", "name"), OPTIONS)
def test_an_option_reaches_the_backend(server, backend, path, name):
    [kind] = (type(one.kind) for one in options_of(GenerationConfig) if one.name == name)
    value, expected = VALUES[kind]
    given = {OTHER_NAMES.get(path, {}).get(name, name): value}
    response = server.post(
        path, BODIES[path] | ({"options": given} if path in {OLLAMA, GENERATE} else given)
    )
    assert response.status_code == 200, response.text
    assert "x-akunu-ignored" not in response.headers
    assert getattr(backend.request.config, name) == expected


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ({"max_completion_tokens": 9}, {"max_tokens": 100}, "max_tokens"),
        ({"repetition_penalty": 9.0}, {"repeat_penalty": 1.1}, "repetition_penalty"),
    ],
)
def test_of_two_names_of_an_option_the_first_counts(server, backend, first, second, name):
    server.post(CHAT, BODIES[CHAT] | second | first)
    assert getattr(backend.request.config, name) == 9


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FORMATS)
def test_a_reply_that_repeated_itself_says_so(server, backend, path, stream):
    """No format has a word for it; clients see the usual end."""
    for reason in ("loop", "stop"):
        backend.play([ACCEPTED, ContentDelta("a"), Finished(reason, USAGE)])
        text = server.post(path, BODIES[path] | {"stream": stream}).text
        found = '"akunu":{"ended":"loop","note":"the reply repeated itself and was ended;' in text
        assert found == (reason == "loop")
        usual = {MESSAGES: '"end_turn"', RESPONSES: '"completed"'}.get(path, '"stop"')
        assert usual in text


def test_one_stop_text(server, backend):
    server.post(CHAT, BODIES[CHAT] | {"stop": "END"})
    assert backend.request.config.stop == ("END",)


@pytest.mark.parametrize("texts", [["END"] * 65, ["E" * 257]])
@pytest.mark.parametrize(("path", "field"), [(CHAT, "stop"), (MESSAGES, "stop_sequences")])
def test_stop_texts_are_bounded(server, backend, path, field, texts):
    error = server.post(path, BODIES[path] | {field: texts}).json()["error"]
    assert error["message"].startswith(f"{field} has ")
    server.post(path, BODIES[path] | {field: ["END" * 85] * 64})
    assert len(backend.request.config.stop) == 64


def function(name, path, **fields):
    if path == CHAT:
        return {"type": "function", "function": {"name": name}}
    return {"type": "function", "name": name, **fields}


ALLOWED = {"mode": "auto", "tools": [function("read", CHAT)]}
SPACE = {"type": "namespace", "name": "n", "tools": [function("read", RESPONSES)]}
TOOLS = {
    CHAT: [function("read", CHAT), function("list", CHAT)],
    MESSAGES: [{"name": "read"}],
    RESPONSES: [function("read", RESPONSES), {"type": "custom", "name": "patch"}, SPACE],
}


@pytest.mark.parametrize(
    ("path", "given", "choice"),
    [
        (CHAT, None, "auto"),
        (CHAT, "auto", "auto"),
        (CHAT, "none", "none"),
        (CHAT, "required", "required"),
        (CHAT, function("list", CHAT), {"name": "list"}),
        (CHAT, {"type": "allowed_tools", "allowed_tools": ALLOWED}, ["read"]),
        (MESSAGES, {"type": "auto"}, "auto"),
        (MESSAGES, {"type": "any", "disable_parallel_tool_use": True}, "required"),
        (MESSAGES, {"type": "tool", "name": "read"}, {"name": "read"}),
        (MESSAGES, {"type": "none"}, "none"),
        (RESPONSES, "auto", "auto"),
        (RESPONSES, "required", "required"),
        (RESPONSES, function("read", RESPONSES), {"name": "read"}),
        (RESPONSES, {"type": "custom", "name": "patch"}, {"name": "patch"}),
        (RESPONSES, function("read", RESPONSES, namespace="n"), {"name": "n__read"}),
        (RESPONSES, {"type": "allowed_tools", "mode": "auto", "tools": TOOLS[RESPONSES][:1]}, ["read"]),
    ],
)  # fmt: skip
def test_tool_choice(server, backend, path, given, choice):
    body = {"tools": TOOLS[path], "tool_choice": given}
    response = server.post(path, BODIES[path] | body)
    assert response.status_code == 200, response.text
    if isinstance(choice, list):
        choice = {"mode": "auto", "names": choice}
    assert backend.request.tool_choice == choice
    assert backend.request.parallel_tool_calls == ("disable" not in str(given))


def test_a_call_in_parallel_may_be_forbidden(server, backend):
    for path, messages in ((CHAT, "messages"), (RESPONSES, "input")):
        server.post(path, {messages: HI, "parallel_tool_calls": False})
        assert not backend.request.parallel_tool_calls


@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        (MESSAGES, {"output_config": {"effort": "vast"}}, "output_config.effort"),
        (RESPONSES, {"reasoning": {"effort": "vast"}}, "reasoning.effort"),
    ],
)
def test_an_unknown_effort_is_ignored(server, backend, path, fields, name):
    """Clients of these formats learn words faster than servers."""
    assert server.post(path, BODIES[path] | fields).headers["x-akunu-ignored"] == name
    assert backend.request.config.effort is None


@pytest.mark.parametrize("path", [CHAT, OLLAMA])
def test_roles_of_other_apis_are_known(server, backend, path):
    given = ["developer", "human", "model", "observation"]
    said = [{"role": role, "content": role} for role in given]
    assert server.post(path, BODIES[path] | {"messages": said}).status_code == 200
    assert [one.role for one in backend.request.messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("path", [CHAT, OLLAMA])
def test_a_control_message_says_whether_to_think(server, backend, path):
    """Granite's, with Ollama; other switches and thoughts of clients are left out and listed."""
    control = [{"role": "control", "content": "thinking"}]
    response = server.post(path, BODIES[path] | {"messages": control + HI})
    assert response.status_code == 200
    assert backend.request.config.thinking is True
    assert [one.role for one in backend.request.messages] == ["user"]
    others = [{"role": "control", "content": "length long"}, {"role": "thinking", "content": "Hm"}]
    response = server.post(path, BODIES[path] | {"messages": others + HI})
    assert backend.request.config.thinking is None
    assert response.headers["x-akunu-ignored"] == "control, thinking"
    off = {"think": False} if path == OLLAMA else {"enable_thinking": False}
    server.post(path, BODIES[path] | {"messages": control + HI} | off)
    assert backend.request.config.thinking is False
    response = server.post(
        path, BODIES[path] | {"messages": [*others, {"role": "x", "content": "y"}]}
    )
    assert response.status_code == 400
    assert "messages[2].role" in response.text


NESTED = {
    CHAT: {
        "structured_outputs": {"json_object": True, "whitespace_pattern": " "},
        "stream_options": {"include_usage": True, "mystery": 1},
        "akunu": {"x": {"y": 1}},
    },
    MESSAGES: {"output_config": {"mystery": 1, "effort": None}},
    RESPONSES: {"text": {"verbosity": "low", "mystery": {}}, "reasoning": {"mystery": None}},
}


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        (CHAT, "structured_outputs.whitespace_pattern, stream_options.mystery, akunu.x"),
        (MESSAGES, "output_config.mystery"),
        (RESPONSES, "text.mystery, reasoning.mystery"),
    ],
)
def test_unknown_fields_of_a_field_are_listed_like_others(server, path, listed):
    response = server.post(path, BODIES[path] | NESTED[path])
    assert response.status_code == 200
    assert response.headers["x-akunu-ignored"] == listed
