"""What users of llama.cpp's server expect, as its own tests ask for it, of the formats that akunu has too."""

import pytest
from scripted_server import events_of
from wire_formats import BODIES, CHAT, COMPLETIONS, HI, MESSAGES, RESPONSES, error_of

PATHS_ALONE = {"/chat/completions": CHAT, "/responses": RESPONSES}


@pytest.mark.parametrize("path", PATHS_ALONE)
def test_paths_without_version(server, path):
    body = BODIES[PATHS_ALONE[path]]
    kind = server.post(path, body).json()["object"]
    assert kind == server.post(PATHS_ALONE[path], body).json()["object"]
    assert server.get("/models").json() == server.get("/v1/models").json()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/completion", 404, "/v1/completions"), ("/completions", 404, "/v1/completions"),
        ("/infill", 404, "suffix"), ("/slots", 404, "/health"), ("/rerank", 404, "docs/server-reference.md"),
    ],
)  # fmt: skip
def test_paths_that_akunu_lacks_say_what_there_is(server, path, status, words):
    response = server.post(path, {"prompt": "Hi"})
    assert response.status_code == status
    assert words in error_of(response)["message"]


TAKEN = {
    "cache_prompt": True, "id_slot": 1, "n_keep": 3, "mirostat": 0, "dry_multiplier": 0.0, "typical_p": 1.0,
    "top_n_sigma": -1, "xtc_probability": 0, "lora": [], "ignore_eos": False, "speculative.p_min": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_fields_that_change_no_reply_are_taken(server, path):
    assert server.post(path, BODIES[path] | TAKEN).status_code == 200


FORM = {"const": "42"}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"response_format": {"type": "json_object", "schema": FORM}}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": FORM}}}),
        (CHAT, {"json_schema": FORM}),
        (COMPLETIONS, {"json_schema": FORM}),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "x", "schema": FORM}}}),
    ],
)
def test_schemas_wherever_they_stand(server, backend, path, fields):
    assert server.post(path, BODIES[path] | fields).status_code == 200
    assert "42" in str(backend.request.config.constraint)


def test_a_stream_of_a_chat(server):
    body = BODIES[CHAT] | {"stream": True, "stream_options": {"include_usage": True}}
    first, *pieces, last, usage, done = [
        value for _, value in events_of(server.post(CHAT, body | {"timings_per_token": True}))
    ]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert {one["id"] for one in (first, *pieces, last, usage)} == {first["id"]}
    assert not any("role" in one["choices"][0]["delta"] for one in (*pieces, last))
    assert "content" not in last["choices"][0]["delta"]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["completion_tokens"] == usage["timings"]["predicted_n"]
    assert done == "[DONE]"


def test_messages_have_usage_and_no_times(server):
    body = server.post(MESSAGES, BODIES[MESSAGES]).json()
    assert {"input_tokens", "output_tokens", "cache_read_input_tokens"} <= body["usage"].keys()
    assert "timings" not in body
    counted = server.post(MESSAGES + "/count_tokens", {"messages": HI}).json()
    assert counted.keys() == {"input_tokens"}
