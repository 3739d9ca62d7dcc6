"""Replies of an engine over HTTP: the same text as from the engine, cached, cancelled, in company."""

import json

import pytest
from engine_server import serving
from gguf_files import CHAT_TEMPLATE
from kept_worker import Worker
from model_folders import write_folder
from scripted_server import events_of, running

from akunu_py.engine.engine import Engine
from akunu_py.models.session import Session
from akunu_py.server.engine_backend import EngineBackend
from akunu_py.server.model_source import served_model
from akunu_py.server.served_models import ClientMemories
from akunu_py.values.generation_config import GenerationConfig

ASK = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "seed": 3}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def loaded(roomy_gguf):
    with Engine.load(roomy_gguf) as engine:
        yield engine


@pytest.fixture
def served(loaded):
    with serving(loaded, parallel=2, places=4) as server:
        yield server


def test_reply_is_that_of_the_engine(served, loaded):
    body = served.post(CHAT, ASK | {"temperature": 0.9}).json()
    with loaded.sibling() as other:
        expected = other.chat(ASK["messages"], max_tokens=12, seed=3, temperature=0.9)
    assert body["choices"][0]["message"]["content"] == expected.text
    assert body["usage"]["prompt_tokens"] == expected.num_prompt_tokens
    assert body["usage"]["completion_tokens"] == len(expected.token_ids)


def test_stream_tells_what_was_drafted(served, monkeypatch, tmp_path):
    """The engine's own counts; a model this small repeats itself."""
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    # No measured time decides whether anything is drafted.
    served.service.defaults = GenerationConfig(draft_budget="always")
    wishes = {"stream": True, "return_progress": True, "akunu": {"sources": True, "metrics": True}}
    # Rows are compared behind a reply for nobody: no API says what that finds.
    monkeypatch.setattr(Session, "bit_equal_to", lambda *_: pytest.fail("measured"))
    ask = ASK | {"max_tokens": 60, "temperature": 0}
    whole = served.post(CHAT, ask | {"akunu": {"metrics": True}}).json()
    chunks = [value for _, value in events_of(served.post(CHAT, ask | wishes))][:-1]
    pieces = [
        (chunk["choices"][0]["delta"]["content"], chunk["akunu"]["source"])
        for chunk in chunks
        if "akunu" in chunk and chunk["choices"][0]["delta"]
    ]
    assert "".join(text for text, _ in pieces) == whole["choices"][0]["message"]["content"]
    last = chunks[-1]
    assert last["timings"]["draft_n_accepted"] > 0
    sources = {source for _, source in pieces}
    assert sources <= {None, "prompt", "reply", "memory", "prompt+reply"}
    assert any(source for _, source in pieces)
    counts = chunks[-2]["akunu"]
    assert counts["tokens"] == last["usage"]["completion_tokens"]
    mean = last["metrics"]["speculative_decoding"]["mean_acceptance_length"]
    assert counts["tokens"] / counts["passes"] == pytest.approx(mean)
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    prompt = last["usage"]["prompt_tokens"]
    assert all(one["total"] == prompt for one in progress)
    assert progress[0]["processed"] == progress[0]["cache"]
    assert progress[-1]["processed"] == prompt


def test_second_request_uses_the_rows_of_the_first(served):
    first = served.post(CHAT, ASK)
    again = served.post(CHAT, ASK)
    prompt = first.json()["usage"]["prompt_tokens"]
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] >= prompt - 1
    assert "reused=" in again.headers["x-akunu-cache"]
    assert first.json()["choices"] == again.json()["choices"]


def test_all_formats_give_the_same_text(served):
    chat = served.post(CHAT, ASK).json()["choices"][0]["message"]["content"]
    messages = served.post("/v1/messages", ASK).json()["content"]
    responses = served.post(
        "/v1/responses", {"input": ASK["messages"], "max_output_tokens": 12}
    ).json()["output"]
    assert "".join(block["text"] for block in messages) == chat
    assert "".join(item["content"][0]["text"] for item in responses) == chat


def test_prompt_longer_than_the_context(served, loaded):
    long = [{"role": "user", "content": "word " * 5000}]
    error = served.post(CHAT, {"messages": long}).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert str(loaded.context) in error["message"]
    error = served.post("/v1/messages", {"messages": long, "max_tokens": 5}).json()["error"]
    assert error["message"].startswith("prompt is too long: ")
    assert error["message"].endswith(f" > {loaded.context} maximum")


def test_the_template_is_that_of_the_file(served, tmp_path, tiny_gguf):
    assert served.get("/props").json()["chat_template"] == CHAT_TEMPLATE
    folder = write_folder(tmp_path / "folder", tiny_gguf)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    with Engine.load(folder) as engine:
        assert served_model(engine).template == settings["chat_template"]


def test_health_knows_whether_the_worker_lives(loaded):
    worker = Worker(loaded, parallel=1, places=1)
    with running(EngineBackend(worker)) as server:
        assert server.get("/health").status_code == 503
        worker.start()
        assert server.get("/health").status_code == 200
        worker.close()
        assert server.get("/health").json()["status"] == "dead"
        response = server.post(CHAT, ASK)
        assert response.status_code == 503
        assert response.json()["error"]["message"]


def test_required_call_is_made(served):
    """A random model calls the tool, since nothing else is allowed; all formats tell it alike."""
    properties = {"way": {"type": "string", "enum": ["up", "down"]}}
    schema = {"type": "object", "properties": properties, "required": ["way"]}
    schema["additionalProperties"] = False
    function = {"name": "turn", "parameters": schema}
    tools = [{"type": "function", "function": function}]
    ask = {"messages": ASK["messages"], "max_tokens": 100, "tools": tools}
    ask |= {"tool_choice": "required", "parallel_tool_calls": False}
    reply = served.post(CHAT, ask).json()
    # The reply ends with its only call; left alone, this model makes calls to the end.
    assert reply["usage"]["completion_tokens"] < 100
    [choice] = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [one] = choice["message"]["tool_calls"]
    assert one["function"]["name"] == "turn"
    arguments = json.loads(one["function"]["arguments"])
    assert arguments["way"] in {"up", "down"}
    named = {"messages": ASK["messages"], "max_tokens": 100}
    named["tools"] = [{"name": "turn", "input_schema": schema}]
    named["tool_choice"] = {"type": "tool", "name": "turn"}
    message = served.post("/v1/messages", named).json()
    assert message["stop_reason"] == "tool_use"
    assert message["content"][-1]["input"] == arguments
    item = served.post(
        "/v1/responses",
        {
            "input": ASK["messages"],
            "max_output_tokens": 100,
            "tools": [{"type": "namespace", "name": "n", "description": "", "tools": [
                {"type": "function", **function}]}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ).json()["output"][-1]  # fmt: skip
    assert (item["namespace"], item["name"]) == ("n", "turn")
    assert json.loads(item["arguments"]) == arguments


def test_choice_of_tools_does_not_change_the_prompt(served):
    names = ["up", "down", "turn"]
    tools = [{"type": "function", "name": name, "parameters": {}} for name in names]
    ask = {"input": ASK["messages"], "max_output_tokens": 1, "tools": tools}
    first = served.post("/v1/responses", ask).json()["usage"]
    for choice in (
        "required",
        {"type": "function", "name": "down"},
        {"type": "allowed_tools", "mode": "auto", "tools": tools[:2]},
        "none",
    ):
        usage = served.post("/v1/responses", ask | {"tool_choice": choice}).json()["usage"]
        assert usage["input_tokens"] == first["input_tokens"], choice
        cached = usage["input_tokens_details"]["cached_tokens"]
        assert cached >= usage["input_tokens"] - 1, choice


def test_answer_fits_a_schema(served):
    schema = {
        "type": "object",
        "properties": {"x": {"enum": [1, 2]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = served.post(CHAT, ASK | {"max_tokens": 60, "response_format": form}).json()
    assert json.loads(body["choices"][0]["message"]["content"])["x"] in {1, 2}


def test_prediction_is_drafted_from(loaded):
    """A reply that repeats the predicted text accepts drafts from it, and stays the same."""
    ask = {"messages": [{"role": "user", "content": "Say something"}], "max_tokens": 60}
    defaults = GenerationConfig(draft_budget="always")
    with serving(loaded, defaults=defaults, cache_bytes=0) as server:
        texts, details = [], []
        for predicted in (False, True):
            more = {"prediction": {"type": "content", "content": texts[0]}} if predicted else {}
            # Otherwise the first reply would be drafted from, as an earlier one of this client.
            server.worker.models.default.clients = ClientMemories()
            body = server.post(CHAT, ask | more).json()
            texts.append(body["choices"][0]["message"]["content"])
            details.append(body["usage"]["completion_tokens_details"])
    assert texts[0] == texts[1]
    assert details[0]["accepted_prediction_tokens"] == 0
    assert details[1]["accepted_prediction_tokens"] >= 10
