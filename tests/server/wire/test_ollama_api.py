"""Ollama's API over HTTP: lines of JSON, what requests become, and what clients ask of models."""

import hashlib
import json
import time
from dataclasses import replace
from datetime import datetime

import pytest
from scripted_server import (
    ACCEPTED,
    MODEL,
    USAGE,
    Pause,
    ScriptedBackend,
    call,
    running,
    said,
    thought,
)
from wire_formats import BODIES, GENERATE, OLLAMA, error_of

from akunu_py.server.backend import ChatRequest, CompletionRequest, ServedModel, StoredFacts
from akunu_py.server.events import Finished
from akunu_py.server.reply_response import Patience
from akunu_py.system.errors import ConfigError, ServerBusyError
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Message, Tool, ToolCall
from akunu_py.values.reply_deltas import ContentDelta

STREAMED = {"stream": None}  # Ollama's default
FIGURES = {
    "prompt_eval_count": 30, "prompt_eval_duration": 500_000_000,
    "eval_count": 12, "eval_duration": 2_000_000_000,
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def lines_of(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(one) for one in response.text.splitlines()]


def text_of(line, path):
    return line["message"]["content"] if path == OLLAMA else line["response"]


def thinking_of(line, path):
    return (line["message"] if path == OLLAMA else line).get("thinking", "")


@pytest.mark.parametrize("path", [OLLAMA, GENERATE])
def test_whole_and_stream_say_the_same(server, backend, path):
    backend.play(thought("So.", "Hello", " world"))
    whole = server.post(path, BODIES[path] | {"model": "tiny:latest"}).json()
    assert (text_of(whole, path), thinking_of(whole, path)) == ("Hello world", "So.")
    assert whole["model"] == "tiny:latest"
    *lines, last = lines_of(server.post(path, BODIES[path] | STREAMED))
    assert "".join(text_of(line, path) for line in lines) == "Hello world"
    assert "".join(thinking_of(line, path) for line in lines) == "So."
    assert {line["done"] for line in lines} == {False}
    for end in (whole, last):
        assert (end["done"], end["done_reason"]) == (True, "stop")
        assert {name: end[name] for name in FIGURES} == FIGURES
        assert 0 <= end["load_duration"] <= end["total_duration"]
    assert datetime.fromisoformat(last["created_at"]).tzinfo is not None


@pytest.mark.parametrize(
    ("reason", "written"),
    [("stop", "stop"), ("length", "length"), ("loop", "stop"), ("tool_calls", "stop")],
)
def test_reasons(server, backend, reason, written):
    backend.play(said("x", reason=reason))
    assert server.post(OLLAMA, BODIES[OLLAMA]).json()["done_reason"] == written


def test_two_calls(server, backend):
    backend.play([ACCEPTED, *call(0, "f", {}), *call(1, "g", {}), Finished("tool_calls", USAGE)])
    calls = server.post(OLLAMA, BODIES[OLLAMA]).json()["message"]["tool_calls"]
    assert [(one["function"]["index"], one["function"]["name"]) for one in calls] == [
        (0, "f"), (1, "g"),
    ]  # fmt: skip


def test_error_within_a_stream(server, backend):
    backend.play([ACCEPTED, ContentDelta("x"), ServerBusyError("busy", retry_after_s=1)])
    assert lines_of(server.post(OLLAMA, BODIES[OLLAMA] | STREAMED))[-1] == {"error": "busy"}


def test_lines_while_nothing_comes():
    patience = Patience(first_s=0.01, keep_alive_s=0.02)
    with running(ScriptedBackend([[Pause(0.2), *said("x")]]), patience=patience) as server:
        lines = lines_of(server.post(GENERATE, BODIES[GENERATE] | STREAMED))
    assert [text_of(line, GENERATE) for line in lines[:2]] == ["", ""]
    assert sum(text_of(line, GENERATE) == "x" for line in lines) == 1
    assert lines[-1]["load_duration"] >= 150_000_000


def test_conversation(server, backend):
    ask = {
        "messages": [
            {"role": "system", "content": "Be kind"},
            {"role": "User", "content": "Look", "images": ["aGk="]},
            {"role": "assistant", "thinking": "So.", "tool_calls": [
                {"id": "c1", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}},
            ]},
            {"role": "tool", "tool_name": "add", "tool_call_id": "c1", "content": "3"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
        "stream": False,
    }  # fmt: skip
    assert server.post(OLLAMA, ask).headers["x-akunu-ignored"] == "image"
    assert backend.request == ChatRequest(
        model="tiny",
        messages=(
            Message("system", "Be kind"),
            Message("user", "Look\n[image left out: this model reads text]"),
            Message("assistant", tool_calls=(ToolCall("add", {"a": 1}, "c1"),), reasoning="So."),
            Message("tool", "3", name="add", tool_call_id="c1"),
            Message("user", "And?"),
        ),
        tools=(Tool("add", parameters=SCHEMA),),
        config=backend.request.config,
    )


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, (Message("user", "Hi"),)),
        ({"system": "Be kind"}, (Message("system", "Be kind"), Message("user", "Hi"))),
        ({"raw": True}, ("Hi", None)),
        ({"suffix": "end"}, ("Hi", "end")),
    ],
)
def test_text(server, backend, fields, prompt):
    assert server.post(GENERATE, BODIES[GENERATE] | fields).status_code == 200
    match backend.request:
        case CompletionRequest(prompt=text, suffix=suffix):
            assert (text, suffix) == prompt
        case ChatRequest(messages=messages):
            assert messages == prompt


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"think": True}, {"thinking": True, "effort": None}),
        ({"think": False}, {"thinking": False, "effort": None}),
        ({"think": "low"}, {"thinking": True, "effort": "low"}),
        ({"format": "json"}, {"constraint": Constraint.json_schema({"type": "object"})}),
        ({"format": SCHEMA}, {"constraint": Constraint.json_schema(SCHEMA)}),
        ({"format": ""}, {"constraint": None}),
        ({"options": {"num_predict": -1, "seed": -1, "top_k": -1}},
         {"max_tokens": None, "seed": None, "top_k": 0}),
        ({"options": {"num_predict": -2, "repeat_last_n": -1}},
         {"max_tokens": None, "penalty_window": 4096}),
        ({"options": {"mirostat": 0, "tfs_z": 1, "typical_p": 1.0, "num_ctx": 4096}}, {}),
        ({"options": {"num_gpu": 99, "num_thread": 8, "num_keep": 4, "use_mmap": None}}, {}),
    ],
)  # fmt: skip
def test_fields(server, backend, fields, expected):
    response = server.post(GENERATE, BODIES[GENERATE] | fields)
    assert response.status_code == 200, response.text
    assert "x-akunu-ignored" not in response.headers
    assert {name: getattr(backend.request.config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({"keep_alive": "5m"}, "keep_alive"),
        ({"options": {"num_ctx": 8192}}, "options.num_ctx"),
        ({"truncate": True, "shift": False}, "truncate, shift"),
    ],
)
def test_without_effect(server, fields, listed):
    response = server.post(GENERATE, BODIES[GENERATE] | fields)
    assert response.headers["x-akunu-ignored"] == listed


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (OLLAMA, {}),
        (OLLAMA, {"messages": []}),
        (GENERATE, {"prompt": ""}),
        (GENERATE, {"keep_alive": -1}),
    ],
)
def test_without_a_prompt_the_model_is_loaded(server, backend, path, body):
    answer = server.post(path, body | {"model": "tiny"}).json()
    assert (answer["done"], answer["done_reason"], text_of(answer, path)) == (True, "load", "")
    assert (backend.loaded, backend.requests) == (["tiny"], [])


@pytest.mark.parametrize("wish", [0, "0", "0s", 0.0])
def test_without_a_prompt_a_model_may_leave(server, backend, wish):
    backend.loaded.append("tiny")
    answer = server.post(GENERATE, {"model": "tiny", "keep_alive": wish}).json()
    assert (answer["done_reason"], backend.loaded) == ("unload", [])
    backend.refusal = ConfigError("tiny stays in memory as long as the server runs")
    response = server.post(GENERATE, {"model": "tiny", "keep_alive": wish})
    assert response.status_code == 400
    assert "stays" in error_of(response, GENERATE)["message"]


def test_fields_that_a_raw_prompt_has_no_place_for(server):
    response = server.post(GENERATE, BODIES[GENERATE] | {"raw": True, "system": "x"})
    assert error_of(response, GENERATE)["message"].startswith("system")


STORED = StoredFacts(
    num_bytes=1000, architecture="llama", parameters=1_235_000_000, quantization="Q4_1"
)
FULL = replace(MODEL, stored=STORED, template="{{ x }}", idle_left_s=60.0)
OTHER = ServedModel(id="other", name="Other", context=512, loaded=False)


@pytest.fixture(scope="module")
def library():
    with running(ScriptedBackend(served=(FULL, OTHER))) as server:
        yield server


def test_lists_of_models(library):
    full, other = library.get("/api/tags").json()["models"]
    assert (full["name"], full["model"], other["name"]) == ("tiny:latest",) * 2 + ("other:latest",)
    assert full["size"] == 1000
    assert full["digest"] != other["digest"]
    assert all(len(one["digest"]) == hashlib.sha256().digest_size * 2 for one in (full, other))
    assert datetime.fromisoformat(full["modified_at"]).timestamp() == MODEL.created
    assert full["details"] == {
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
        "parameter_size": "1.2B", "quantization_level": "Q4_1",
    }  # fmt: skip
    [loaded] = library.get("/api/ps").json()["models"]
    assert loaded.items() >= full.items()
    assert (loaded["size_vram"], loaded["context_length"]) == (1000, 4096)
    left_s = datetime.fromisoformat(loaded["expires_at"]).timestamp() - time.time()
    assert 0 < left_s < 61


@pytest.mark.parametrize("field", ["model", "name"])
def test_one_model(library, field):
    shown = library.post("/api/show", {field: "tiny"}).json()
    assert shown["model_info"] == {
        "general.architecture": "llama", "general.parameter_count": 1_235_000_000,
        "llama.context_length": 4096,
    }  # fmt: skip
    assert shown["capabilities"] == ["completion", "tools", "thinking", "insert"]
    assert shown["template"] == "{{ x }}"
    missing = library.post("/api/show", {field: "x"})
    assert missing.status_code == 404
    error_of(missing, "/api/show")


def test_version(server):
    # VS Code refuses a server before 0.6.4.
    assert tuple(map(int, server.get("/api/version").json()["version"].split("."))) >= (0, 6, 4)
    error_of(server.post("/api/create", {}), "/api/create")


@pytest.mark.parametrize("path", [OLLAMA, GENERATE])
def test_options_of_older_clients(server, path):
    """Those of a loader that Ollama has no more, and whole numbers with a point."""
    old = {"num_gqa": 8, "rope_frequency_base": 1e6, "rope_frequency_scale": 0.5}
    numbers = {"num_predict": 3.0, "num_ctx": 2048.0, "top_k": 5.0, "seed": -1.0}
    assert server.post(path, BODIES[path] | {"options": old | numbers}).status_code == 200
    config = server.backend.request.config
    assert (config.max_tokens, config.top_k, config.seed) == (3, 5, None)
    assert type(config.max_tokens) is int
    refused = server.post(path, BODIES[path] | {"options": {"num_predict": 3.5}})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("options.num_predict is 3.5; give ")
