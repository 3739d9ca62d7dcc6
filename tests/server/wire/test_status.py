"""/v1/models, /health, /metrics, /props, and what clients ask to see whether a server is there."""

import time
from dataclasses import replace
from datetime import datetime
from unittest.mock import Mock

import anthropic
import pytest
from scripted_server import MODEL, PATIENCE_S, ScriptedBackend, running, samples_of
from wire_formats import BODIES, CHAT, MESSAGES

from akunu_py import __version__
from akunu_py.server.backend import Health
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.recommended import Recommended


def test_models_in_all_shapes(server):
    body = server.get("/v1/models?limit=1000").json()
    assert body["object"] == "list"
    assert [entry["id"] for entry in body["data"]] == ["tiny", "claude-akunu-tiny"]
    for entry in body["data"]:
        assert entry["object"] == entry["type"] == "model"
        assert isinstance(entry["created"], int)
        assert datetime.fromisoformat(entry["created_at"]).timestamp() == entry["created"]
    assert body["has_more"] is False
    assert (body["first_id"], body["last_id"]) == ("tiny", "claude-akunu-tiny")
    [catalog] = body["models"]
    assert catalog["slug"] == "tiny"
    assert catalog["context_window"] == 4096
    assert catalog["apply_patch_tool_type"] == "freeform"
    assert {
        "display_name", "shell_type", "visibility", "supported_in_api", "priority",
        "truncation_policy", "input_modalities", "base_instructions", "support_verbosity",
        "default_verbosity", "supports_parallel_tool_calls", "supports_reasoning_summaries",
        "supported_reasoning_levels", "experimental_supported_tools",
    } <= catalog.keys()  # fmt: skip


def test_all_models_are_on_one_page():
    served = tuple(replace(MODEL, id=f"m{number}") for number in range(20))
    with running(ScriptedBackend(served=served)) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="unused")
        found = [model.id for model in client.models.list(limit=3)]
    assert found == [prefix + model.id for prefix in ("", "claude-akunu-") for model in served]


def test_one_model(server):
    for name in ("tiny", "claude-akunu-tiny"):
        assert server.get(f"/v1/models/{name}").json()["id"] == name
    response = server.get("/v1/models/other")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    named = server.get("/v1/models/other", headers={"anthropic-version": "2023-06-01"})
    assert named.json()["error"]["type"] == "not_found_error"


def test_several_models_are_chosen_by_name():
    other = replace(MODEL, id="other", name="Other")
    with running(ScriptedBackend(served=(MODEL, other))) as server:
        ask = {"prompt": "Hi"}
        for given, used in (("other", "other"), ("tiny", "tiny"), (None, "tiny"), ("", "tiny")):
            assert server.post("/v1/completions", ask | {"model": given}).json()["model"] == used
            assert server.backend.request.model == used


@pytest.mark.parametrize(("state", "status"), [("ok", 200), ("loading", 503), ("dead", 503)])
def test_health_is_that_of_the_worker(server, backend, state, status):
    backend.state = Health(state=state, running=2, waiting=3, places=4)
    response = server.get("/health")
    assert response.status_code == status
    assert response.json() == {
        "status": state, "running": 2, "waiting": 3, "places": 4, "loading": None,
        "loaded": ["tiny"],
    }  # fmt: skip
    assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/ping", b""), ("/api/hello", b""), ("/v1", b""), ("/v1/", b""), ("/healthz", b"ok"),
        ("/v1/health", b"ok"), ("/health/", b"ok"), ("/version", __version__.encode()),
        ("/v1/models/", b"tiny"), ("/v1/models/tiny/", b"tiny"), ("/api/tags/", b"tiny"),
    ],
)  # fmt: skip
def test_what_costs_nothing_is_answered(server, method, path, said):
    answer = server.client.request(method, path)
    assert answer.status_code == 200
    assert (said if method == "GET" else b"") in answer.content
    assert answer.content or method == "HEAD" or not said


def test_a_slash_at_the_end_of_a_path_is_no_other_path(server):
    assert server.post(CHAT + "/", BODIES[CHAT]).status_code == 200
    assert server.post(MESSAGES + "//", {}).json()["type"] == "error"


def test_metrics():
    with running() as server:
        for _ in range(2):
            server.post("/v1/completions", {"prompt": "Hi"})
        server.post("/v1/completions", {"prompt": 5})
        server.backend.state = Health(running=1, waiting=2, cache_bytes=77)
        asked = "akunu_requests_total", "/v1/completions", "200"
        deadline = time.monotonic() + PATIENCE_S
        # A request is counted once its response was sent.
        while (samples := samples_of(server)).get(asked) != 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert samples[asked] == 2
    assert samples["akunu_prompt_tokens_total",] == 60
    assert samples["akunu_cached_prompt_tokens_total",] == 40
    assert samples["akunu_generation_tokens_total",] == 24
    assert samples["akunu_spec_decode_num_drafts_total",] == 8
    assert samples["akunu_spec_decode_num_draft_tokens_total",] == 18
    assert samples["akunu_spec_decode_num_accepted_tokens_total",] == 14
    assert samples["akunu_spec_decode_num_accepted_tokens_per_pos_total", "1"] == 4
    assert samples["akunu_time_to_first_token_seconds_count",] == 2
    assert samples["akunu_requests_running",] == 1
    assert samples["akunu_requests_waiting",] == 2
    assert samples["akunu_prefix_cache_bytes",] == 77


def test_props(server):
    body = server.get("/props").json()
    assert body["default_generation_settings"]["n_ctx"] == 4096
    assert body["n_ctx_train"] is None
    assert body["stored"].keys() >= {"num_bytes", "parameters", "quantization"}
    assert body["total_slots"] == 1
    assert body["model_path"] == "tiny"
    assert body["modalities"] == {"vision": False, "audio": False}
    assert body["thinking"] == ["effort", "thinking"]


def test_props_of_a_model_that_was_not_loaded():
    """What its template heeds is not known."""
    with running(ScriptedBackend(served=(replace(MODEL, loaded=False),))) as server:
        assert server.get("/props").json()["thinking"] is None


@pytest.mark.parametrize(
    ("reason", "shares", "since"),
    [
        (None, None, None),
        ("", True, None),
        ("they are reproducible", False, "they are reproducible"),
    ],
)
def test_props_say_whether_replies_share_passes(reason, shares, since):
    served = replace(MODEL, takes_turns=lambda: reason)
    with running(ScriptedBackend(served=(served,))) as server:
        body = server.get("/props").json()
    assert (body["shares_passes"], body["takes_turns_since"]) == (shares, since)


def test_server_without_a_model():
    with running(ScriptedBackend(served=())) as server:
        assert server.get("/v1/models").json()["data"] == []
        assert server.post("/v1/completions", {"prompt": "x"}).status_code == 404


def test_panic_of_a_library_is_an_error_in_the_apis_words(server, monkeypatch):
    class PanicException(BaseException):
        """As PyO3's, which is no Exception."""

    fails = Mock(side_effect=PanicException("index out of range"))
    monkeypatch.setattr(server.backend, "submit", fails)
    response = server.post(
        "/v1/messages", {"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "api_error"
    monkeypatch.undo()
    assert server.get("/health").status_code == 200


def test_template_is_shown():
    with running(ScriptedBackend(served=(replace(MODEL, template="{{ messages }}"),))) as server:
        assert server.get("/props").json()["chat_template"] == "{{ messages }}"


def test_a_models_recommended_sampling_holds_where_nothing_is_said():
    recommended = Recommended({"temperature": 0.6, "top_k": 20, "min_p": 0.1}, "a file")
    served = (replace(MODEL, recommended=recommended), replace(MODEL, id="other"))
    with running(ScriptedBackend(served=served)) as server:
        server.service.defaults = GenerationConfig(min_p=0.3)
        server.service.given = {"min_p"}
        for model, temperature, top_k in (("tiny", 0.6, 20), ("other", 0, 0)):
            params = server.get(f"/props?model={model}").json()["default_generation_settings"]
            shown = params["params"]
            found = (shown["temperature"], shown["top_k"], shown["min_p"])
            assert found == (temperature, top_k, 0.3)
            asked = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
            server.post("/v1/chat/completions", {**asked, "top_k": 5})
            config = server.backend.request.config
            assert (config.temperature, config.top_k, config.min_p) == (temperature, 5, 0.3)
            server.post("/api/chat", {**asked, "stream": False, "options": {"temperature": 0}})
            assert server.backend.request.config.temperature == 0
            assert server.backend.request.config.top_k == top_k
